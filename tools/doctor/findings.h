#pragma once
// Findings: from facts and pairs to verdicts. Pure functions; each limit is a constant beside the judgement that uses
// it. A healthy pair of hosts gets nothing above a note.
#include <optional>

#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

// All of the below, in the order of the tick list.
std::vector<Finding> examine(const Examination& examination);

std::vector<Finding> host_findings(const Facts& facts, const std::string& name, int rank_count);
// Rows that should be equal on all hosts, shown where they are not; one pass when all are.
std::vector<Finding> difference_findings(const std::vector<Facts>& hosts);
std::vector<Finding> pair_findings(const Pair& pair, const Facts& from, const Facts& to, const std::string& from_name,
                                   const std::string& to_name);
std::vector<Finding> growth_findings(const Growth& growth, const std::string& host);
std::vector<Finding> clock_findings(const std::vector<ClockDifference>& clocks, const std::vector<Facts>& hosts);

// Why an address could not be reached, and what to try: "10.0.0.2:4000: refused: nothing listens there".
Finding reach_finding(const Attempt& attempt, const std::string& about);

// "1.08 GB/s", "118 MB/s"; "10 Gb/s", "0.5 of a core".
std::string rate_text(double bytes_per_second);
std::string bytes_text(std::uint64_t bytes);

}  // namespace tutti::tools::doctor
