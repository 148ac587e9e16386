// The file: what is written is what is read, around the ring's end, in the
// middle of a store, and when it is none at all.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "tests/record/recordings.h"
#include "transport/sim/dice.h"

namespace tutti::record {
namespace {

using testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

const Identity kRank1{.job = 0xabcdef, .rank = 1, .rank_count = 4, .host_identity = 9, .host = "h1"};

TEST(Recorder, WhatIsWrittenIsRead) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  const std::uint32_t number = tape.recorder->started(3, 41, 0x1234, 4096, kNobody, tape.ticks(1000));
  tape.recorder->arrived(number, 2, tape.ticks(1000 + 64 * 2 * 5));
  tape.recorder->arrived(number, 3, tape.ticks(1000 + 64 * 2 * 9));
  tape.recorder->ended(number, 0, 777, tape.ticks(6000));
  tape.recorder->event({0, std::uint16_t(EventKind::connected), 2, tape.ticks(50), 3, 0, 1, 2, 3, 4, 5});
  tape.recorder->peer(2)->waits = 7;
  tape.recorder->verdict(3, Status(Code::timeout, "rank 2 is late\n", 2), tape.ticks(9000));
  tape.recorder->verdict(3, Status(Code::internal, "a later one", 0), tape.ticks(9500));
  tape.beat(1'000'000);
  const Recording r = tape.read();
  EXPECT_EQ(r.job, 0xabcdefu);
  EXPECT_EQ(r.rank, 1);
  EXPECT_EQ(r.rank_count, 4);
  EXPECT_EQ(r.host, "h1");
  EXPECT_EQ(r.end, End::running);
  EXPECT_EQ(r.begun, kBegin);
  EXPECT_EQ(r.last_beat, kBegin + 1'000'000);
  ASSERT_EQ(r.operations.size(), 1u);
  const Operation& o = r.operations[0];
  EXPECT_EQ(o.communicator, 3u);
  EXPECT_EQ(o.sequence, 41u);
  EXPECT_EQ(o.call, 0x1234u);
  EXPECT_EQ(o.started, kBegin + 1000);
  EXPECT_EQ(o.ended, kBegin + 6000);
  EXPECT_EQ(o.first_after, 64 * 2 * 5);
  EXPECT_EQ(o.last_after, 64 * 2 * 9);
  EXPECT_EQ(o.last_peer, 3);
  EXPECT_EQ(o.moved, 777u);
  EXPECT_EQ(o.total, 4096u);
  ASSERT_EQ(r.events.size(), 1u);
  EXPECT_EQ(r.events[0].kind, EventKind::connected);
  EXPECT_EQ(r.events[0].e, 5u);
  ASSERT_EQ(r.peers.size(), 1u);
  EXPECT_EQ(r.peers[0].rank, 2);
  ASSERT_EQ(r.verdict.size(), 1u);
  EXPECT_EQ(r.verdict[0].status, Status(Code::timeout, "rank 2 is late?", 2)) << "the first one, fit to be printed";
}

TEST(Recorder, TheRingKeepsTheNewest) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  constexpr std::uint32_t kCount = kOperations * 2 + 17;
  for (std::uint32_t i = 0; i < kCount; ++i)
    tape.recorder->ended(tape.start(i, i * 100), 0, i, tape.ticks(i * 100 + 50));
  tape.beat(kCount * 100);
  const Recording r = tape.read();
  ASSERT_EQ(r.operations.size(), kOperations);
  EXPECT_EQ(r.torn, 0u);
  for (std::uint32_t i = 0; i < kOperations; ++i) {
    EXPECT_EQ(r.operations[i].sequence, kCount - kOperations + i);
    EXPECT_EQ(r.operations[i].moved, r.operations[i].sequence);
  }
  // What ends after its place was taken by another is nobody's.
  tape.recorder->ended(1, 9, 999999, tape.ticks(1));
  tape.recorder->arrived(1, 3, tape.ticks(1));
  for (const Operation& o : tape.read().operations) EXPECT_NE(o.moved, 999999u);
}

