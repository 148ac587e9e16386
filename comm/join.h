#pragma once
// Join: how a rank's first communicator comes to be: settings, meeting the others, engine, member of the world.
#include <memory>
#include <string>
#include <tutti/communicator.h>

namespace tutti::comm {

class Member;

Result<std::shared_ptr<Member>> join_from_environment(const Options& options);
Result<std::shared_ptr<Member>> join_at(int rank, int rank_count, const std::string& address, const Options& options);
Result<std::shared_ptr<Member>> join_by_id(int rank, int rank_count, const UniqueId& id, const Options& options);
Result<UniqueId> make_unique_id();

}  // namespace tutti::comm
