#pragma once
// The folder that recorders live in: which one, what lies in it, and who may go. A recorder's file is locked (flock) by
// its process; the kernel ends that with the process, so a file without a lock is a dead one's. Removes nothing but
// recorders of this user, by their names.
#include <string>
#include <tutti/status.h>
#include <vector>

namespace tutti::record {

inline constexpr int kKeptDays = 3;                // recorders of dead processes
inline constexpr std::size_t kMostDead = 128;      // the newest of them

// Places to try, best first: XDG_RUNTIME_DIR/tutti, /dev/shm/tutti-UID, /tmp/tutti-UID.
std::vector<std::string> default_folders();
// Makes it (mode 0700) where it is missing. out_of_resources: not a folder, not ours, or open to others (unless `own`:
// the user named it).
Status prepare_folder(const std::string& folder, bool own);

// "<job>-r<rank>-<pid>-<n>.rec": the n-th of that process with this rank.
std::string file_name(std::uint64_t job, int rank, int pid, int n);
bool is_file_name(const std::string& name);
int pid_of(const std::string& name);
std::string hang_report_path(const std::string& recorder);       // its neighbour
// Whole paths of the recorders in a folder, by name.
std::vector<std::string> recorders_in(const std::string& folder);
// Whether a process holds it.
bool is_held(const std::string& path);
void remove_recorder(const std::string& path);
// Removes those of dead processes that are older than kKeptDays, and the oldest beyond kMostDead.
void remove_stale(const std::string& folder);

}  // namespace tutti::record
