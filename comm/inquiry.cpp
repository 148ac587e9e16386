#include "comm/inquiry.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "core/fork.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kMost = 1024;               // ranks of a process that hear; more are threads of a test

std::array<std::atomic<int>, kMost> g_ears;       // descriptor + 1; 0: free
std::atomic<int> g_ringing{0};                    // handlers at work
std::mutex g_mutex;                               // of what follows
std::size_t g_count = 0;
int g_signal = 0;                                 // whose handler is ours; 0: none

void ring(int) {
  const int error = errno;
  ++g_ringing;
  for (const auto& ear : g_ears) {
    const std::uint64_t one = 1;
    if (const int descriptor = ear - 1; descriptor >= 0) (void)!::write(descriptor, &one, sizeof one);
  }
  --g_ringing;
  errno = error;
}

bool is_ours(int signal) {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == ring;
}

void take(int signal) {
  struct sigaction now{}, ours{};
  if (::sigaction(signal, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) return;
  ours.sa_handler = ring;
  ours.sa_flags = SA_RESTART;
  if (::sigaction(signal, &ours, nullptr) == 0) g_signal = signal;
}

}  // namespace

Result<int> Inquiry::signal_from(const std::string& setting) {
  if (setting.empty() || setting == "USR1" || setting == "SIGUSR1") return SIGUSR1;
  if (setting == "USR2" || setting == "SIGUSR2") return SIGUSR2;
  if (setting == "0") return 0;
  return Status(Code::invalid_argument, fmt::format("TUTTI_REPORT_SIGNAL={}: want USR1, USR2, or 0 for none", setting));
}

Inquiry::Inquiry(Loop& loop, const std::string& setting, std::function<void()> asked) {
  const auto signal = signal_from(setting);
  if (!signal.ok() || *signal == 0 || loop.doorbell_descriptor() < 0) return;
  descriptor_ = kept_from_children([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (descriptor_ < 0) return;
  const std::lock_guard held(g_mutex);
  while (slot_ < kMost && g_ears[slot_] != 0) ++slot_;
  if (slot_ == kMost) return;
  watch_ = loop.watch(descriptor_, [descriptor = descriptor_, asked = std::move(asked)] {
    std::uint64_t times = 0;
    if (::read(descriptor, &times, sizeof times) == ssize_t(sizeof times)) asked();
  });
  g_ears[slot_] = descriptor_ + 1;
  if (++g_count == 1) take(*signal);
}

Inquiry::~Inquiry() {
  if (descriptor_ >= 0 && slot_ < kMost && g_ears[slot_] == descriptor_ + 1) {
    const std::lock_guard held(g_mutex);
    g_ears[slot_] = 0;
    if (--g_count == 0 && g_signal != 0) {
      if (is_ours(g_signal)) std::signal(g_signal, SIG_DFL);
      g_signal = 0;
    }
    while (g_ringing != 0) continue;      // a handler of another thread, for a few system calls
  }
  watch_.reset();
  if (descriptor_ >= 0) close_kept(descriptor_);
}

}  // namespace tutti::comm