// Small operations that are over within their calls share an entry, and are told of one by one.
TEST(Recorder, ARunOfEqualOperationsSharesAnEntry) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  Recorder& recorder = *tape.recorder;
  constexpr std::uint64_t kCall = 0x1234;
  EXPECT_FALSE(recorder.another(3, 10, kCall)) << "none began";
  recorder.begin_run(3, 10, kCall, 8, 24, tape.ticks(1000));
  recorder.over();
  for (std::uint32_t i = 11; i < 14; ++i) {
    ASSERT_TRUE(recorder.another(3, i, kCall));
    EXPECT_EQ(recorder.over(), i - 9);
  }
  recorder.over_at(tape.ticks(5000));
  EXPECT_FALSE(recorder.another(3, 15, kCall)) << "another number";
  EXPECT_FALSE(recorder.another(3, 14, kCall + 1)) << "another call";
  EXPECT_FALSE(recorder.another(2, 14, kCall)) << "another communicator";
  ASSERT_TRUE(recorder.another(3, 14, kCall));
  tape.beat(1'000'000);
  Recording r = tape.read();
  ASSERT_EQ(r.operations.size(), 5u);
  for (std::uint32_t i = 0; i < 5; ++i) {
    const Operation& o = r.operations[i];
    EXPECT_EQ(o.sequence, 10 + i);
    EXPECT_EQ(o.call, kCall);
    EXPECT_EQ(o.communicator, 3u);
    EXPECT_EQ(o.moved, 24u);
    EXPECT_TRUE(o.in_run);
    EXPECT_EQ(o.started, kBegin + 1000 + i * 1000);
    EXPECT_EQ(o.ended, i < 4 ? kBegin + 2000 + i * 1000 : 0) << "the last one is pending";
  }
  EXPECT_EQ(r.operations.back().total, 40u);

  recorder.had_not_begun();
  recorder.ended(recorder.started(3, 14, kCall, 8, kNobody, tape.ticks(6000)), 0, 24, tape.ticks(7000));
  EXPECT_FALSE(recorder.another(3, 15, kCall)) << "the run has ended";
  recorder.begin_run(3, 15, kCall, 8, 24, tape.ticks(8000));
  recorder.had_not_begun();
  recorder.started(3, 15, kCall, 8, kNobody, tape.ticks(9000));
  r = tape.read();
  ASSERT_EQ(r.operations.size(), 6u);
  EXPECT_EQ(r.torn, 0u);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(r.operations[i].sequence, 10 + i);
    EXPECT_EQ(r.operations[i].in_run, i < 4);
  }
  EXPECT_EQ(r.operations[4].ended, kBegin + 7000);
  EXPECT_EQ(r.operations[4].total, 40u);
  EXPECT_EQ(r.operations[5].total, 48u);
  EXPECT_EQ(r.operations[5].number, r.operations[4].number + 1) << "a run of none takes no entry";
}

TEST(Recorder, OfLongRunsTheNewestAreTold) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  std::uint32_t next = 0;
  const auto run = [&](std::uint32_t count) {
    tape.recorder->begin_run(0, next, 7, 8, 24, tape.ticks(next));
    ++next;
    tape.recorder->over();
    for (std::uint32_t i = 1; i < count; ++i) {
      tape.recorder->another(0, next++, 7);
      tape.recorder->over();
    }
  };
  run(100);
  run(3 * kMostOperations);
  run(20);
  const Recording r = tape.read();
  ASSERT_EQ(r.operations.size(), kMostOperations);
  EXPECT_EQ(r.operations.back().sequence, next - 1);
  EXPECT_EQ(r.operations.front().sequence, next - kMostOperations);
  EXPECT_EQ(r.operations.back().total, 8u * next);
}

