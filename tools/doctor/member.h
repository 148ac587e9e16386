#pragma once
// Member: does what rank 0 orders, one order and one answer at a time, until it is let go. Every rank is one, rank 0
// too.
#include "tools/doctor/channel.h"
#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

// Ok when let go. Otherwise what became of rank 0: network, timeout (no order for kOrderLimit), mismatch.
Status serve_orders(Channel channel, const Facts& own, const std::string& job_key);
inline constexpr std::chrono::minutes kOrderLimit{15};  // pairs of a large job are measured in turn

}  // namespace tutti::tools::doctor
