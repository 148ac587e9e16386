#include "python/csrc/meeting.h"

#include <algorithm>
#include <array>
#include <string>

#include "python/csrc/failure.h"

namespace tutti_torch {
namespace {

const std::string kCome = "tutti/come", kAll = "tutti/all", kId = "tutti/id";

std::string came(int rank) { return "tutti/rank" + std::to_string(rank); }

std::string absent(c10d::Store& store, int rank_count) {
  std::string who;
  for (int rank = 0; rank < rank_count; ++rank)
    if (!store.check({came(rank)})) who += (who.empty() ? "" : ", ") + std::to_string(rank);
  return who.empty() ? "rank 0's process to answer" : "ranks that have not come: " + who;
}

// The value of `key`, once it is there.
std::vector<std::uint8_t> await(c10d::Store& store, const std::string& key, int rank_count, std::chrono::milliseconds limit) {
  try {
    store.wait({key}, limit);
  } catch (const std::exception& error) {
    throw Failure(tutti::Status(tutti::Code::timeout, "forming a process group of " + std::to_string(rank_count) + ": waited " + std::to_string(limit.count()) +
                                                          " ms for " + absent(store, rank_count) + " (" + c10::str(error.what()).substr(0, 120) + ")"));
  }
  return store.get(key);
}

tutti::Communicator taken(tutti::Result<tutti::Communicator> made) {
  check(made.status());
  return std::move(*made);
}

}  // namespace

tutti::Communicator meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int rank_count, std::chrono::milliseconds limit) {
  tutti::Options options;
  options.timeout = limit;
  if (rank_count == 1) return taken(tutti::Communicator::create(0, 1, "127.0.0.1:0", options));      // nobody to meet there
  store->set(came(rank), std::vector<std::uint8_t>{1});
  if (store->add(kCome, 1) == rank_count) store->set(kAll, std::vector<std::uint8_t>{1});
  if (rank == 0) {
    await(*store, kAll, rank_count, limit);
    const auto made = tutti::Communicator::make_unique_id();
    check(made.status());
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(made->bytes.data());
    store->set(kId, std::vector<std::uint8_t>(bytes, bytes + made->bytes.size()));
    return taken(tutti::Communicator::create(rank, rank_count, *made, options));
  }
  tutti::UniqueId id;
  const auto bytes = await(*store, kId, rank_count, limit);
  if (bytes.size() != id.bytes.size()) refuse("the store holds " + std::to_string(bytes.size()) + " bytes as " + kId + "; wanted " + std::to_string(id.bytes.size()));
  std::transform(bytes.begin(), bytes.end(), id.bytes.begin(), [](std::uint8_t b) { return std::byte(b); });
  return taken(tutti::Communicator::create(rank, rank_count, id, options));
}

World::World(std::chrono::milliseconds limit) : communicator_([&] {
  tutti::Options options;
  options.timeout = limit;
  return taken(tutti::Communicator::from_environment(options));
}()) {}

std::string World::share(const std::string& text) {
  if (text.size() > kLongest) refuse("a text of " + std::to_string(text.size()) + " bytes to share; wanted at most " + std::to_string(kLongest));
  std::array<char, kLongest + 1> bytes{};
  std::copy(text.begin(), text.end(), bytes.begin());
  check(communicator_.broadcast({bytes.data(), bytes.data(), bytes.size(), tutti::DataType::u8, 0}).wait());
  check(communicator_.barrier().wait());
  return bytes.data();
}

}  // namespace tutti_torch
