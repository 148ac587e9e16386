#pragma once
// Coordinator: rank 0's part after the meeting. It compares clocks, has each pair of hosts measured, several pairs at
// once but no host in two of them, and lets the library try an all-reduce of all ranks.
#include <map>

#include "tools/doctor/channel.h"
#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

// `channels` and `facts` by rank, rank 0's own member among them. Fills hosts, pairs, clocks, trials and missing (ranks
// that went away meanwhile). Every order has a limit.
void coordinate(std::map<int, Channel>& channels, const std::map<int, Facts>& facts, Examination& examination);

// Rounds of pairs of 0 … count - 1: each pair once, nobody twice in a round (the circle method of tournaments).
std::vector<std::vector<std::pair<int, int>>> rounds_of_pairs(int count);

}  // namespace tutti::tools::doctor
