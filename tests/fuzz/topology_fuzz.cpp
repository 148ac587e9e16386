// libFuzzer target of the topology readers: the input's form is told by its content, as read_file does. A finding is a
// crash, a hang, a graph out of order, or a refusal without a line.
//   fuzz_topology -max_total_time=60 FOUND ../tests/topology/data
// TUTTI_FUZZ builds it, with clang; what it finds is minimized and kept in tests/topology/data.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>
#include "tests/topology/mutation.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace {

void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  using namespace tutti::topology;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const bool hwloc = text.find("<topology") != std::string::npos, nccl = text.find("<system") != std::string::npos;
  const Result<Graph> graph = hwloc  ? read_hwloc_xml(text, "x")
                              : nccl ? read_nccl_xml(text, "x")
                                     : read_matrix(text, "x");
  if (!graph) {
    if (graph.status().text().rfind("x:", 0) != 0) fail("a refusal without a line: " + graph.status().to_string());
    return 0;
  }
  if (const std::string wrong = test::disorder(*graph); !wrong.empty()) fail(wrong);
  if (describe(*graph).empty()) fail("nothing to say");
  if (const Result<std::string> xml = write_hwloc_xml(*graph))
    if (const Result<Graph> again = read_hwloc_xml(*xml, "again"); !again) fail(again.status().to_string());
  return 0;
}
