#include "core/port_holder.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

namespace tutti {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// Inodes of the sockets that listen on the port, from /proc/net/tcp and tcp6 (columns: local address, state, inode).
std::set<std::string> listening_inodes(int port) {
  std::set<std::string> out;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::vector<std::string> word(10);
      for (auto& w : word) words >> w;
      auto colon = word[1].rfind(':');
      constexpr const char* kListening = "0A";
      if (colon == std::string::npos || word[3] != kListening) continue;
      if (std::strtol(word[1].c_str() + colon + 1, nullptr, 16) == port) out.insert(word[9]);
    }
  }
  return out;
}

bool holds_one(const std::string& pid, const std::set<std::string>& inodes) {
  std::string path = "/proc/" + pid + "/fd";
  Folder folder(::opendir(path.c_str()), ::closedir);
  while (dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    char target[64];
    ssize_t bytes = ::readlink((path + "/" + entry->d_name).c_str(), target, sizeof target);
    if (bytes < 0) continue;
    std::string_view text(target, std::size_t(bytes));  // "socket:[12345]"
    constexpr std::string_view kStart = "socket:[";
    if (text.substr(0, kStart.size()) != kStart || text.back() != ']') continue;
    text.remove_prefix(kStart.size());
    text.remove_suffix(1);
    if (inodes.count(std::string(text))) return true;
  }
  return false;
}

}  // namespace

std::string port_holder(int port) {
  auto inodes = listening_inodes(port);
  if (inodes.empty()) return "";
  Folder processes(::opendir("/proc"), ::closedir);
  while (dirent* entry = processes ? ::readdir(processes.get()) : nullptr) {
    std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds_one(pid, inodes)) continue;
    std::string name;
    std::ifstream comm("/proc/" + pid + "/comm");
    std::getline(comm, name);
    return "pid " + pid + " (" + name + ")";
  }
  return "";
}

}  // namespace tutti
