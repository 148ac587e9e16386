#include "comm/operation.h"

#include <tutti/work.h>

#include "comm/engine.h"

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

}  // namespace comm

Work::Work() = default;
Work::Work(Status already_complete) : status_(std::move(already_complete)) {}
Work::Work(std::shared_ptr<comm::Operation> operation) : operation_(std::move(operation)) {}
Work::Work(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(const Work&) = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

Status Work::wait() {
  if (!operation_) return status_;
  if (!operation_->complete())
    if (auto engine = operation_->engine()) engine->wait(*operation_, comm::Engine::kForever);
  return operation_->status();
}

bool Work::wait_for(std::chrono::nanoseconds limit) {
  if (!operation_ || operation_->complete()) return true;
  if (auto engine = operation_->engine()) engine->wait(*operation_, limit);
  return operation_->complete();
}

bool Work::test() {
  if (!operation_ || operation_->complete()) return true;
  if (auto engine = operation_->engine()) engine->drive();
  return operation_->complete();
}

Status Work::status() const {
  if (!operation_) return status_;
  if (!operation_->complete()) return Status(Code::invalid_state, "the operation is pending");
  return operation_->status();
}

void Work::then(std::function<void(const Status&)> callback) {
  if (operation_ && !operation_->complete()) {
    auto engine = operation_->engine();
    if (engine && engine->add_callback(*operation_, callback)) return;
  }
  callback(operation_ ? operation_->status() : status_);
}

}  // namespace tutti
