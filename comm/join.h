#pragma once
// Join: how a rank's first communicator comes to be: settings, meeting the others, engine, member of the world.
#include <memory>
#include <string>
#include <tutti/communicator.h>

#include "comm/profile.h"
#include "core/config.h"
#include "core/net.h"

namespace tutti::comm {

class Member;
class World;

// The member of the world on an engine of its own. `profile`: of this machine, for what all ranks have of it. No world:
// the only rank. Not threaded: somebody calls Engine::drive(). invalid_argument: rules that cannot be parsed.
Result<std::shared_ptr<Member>> make_member(std::unique_ptr<Loop> loop, std::unique_ptr<World> world,
                                            const Settings& settings, bool threaded = true,
                                            const Profile& profile = {});

Result<std::shared_ptr<Member>> join_from_environment(const Options& options);
Result<std::shared_ptr<Member>> join_at(int rank, int rank_count, const std::string& address, const Options& options);
Result<std::shared_ptr<Member>> join_by_id(int rank, int rank_count, const UniqueId& id, const Options& options);
Result<UniqueId> make_unique_id();

}  // namespace tutti::comm
