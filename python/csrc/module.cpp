// The Python module torch_tutti._C: the process group, its maker, and the exception.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>
#include <tutti/version.h>

#include <pybind11/chrono.h>

#include "python/csrc/failure.h"
#include "python/csrc/meeting.h"
#include "python/csrc/memory.h"
#include "python/csrc/process_group.h"

namespace tutti_torch {
namespace {

// torch_tutti.Error, never freed: exceptions may be translated until the interpreter's end.
PyObject* error_type = nullptr;

void to_python(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    py::object error = py::reinterpret_borrow<py::object>(error_type)(failure.what());
    error.attr("code") = tutti::code_name(failure.status.code());
    error.attr("culprit") = failure.status.culprit();
    PyErr_SetObject(error_type, error.ptr());
  }
}

// Chosen for one size of all_reduce, as "algorithm over transport".
std::string explain(ProcessGroup& group, std::size_t bytes) {
  const auto choice = group.communicator().explain(tutti::Collective::all_reduce, bytes / sizeof(float), tutti::DataType::f32);
  check(choice.status());
  return choice->algorithm + " over " + choice->transport;
}

}  // namespace
}  // namespace tutti_torch

PYBIND11_MODULE(_C, m) {
  using namespace tutti_torch;
  error_type = PyErr_NewExceptionWithDoc("torch_tutti.Error",
                                         "A failure of tutti: the text is the whole Status; `code` is its name, such as 'peer_lost'; `culprit` the rank that "
                                         "caused it, in the group, or -1.",
                                         PyExc_RuntimeError, nullptr);
  m.add_object("Error", error_type);
  py::register_exception_translator(to_python);
  m.attr("library_version") = TUTTI_VERSION_STRING;

  py::module::import("torch.distributed");      // Base's Python type
  py::class_<ProcessGroup, Base, c10::intrusive_ptr<ProcessGroup>>(m, "ProcessGroupTutti")
      .def("explain", &explain, py::arg("bytes"), "Which algorithm and transport an all_reduce of so many bytes takes, as 'direct over shm'.")
      .def("memory_bytes", [](ProcessGroup& g) { return g.communicator().memory_bytes(); }, "Bytes that the library holds for this rank.")
      .def("abort", [](ProcessGroup& g, const std::string& reason) { g.communicator().abort(reason); }, py::arg("reason") = "abort was called",
           py::call_guard<py::gil_scoped_release>(), "Ends what is pending, here and on the other ranks, with Error 'aborted'. Returns at once.");
  py::module::import("atexit").attr("register")(py::cpp_function(&ProcessGroup::shutdown_all, py::call_guard<py::gil_scoped_release>()));
  m.def("zeros", [](const std::vector<int64_t>& sizes, py::handle dtype) {
    if (!THPDtype_Check(dtype.ptr())) throw py::type_error("dtype: wanted a torch.dtype");
    return zeros(sizes, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
  }, py::arg("sizes"), py::arg("dtype"));
  py::class_<World>(m, "World")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("rank", &World::rank)
      .def_property_readonly("size", &World::size)
      .def_property_readonly("on_one_host", &World::on_one_host)
      .def("share", &World::share, py::arg("text"), py::call_guard<py::gil_scoped_release>());
  m.def("create",
        [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
          return ProcessGroup::make(meet(store, rank, size, timeout));
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::call_guard<py::gil_scoped_release>());
}
