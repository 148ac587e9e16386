#pragma once
// finish: waits for a stream of a GPU, and not for ever.
#include <chrono>

#include "core/device.h"

namespace tutti {

// Until what is enqueued on the stream now has run. timeout: it has not within `limit`, and may do so later.
Status finish(Device& device, StreamHandle stream, std::chrono::milliseconds limit);

}  // namespace tutti
