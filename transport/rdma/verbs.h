#pragma once
// The functions of libibverbs that this room calls, as a table: filled from libibverbs.so at run time, so that one binary serves machines
// without it, or by a test from a provider of its own. What <infiniband/verbs.h> has inline (posting, polling) goes by a device's own
// table and needs none of it.
#include <infiniband/verbs.h>
#include <tutti/status.h>

#include <string>

namespace tutti::transport::rdma {

struct Verbs {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  decltype(&::ibv_query_port) query_port = nullptr;        // fills the part that <infiniband/verbs.h> calls compatible
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_resize_cq) resize_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  // Null in older ones: registering with options that a device may leave out, and memory of other devices.
  decltype(&::ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;
  std::string sysfs = "/sys";                               // where the kernel tells more of the devices
};

// The machine's own. unsupported: there is no libibverbs, or one without what is needed; says what to install.
Result<const Verbs*> load_verbs();

}  // namespace tutti::transport::rdma
