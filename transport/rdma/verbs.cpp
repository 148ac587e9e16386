#include "transport/rdma/verbs.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::transport::rdma {
namespace {

Result<Verbs> load() {
  void* library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return Status(Code::unsupported, fmt::format("libibverbs cannot be loaded ({}): install libibverbs1 and ibverbs-providers", ::dlerror()));
  Verbs verbs;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (!function) missing = name;
  };
  find(verbs.get_device_list, "ibv_get_device_list");
  find(verbs.free_device_list, "ibv_free_device_list");
  find(verbs.get_device_name, "ibv_get_device_name");
  find(verbs.open_device, "ibv_open_device");
  find(verbs.close_device, "ibv_close_device");
  find(verbs.query_device, "ibv_query_device");
  find(verbs.query_port, "ibv_query_port");
  find(verbs.query_gid_ex, "_ibv_query_gid_ex");
  find(verbs.alloc_pd, "ibv_alloc_pd");
  find(verbs.dealloc_pd, "ibv_dealloc_pd");
  find(verbs.reg_mr, "ibv_reg_mr");
  find(verbs.dereg_mr, "ibv_dereg_mr");
  find(verbs.create_comp_channel, "ibv_create_comp_channel");
  find(verbs.destroy_comp_channel, "ibv_destroy_comp_channel");
  find(verbs.create_cq, "ibv_create_cq");
  find(verbs.resize_cq, "ibv_resize_cq");
  find(verbs.destroy_cq, "ibv_destroy_cq");
  find(verbs.get_cq_event, "ibv_get_cq_event");
  find(verbs.ack_cq_events, "ibv_ack_cq_events");
  find(verbs.create_qp, "ibv_create_qp");
  find(verbs.modify_qp, "ibv_modify_qp");
  find(verbs.destroy_qp, "ibv_destroy_qp");
  const auto find_newer = [&](auto& function, const char* name) { function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name)); };
  find_newer(verbs.reg_mr_iova2, "ibv_reg_mr_iova2");
  find_newer(verbs.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  decltype(&::ibv_fork_init) fork_init = nullptr;
  find(fork_init, "ibv_fork_init");
  if (missing) return Status(Code::unsupported, fmt::format("libibverbs.so.1 has no {}: rdma-core 32 or newer is needed", missing));
  // So that pages of the user's that a device writes stay the parent's when it forks. Newer kernels see to that themselves, and it does nothing.
  (void)fork_init();
  return verbs;
}

}  // namespace

Result<const Verbs*> load_verbs() {
  static const Result<Verbs> loaded = load();     // never closed: providers do not like it
  if (!loaded) return loaded.status();
  return &*loaded;
}

}  // namespace tutti::transport::rdma
