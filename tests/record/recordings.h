#pragma once
// A folder of a test's own, and a recorder on a clock that the test moves: a tick is two nanoseconds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "record/folder.h"
#include "record/recorder.h"
#include "record/recording.h"

namespace tutti::record {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-record-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

inline constexpr std::int64_t kBegin = 1'000'000'000'000'000'000;   // ns since 1970
inline constexpr std::uint64_t kFirstTick = 5'000'000'000;

// Tests speak nanoseconds since the beginning.
class Taped {
 public:
  Taped(const std::string& folder, Identity identity, std::int64_t clock_error = 0) {
    identity.pid = identity.pid == 0 ? ::getpid() : identity.pid;
    auto made = Recorder::create(folder, identity, [this, clock_error] {
      return Moment{kFirstTick + std::uint64_t(now) / 2, 77 + now, kBegin + now + clock_error};
    });
    if (made) recorder = std::move(*made);
    else ADD_FAILURE() << made.status().to_string();
  }
  std::uint64_t ticks(std::int64_t ns) const { return kFirstTick + std::uint64_t(ns) / 2; }
  std::uint32_t start(std::uint32_t sequence, std::int64_t at, std::uint64_t call = 0, std::uint32_t communicator = 0) {
    return recorder->started(communicator, sequence, call, 100, kNobody, ticks(at));
  }
  void beat(std::int64_t at) {
    now = at;
    recorder->beat();
  }
  Recording read() const {
    auto recording = read_recording(recorder->path());
    if (!recording) ADD_FAILURE() << recording.status().to_string();
    return recording ? *recording : Recording{};
  }
  std::int64_t now = 0;
  std::unique_ptr<Recorder> recorder;
};

}  // namespace tutti::record
