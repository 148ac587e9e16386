#pragma once
// Runs a command line in a shell and keeps what it printed; folders that go away with the test.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::trainer::test {

struct Outcome {
  int status = -1;
  std::string text;      // of both streams
  // What stands behind `word` to the end of its last line; "" when it does not occur.
  std::string last_after(const std::string& word) const {
    const std::size_t at = text.rfind(word);
    if (at == std::string::npos) return "";
    const std::size_t begin = at + word.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  bool says(const std::string& word) const { return text.find(word) != std::string::npos; }
};

inline Outcome shell(const std::string& line) {
  Outcome outcome;
  std::FILE* pipe = popen(fmt::format("({}) 2>&1", line).c_str(), "r");
  if (!pipe) return outcome;
  std::array<char, 4096> piece;
  for (std::size_t n; (n = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) outcome.text.append(piece.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// Debian's, where its packages are; else the first on the path.
inline std::string python() { return std::filesystem::exists("/usr/bin/python3") ? "/usr/bin/python3" : "python3"; }

// A folder from which Node finds a package: installed there once by npm, whoever else wants it at the same time. Empty where that cannot
// be done; `why` says what is missing then.
inline std::string folder_with_npm(const std::string& package, std::string& why) {
  const std::string folder = TUTTI_BINARY_DIR "/npm/" + package;
  if (shell("node --version && npm --version").status != 0) return why = "no Node.js with npm here", "";
  std::filesystem::create_directories(folder);
  const Outcome install = shell(fmt::format("cd {} && flock lock sh -c 'test -e whole || {{ ONNXRUNTIME_NODE_INSTALL=skip timeout 90 npm install"
                                            " --no-save --no-audit --no-fund {} && touch whole; }}'",
                                            folder, package));
  if (install.status != 0) return why = fmt::format("npm cannot install {}: {}", package, install.text), "";
  return folder;
}

inline std::string train_program() { return TUTTI_BINARY_DIR "/bin/train"; }
// One thread a rank, so that four ranks do not crowd two cores.
inline Outcome train(const std::string& flags) { return shell(fmt::format("TUTTI_PROBE=0 {} --threads 1 {}", train_program(), flags)); }
inline Outcome train_on(int ranks, const std::string& transport, const std::string& flags) {
  return shell(fmt::format("TUTTI_PROBE=0 TUTTI_TRANSPORT={} {}/bin/tutti run -n {} {} --threads 1 {}", transport, TUTTI_BINARY_DIR, ranks,
                           train_program(), flags));
}

// A model that trains in milliseconds.
inline const std::string kSmall = "--layers 2 --heads 2 --width 32 --context 16 --batch 2 --micro-batches 8 ";

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "trainer-test-XXXXXX").string();
    path_ = mkdtemp(name.data()) ? name : "";
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tutti::trainer::test
