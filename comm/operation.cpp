#include "comm/operation.h"

#include <tutti/work.h>

#include "comm/engine.h"
#include "comm/member.h"

namespace tutti {
namespace comm {

std::vector<std::function<void(const Status&)>> Operation::finish(Status status) {
  if (complete()) return {};
  status_ = std::move(status);
  complete_.store(true, std::memory_order_release);
  return std::exchange(callbacks_, {});
}

bool Operation::add_callback(std::function<void(const Status&)>& callback) {
  if (complete()) return false;
  callbacks_.push_back(std::move(callback));
  return true;
}

const Origin& Operation::origin() const { return member_->engine()->origin(); }

}  // namespace comm

namespace {

// Pending here, and a parent process's: nothing of it moves here, and its end may not be touched.
bool is_elsewhere(const std::shared_ptr<comm::Operation>& operation) { return operation && !operation->origin().here(); }
Status elsewhere(const comm::Operation& operation) { return operation.origin().elsewhere("the operation"); }

}  // namespace

Work::Work() = default;
Work::Work(Status already_complete) : status_(std::move(already_complete)) {}
Work::Work(std::shared_ptr<comm::Operation> operation) : operation_(std::move(operation)) {}
Work::Work(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(const Work& other) { return *this = Work(other); }
Work& Work::operator=(Work&& other) noexcept {
  Work taken(std::move(other));      // what was here ends with it
  std::swap(operation_, taken.operation_);
  std::swap(status_, taken.status_);
  return *this;
}
Work::~Work() {
  if (is_elsewhere(operation_)) abandon(std::move(operation_));
}

Status Work::wait() {
  if (!operation_) return status_;
  if (operation_->complete()) return operation_->status();
  if (is_elsewhere(operation_)) return elsewhere(*operation_);
  if (auto engine = operation_->engine()) engine->wait(*operation_, comm::Engine::kForever);
  return operation_->status();
}

bool Work::wait_for(std::chrono::nanoseconds limit) {
  if (!operation_ || operation_->complete() || is_elsewhere(operation_)) return true;
  if (auto engine = operation_->engine()) engine->wait(*operation_, limit);
  return operation_->complete();
}

bool Work::test() {
  if (!operation_ || operation_->complete() || is_elsewhere(operation_)) return true;
  if (auto engine = operation_->engine()) engine->drive();
  return operation_->complete();
}

Status Work::status() const {
  if (!operation_) return status_;
  if (!operation_->complete()) return is_elsewhere(operation_) ? elsewhere(*operation_) : Status(Code::invalid_state, "the operation is pending");
  return operation_->status();
}

void Work::then(std::function<void(const Status&)> callback) {
  if (operation_ && !operation_->complete()) {
    if (is_elsewhere(operation_)) return callback(elsewhere(*operation_));
    auto engine = operation_->engine();
    if (engine && engine->add_callback(*operation_, callback)) return;
  }
  callback(operation_ ? operation_->status() : status_);
}

}  // namespace tutti
