// fork, exec and what has to happen between them, see child.h.
#include "tools/child.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::tools {
namespace {

struct Pipe {
  Descriptor read, write;
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
    return true;
  }
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

// CPUs that are gone by now are left out by the kernel; where none is left we stay as we are.
void run_on(const topology::CpuSet& cpus) {
  cpu_set_t* const set = CPU_ALLOC(topology::kMaxCpu);
  if (!set) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(topology::kMaxCpu);
  CPU_ZERO_S(bytes, set);
  for (const auto& [first, last] : cpus.ranges())
    for (int cpu = first; cpu <= last; ++cpu) CPU_SET_S(std::size_t(cpu), bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

// In the child. Only returns when exec failed, with errno.
void become(const Command& command, char* const* arguments, char* const* environment, pid_t parent, const Pipe& in,
            const Pipe& out, const Pipe& err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);      // it died before the line above
  int input = -1;
  if (command.input == Input::control) input = in.read.get();
  if (command.input == Input::none) input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input >= 0) dup2(input, STDIN_FILENO);
  dup2(out.write.get(), STDOUT_FILENO);
  dup2(err.write.get(), STDERR_FILENO);
  if (!command.cpus.empty()) run_on(command.cpus);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(command.arguments[0].c_str(), arguments, environment);
}

bool is_directory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

void Descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int Descriptor::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void Child::signal(int number, bool group) const {
  if (!alive) return;
  if (!group || kill(-pid, number) != 0) kill(pid, number);
}

Result<Child> start(const Command& command) {
  Pipe in, out, err, failure;      // all close on exec
  if (!out.open() || !err.open() || !failure.open() || (command.input == Input::control && !in.open())) {
    return Status(Code::out_of_resources,
                  fmt::format("cannot make pipes for {}: {}", command.label, std::strerror(errno)));
  }
  const auto arguments = pointers(command.arguments), environment = pointers(command.environment);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) {
    return Status(Code::out_of_resources,
                  fmt::format("cannot start {}: fork: {}", command.label, std::strerror(errno)));
  }
  if (pid == 0) {
    become(command, arguments.data(), environment.data(), parent, in, out, err);
    const int why = errno;
    _exit(::write(failure.write.get(), &why, sizeof why) == sizeof why ? 127 : 126);
  }
  setpgid(pid, pid);                        // here too: a signal to the group must not come before the group
  Child child;
  child.label = command.label;
  child.pid = pid;
  child.alive = true;
  child.exec_failure = std::move(failure.read);
  child.out = std::move(out.read);
  child.err = std::move(err.read);
  child.control = std::move(in.write);
  return child;
}

Status confirm(Child& child, const Command& command) {
  int why = 0;
  const bool failed = read(child.exec_failure.get(), &why, sizeof why) == sizeof why;
  child.exec_failure.close();
  if (!failed) return {};
  return Status(Code::invalid_argument,
                fmt::format("cannot execute {} for {}: {}", command.arguments[0], command.label, std::strerror(why)));
}

int find_program(const std::string& name, const std::string& search_path, std::string& why) {
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.push_back(name);
  } else {
    std::istringstream folders(search_path);
    for (std::string folder; std::getline(folders, folder, ':');)
      candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
  }
  std::string present;
  for (const std::string& path : candidates) {
    if (is_directory(path)) continue;
    if (access(path.c_str(), X_OK) == 0) return 0;
    if (access(path.c_str(), F_OK) == 0) present = path;
  }
  if (!present.empty()) {
    const bool python = present.size() > 3 && present.ends_with(".py");
    why = fmt::format("{} is not executable{}", present,
                      python ? "; a Python script is started as: python3 " + present : "");
    return 126;
  }
  const bool here = name.find('/') == std::string::npos && access(name.c_str(), X_OK) == 0 && !is_directory(name);
  why = fmt::format("program not found: {}{}", name, here ? "; one of this folder is started as: ./" + name : "");
  return 127;
}

}  // namespace tutti::tools
