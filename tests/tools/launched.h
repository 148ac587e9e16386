#pragma once
// A running `tutti` for tests: its output, its end, and a witness that tells when the last process of the job is gone.
// It is no launcher: one process, two pipes.
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace tutti::tools {

struct LaunchSetup {
  std::vector<std::pair<std::string, std::string>> environment;      // set, or unset where the value is empty
  std::string input;                                                 // for its standard input, which then ends
  std::string control_group;  // joined before the program starts: a cgroup's folder
};

class Launched {
 public:
  // `arguments` of build/bin/tutti. Names that launchers set are removed from the environment first.
  explicit Launched(const std::vector<std::string>& arguments, const LaunchSetup& setup = {});
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;
  ~Launched();                      // kills what is left of it

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Reads output until `text` has come `times` times (since the start). False:
  // it ended, or a time limit passed, before.
  bool says(const std::string& text, int times);
  void close_output();

  // Waits for the end of the launcher and reads all. 128 + signal when it was killed; -1: a time limit passed.
  int exit_status();
  // After exit_status(): whether all processes of the job are gone, which are given a time limit too. They all inherit
  // the write end of a pipe, so its end of file is proof.
  bool nothing_left();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  std::vector<std::string> out_lines() const;
  std::string last_error_line() const;

 private:
  bool read_some(int milliseconds);      // false: both streams have ended, or nothing came
  pid_t pid_ = -1;
  int out_fd_ = -1, err_fd_ = -1, witness_ = -1, status_ = -1;
  bool ended_ = false;
  std::string out_, err_;
};

}  // namespace tutti::tools
