#pragma once
// What `tutti report` says of one job, as text for people and as JSON for programs. It reads no files and asks no clock.
#include <cstdint>
#include <string>

#include "record/story.h"

namespace tutti::tools {

std::string report_text(const record::Story& story);
std::string report_json(const record::Story& story);

// "0.7 us", "12 ms", "3.1 s".
std::string span_text(std::int64_t nanoseconds);
// "1.2 GB/s"
std::string speed_text(double bytes_per_second);
// What a link goes by: "rdma mlx5_0:1 10.0.0.1 -> 10.0.0.2 (1 queue pair)"
std::string way_text(const record::Peer& peer);
// "rank 3 (host2, pid 4711)"
std::string rank_text(const record::Story& story, int rank);
// "waits for rank 3 (host2, pid 4711), which has not made the call"; empty when it is complete.
std::string verdict_text(const record::Story& story, const record::Chapter& chapter);
const char* end_name(record::Chapter::End end);
// "alive", "stopped", "dead", "ended", "failed"
std::string life_text(const record::Recording& recording);

}  // namespace tutti::tools
