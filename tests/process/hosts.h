#pragma once
// Hosts: network namespaces with cables between them, which threads of this process enter. Shared memory does not pass
// between them, nor do abstract sockets. Needs root.
#include <string>

namespace tutti::test {

// What this machine lacks for it; empty: nothing.
std::string lacks_hosts();

class Host {
 public:
  Host();
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  // The calling thread is on this host from now on, and those that it starts.
  void enter() const;
  // Commands for its shell. Throws where they fail.
  void shell(const std::string& commands) const;
  // From its card v0 to the other's v1, both without an address.
  void connect(const Host& other) const;

 private:
  std::string path() const;
  int namespace_ = -1;
};

}  // namespace tutti::test