// A writer that is killed between any two stores leaves at most one entry that cannot be read, and no wrong one.
TEST(Recorder, AnEntryThatWasTornIsLeftOut) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  for (std::uint32_t i = 0; i < kOperations + 5; ++i) tape.start(i, i * 100);
  tape.beat(1'000'000);
  auto bytes = bytes_of(tape.recorder->path());
  std::byte* entry = bytes.data() + kHeaderBytes + 8 * sizeof(OperationEntry);
  std::memset(entry, 0, 4);                         // the stamp is cleared first
  std::memset(entry + 16, 0x5a, 8);                 // and a part of the fields is new
  auto r = parse(bytes);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->operations.size(), kOperations - 1);
  EXPECT_EQ(r->torn, 1u);
  for (const Operation& o : r->operations) EXPECT_EQ(o.call, 0u);
  const std::uint32_t elsewhere = 9;                // a stamp that does not belong to this place
  std::memcpy(entry, &elsewhere, 4);
  r = parse(bytes);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->torn, 1u);
}

TEST(Recorder, WhatIsNoRecordersFileIsRefused) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  for (std::uint32_t i = 0; i < 40; ++i) tape.start(i, i * 100);
  tape.beat(5000);
  const auto good = bytes_of(tape.recorder->path());
  ASSERT_TRUE(parse(good).ok());
  for (std::size_t cut = 0; cut < good.size(); cut += cut < kHeaderBytes ? 61 : 4099)
    EXPECT_EQ(parse(std::span(good).first(cut)).status().code(), Code::invalid_argument) << cut;
  auto wrong = good;
  wrong[0] = std::byte{'x'};
  EXPECT_THAT(parse(wrong).status().text(), HasSubstr("begins with something else"));
  wrong = good;
  wrong[8] = std::byte{99};
  EXPECT_THAT(parse(wrong).status().text(), HasSubstr("format 99"));
  EXPECT_FALSE(read_recording(folder.path).ok());
  EXPECT_FALSE(read_recording(folder.path + "/nothing").ok());
  EXPECT_FALSE(read_recording("/dev/null").ok());
}

// Anything may be in it: it is read or refused, and its texts can be printed.
TEST(Recorder, HostileBytesDoNoHarm) {
  Folder folder;
  Taped tape(folder.path, kRank1);
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < kOperations + 5; ++i) {
    if (i % 2 == 0) tape.start(next++, i * 100);
    else tape.recorder->begin_run(0, next++, 7, 8, 24, tape.ticks(i * 100));
    if (i % 2 == 0) continue;
    tape.recorder->over();
    if (i % 4 == 1 && tape.recorder->another(0, next, 7)) ++next;
    tape.recorder->over_at(tape.ticks(i * 100 + 50));
  }
  tape.recorder->verdict(0, Status(Code::timeout, "late", 2), tape.ticks(1));
  tape.beat(5000);
  const auto good = bytes_of(tape.recorder->path());
  sim::Dice dice(20261130);
  for (int round = 0; round < 300; ++round) {
    auto bytes = good;
    const std::size_t begin = dice.chance(0.7) ? dice.below(sizeof(Header)) : dice.below(bytes.size());
    for (std::size_t i = begin; i < bytes.size() && i < begin + 1 + dice.below(200); ++i)
      bytes[i] = std::byte(dice.next());
    // And counts, and moments, of runs that make no sense.
    const std::size_t entry = kHeaderBytes + dice.below(kOperations) * sizeof(OperationEntry);
    for (const std::size_t field : {offsetof(OperationEntry, first_after), offsetof(OperationEntry, last_after), offsetof(OperationEntry, ended), offsetof(OperationEntry, ended) + 4})
      if (dice.chance(0.5)) std::memset(bytes.data() + entry + field, dice.chance(0.5) ? 0xff : 0, 4);
    const auto r = parse(bytes);
    if (!r) continue;
    EXPECT_LE(r->operations.size(), kMostOperations);
    EXPECT_EQ(printable(r->host), r->host);
    for (const auto& o : r->operations) EXPECT_TRUE(o.ended == 0 || o.ended >= o.started);
  }
}

