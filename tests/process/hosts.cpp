#include "tests/process/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace tutti::test {

std::string lacks_hosts() {
  if (::geteuid() != 0) return "network namespaces need root";
  if (std::system("command -v ip >/dev/null") != 0) return "no ip command (package iproute2)";
  int error = 0;
  std::thread([&] { error = ::unshare(CLONE_NEWNET) == 0 ? 0 : errno; }).join();
  return error ? std::string("unshare(CLONE_NEWNET): ") + std::strerror(error) : "";
}

Host::Host() {
  std::thread([this] {
    if (::unshare(CLONE_NEWNET) == 0) namespace_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  }).join();
  if (namespace_ < 0) throw std::runtime_error("no network namespace");
  shell("ip link set lo up");
}

Host::~Host() {
  if (namespace_ >= 0) ::close(namespace_);
}

void Host::enter() const {
  if (::setns(namespace_, CLONE_NEWNET) != 0) throw std::runtime_error("setns");
}

void Host::shell(const std::string& commands) const {
  int status = 0;
  std::thread([&] {
    enter();
    status = std::system(("set -e\n" + commands).c_str());
  }).join();
  if (status != 0) throw std::runtime_error("failed: " + commands);
}

void Host::connect(const Host& other) const { shell("ip link add v0 type veth peer name v1 netns " + other.path()); }

std::string Host::path() const { return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(namespace_); }

}  // namespace tutti::test
