#pragma once
// Group: what one thread has called since ncclGroupStart, and how it is carried out at the outermost end: first the new
// communicators, those of different parents at once; then the operations, all started before one is waited for. A call
// outside of groups is a group of its own. Blocking communicators: the end returns when all is complete. Others: it
// returns ncclInProgress, and a thread carries it out.
#include <functional>
#include <vector>

#include "nccl/call.h"

namespace tutti::nccl {

struct Task {
  const char* name = "";                       // of the call
  std::shared_ptr<ncclComm> comm;              // the new one, or the one of the call
  std::function<Result<Communicator>()> make;  // of a new one: blocks until its ranks have called; empty: it is a call
  std::shared_ptr<ncclComm>
      parent;  // of a new one that is split off or shrunk from it; what one parent gives is made in order
  ncclComm_t* handle = nullptr;  // the user's, who gets NULL should it fail
  Call call;
};

class Group {
 public:
  static Group& of_this_thread();

  void start() { ++depth_; }
  bool open() const { return depth_ > 0; }
  // Carries it out at once where no group is open.
  Outcome add(Task task);
  // A call was refused: so is the group.
  void refuse(const Outcome& why);
  // ncclInvalidUsage: there is none.
  Outcome end();
  // Ends it, and says how long it would take; nothing is carried out. ncclInvalidUsage: with new communicators in it,
  // too.
  Outcome simulate(double& seconds);

 private:
  Outcome take(std::vector<Task>& tasks);
  static Outcome carry_out(std::vector<Task> tasks);

  int depth_ = 0;
  std::vector<Task> tasks_;
  Outcome refused_;
};

}  // namespace tutti::nccl
