#pragma once
// What the C functions have in common: no exception leaves them, what failed is remembered for ncclGetLastError, and
// each has a twin. Both names are exported; the one without p is weak, so that a tool may put its own in front.
#include "nccl/group.h"

#define TUTTI_NCCL_TWIN(name) extern "C" decltype(p##name) name __attribute__((weak, alias("p" #name)))

namespace tutti::nccl {

// `body` gives an Outcome.
template <class Body>
Outcome guarded(const char* name, Body body) {
  Outcome outcome = in(name, caught(body));
  remember(outcome);
  return outcome;
}

template <class Body>
ncclResult_t answer(const char* name, Body body) {
  return guarded(name, body).code;
}

// Of a call that belongs to the group that is open on this thread: the group fails with it.
template <class Body>
ncclResult_t answer_in_group(const char* name, Body body) {
  const Outcome outcome = guarded(name, body);
  if (outcome.failed()) Group::of_this_thread().refuse(outcome);
  return outcome.code;
}

// With the communicator behind the handle: body(std::shared_ptr<ncclComm>).
template <class Body>
auto with(ncclComm_t handle, Body body) {
  return [handle, body]() -> Outcome {
    std::shared_ptr<ncclComm> comm;
    if (Outcome known = find(handle, comm); !known.ok()) return known;
    return body(comm);
  };
}

}  // namespace tutti::nccl
