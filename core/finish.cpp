#include "core/finish.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>

namespace tutti {

Status finish(Device& device, StreamHandle stream, std::chrono::milliseconds limit) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  auto gate = std::make_shared<Gate>();
  auto passed = std::make_unique<std::shared_ptr<Gate>>(gate);
  const auto pass = [](void* argument) {
    const std::unique_ptr<std::shared_ptr<Gate>> at(static_cast<std::shared_ptr<Gate>*>(argument));
    const std::lock_guard held((*at)->mutex);
    (*at)->open = true;
    (*at)->changed.notify_all();
  };
  if (Status status = device.call(stream, pass, passed.get()); !status.ok()) return status;
  (void)passed.release();  // the stream's
  std::unique_lock held(gate->mutex);
  if (gate->changed.wait_for(held, limit, [&] { return gate->open; })) return {};
  return Status(Code::timeout, fmt::format("copies of {} have not ended within {:.3g} s", device.describe(), std::chrono::duration<double>(limit).count()));
}

}  // namespace tutti
