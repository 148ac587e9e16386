#pragma once
// HangReport: why an operation does not move, as one rank puts it together from what all have said and as every rank
// prints it: who has not called, who called something else, who does not answer, which link stalls, and where everybody
// stands. A value with its encoding, its text and its JSON; it asks nobody and ends nothing.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/word.h"

namespace tutti::comm {

struct HangReport {
  enum class State : std::uint8_t { waits, done, behind, not_called, other_call, silent, gone };
  struct Row {
    int rank = 0;                              // of the communicator
    int world_rank = 0;
    State state = State::waits;
    std::uint32_t started = 0;                 // collectives that it has called
    std::vector<Stand> stands;                 // what it waits for
  };
  struct Stalled {
    int from = 0, to = 0;                      // ranks of the communicator
    bool operator==(const Stalled&) const = default;
  };
  static constexpr std::size_t kMostRows = 32;

  std::uint32_t communicator = 0, sequence = 0;
  bool collective = true;
  std::uint64_t call = 0;                      // packed
  std::uint32_t quiet = 0;                     // ms
  int rank_count = 0;
  std::vector<Row> rows;                       // by rank; of many those that explain it
  std::vector<Stalled> stalled;

  std::string encode() const;
  static std::optional<HangReport> decode(const std::string& bytes);
  using Describe = std::function<std::string(int world_rank)>;
  std::string text(const Describe& describe) const;      // several lines
  std::string json(const Describe& describe) const;      // one object
};

// What is known of each rank of the communicator; null: it was asked and has not answered.
struct HangKnowledge {
  const Report* report = nullptr;
  int world_rank = 0;
  bool gone = false;
};
// `about` has communicator, sequence, collective, call, quiet and rank_count.
HangReport explain_hang(HangReport about, const std::map<int, HangKnowledge>& ranks);

}  // namespace tutti::comm
