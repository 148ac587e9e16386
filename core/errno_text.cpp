#include "core/errno_text.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace tutti {
namespace {

const char* usual_cause(int error) {
  switch (error) {
    case ECONNREFUSED: return "nothing listens there";
    case ECONNRESET: return "the process at the other end has died or dropped us";
    case EPIPE: return "the other end has closed";
    case ETIMEDOUT: return "no answer: wrong address, or a firewall in between";
    case EHOSTUNREACH: return "the host is down, or a firewall in between";
    case ENETUNREACH: return "this host has no route there";
    case EADDRNOTAVAIL: return "not an address of this host";
    case EMFILE: return "this process is out of descriptors: raise `ulimit -n`";
    case ENFILE: return "the whole system is out of descriptors";
    case ENOMEM:
    case ENOBUFS: return "the kernel is out of memory for it";
    case EACCES:
    case EPERM: return "not permitted to this user, or by a firewall";
    default: return nullptr;
  }
}

}  // namespace

std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a') text[0] = char(text[0] | 0x20);
  if (const char* cause = usual_cause(error)) text += std::string(" (") + cause + ")";
  return text;
}

}  // namespace tutti