TEST(Recorder, TextsAreMadeFitToPrint) {
  EXPECT_EQ(printable("a\033[2Jb\n"), "a?[2Jb?");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("\xc3"), "?");
  EXPECT_EQ(printable("\xff\xc3("), "?" "?(");
}

TEST(Folder, NamesAreTold) {
  const std::string name = file_name(0xfeed, 12, 4711, 3);
  EXPECT_TRUE(is_file_name(name)) << name;
  EXPECT_EQ(pid_of(name), 4711);
  for (const char* other : {"notes.rec", "000000000000feed-r1-2.rec", "000000000000feed-r1-2-3.txt",
                            "000000000000feed-rx-2-3.rec", "../000000000000feed-r1-2-3.rec"})
    EXPECT_FALSE(is_file_name(other)) << other;
}

TEST(Folder, IsTheUsersAlone) {
  Folder folder;
  const std::string open = folder.path + "/open", link = folder.path + "/link", fresh = folder.path + "/fresh";
  ::mkdir(open.c_str(), 0755);
  EXPECT_FALSE(prepare_folder(open, false).ok()) << "others may read it";
  EXPECT_TRUE(prepare_folder(open, true).ok()) << "but the user has named it";
  EXPECT_TRUE(prepare_folder(fresh, false).ok());
  struct stat found {};
  ::stat(fresh.c_str(), &found);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  std::filesystem::create_directory_symlink(fresh, link);
  EXPECT_FALSE(prepare_folder(link, false).ok()) << "somebody else may have laid it";
  EXPECT_FALSE(prepare_folder("/dev/null", true).ok());
  EXPECT_FALSE(prepare_folder(folder.path + "/no/such", true).ok());
}

TEST(Folder, ALivingRecorderIsHeldAndADeadOneGoesInTime) {
  Folder folder;
  Identity identity = kRank1;
  Taped alive(folder.path, identity);
  EXPECT_TRUE(is_held(alive.recorder->path()));
  std::vector<std::string> dead;
  for (int i = 0; i < 3; ++i) {
    Taped tape(folder.path, identity);
    dead.push_back(tape.recorder->path());
  }
  const std::string foreign = folder.path + "/notes.rec";
  std::ofstream(foreign) << "mine";
  EXPECT_FALSE(is_held(dead[0]));
  const timespec old[2] = {{1, 0}, {1, 0}};       // 1970
  for (const std::string& path : {dead[1], alive.recorder->path(), foreign})
    ::utimensat(AT_FDCWD, path.c_str(), old, 0);
  std::ofstream(hang_report_path(dead[1])) << "{}";
  remove_stale(folder.path);
  EXPECT_TRUE(std::filesystem::exists(alive.recorder->path())) << "it is in use";
  EXPECT_TRUE(std::filesystem::exists(dead[0])) << "it is young";
  EXPECT_FALSE(std::filesystem::exists(dead[1]));
  EXPECT_FALSE(std::filesystem::exists(hang_report_path(dead[1])));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST(Folder, KeepsABoundedNumberOfTheDead) {
  Folder folder;
  for (std::size_t i = 0; i < kMostDead + 9; ++i) Taped(folder.path, kRank1);
  remove_stale(folder.path);
  EXPECT_EQ(recorders_in(folder.path).size(), kMostDead);
}

// The limit on the size of files stands for a file system that is full: the space
// is asked for at once, not found missing later.
TEST(Recorder, NoRoomIsAStatusAndLeavesNothing) {
  Folder folder;
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{kHeaderBytes, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto made = Recorder::create(folder.path, kRank1, moment_of_this_host);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(made.status().code(), Code::out_of_resources) << made.status().to_string();
  EXPECT_THAT(made.status().text(), HasSubstr("posix_fallocate"));
  EXPECT_TRUE(recorders_in(folder.path).empty());
}

}  // namespace
}  // namespace tutti::record
