#include "trainer/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tutti::trainer {
namespace {

using nlohmann::json;

Status wrong(const std::string& path, const std::string& what) { return Status(Code::invalid_argument, fmt::format("{}: {}", path, what)); }
Status failed(const std::string& path, const char* call) { return wrong(path, fmt::format("{}: {}", call, std::strerror(errno))); }

// A file being written: hashed on the way, and gone unless it was ended.
class Output {
 public:
  Output(const std::string& folder, const std::string& name) : folder_(folder), name_(name), path_(folder + "/" + name), partial_(path_ + ".partial") {
    file_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0) status_ = failed(partial_, "open");
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (file_ < 0) return;
    close(file_);
    unlink(partial_.c_str());
  }
  void add(const void* data, std::size_t bytes) {
    hash_.add(data, bytes);
    written_.bytes += bytes;
    for (const char* at = static_cast<const char*>(data); status_ && bytes > 0;) {
      const ssize_t n = write(file_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) status_ = failed(partial_, "write");
      else at += n, bytes -= std::size_t(n);
    }
  }
  Result<WrittenFile> end() {
    if (status_ && fsync(file_) != 0) status_ = failed(partial_, "fsync");
    if (!status_) return status_;
    if (rename(partial_.c_str(), path_.c_str()) != 0) return failed(path_, "rename");
    close(file_);
    file_ = -1;
    if (const int at = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); at >= 0) {
      fsync(at);      // the name too
      close(at);
    }
    written_.name = name_;
    written_.digest = hash_.end();
    return written_;
  }

 private:
  const std::string folder_, name_, path_, partial_;
  int file_ = -1;
  Status status_;
  Sha256 hash_;
  WrittenFile written_;
};

}  // namespace

Result<WrittenFile> write_safetensors(const std::string& folder, const std::string& name, const std::vector<NamedTensor>& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::vector<std::size_t> counts;
  std::size_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    std::size_t count = 1;
    for (const std::size_t side : tensor.shape) count *= side;
    const std::size_t bytes = count * sizeof(float);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    counts.push_back(count);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');      // the numbers begin aligned
  const std::uint64_t length = text.size();
  Output out(folder, name);
  out.add(&length, sizeof(length));
  out.add(text.data(), text.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) out.add(tensors[i].data, counts[i] * sizeof(float));
  return out.end();
}

Result<WrittenFile> write_text(const std::string& folder, const std::string& name, const std::string& text) {
  Output out(folder, name);
  out.add(text.data(), text.size());
  return out.end();
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed(path, "open");
  struct stat info {};
  const bool known = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  const auto size = std::size_t(info.st_size);
  void* place = known && size >= 8 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (place == MAP_FAILED) return wrong(path, "is no safetensors file, or torn");
  Safetensors s;
  s.owner_ = std::shared_ptr<const void>(place, [size](const void* at) { munmap(const_cast<void*>(at), size); });
  const char* bytes = static_cast<const char*>(place);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof(length));
  if (length > size - 8) return wrong(path, "its header is longer than the file: is it torn?");
  const json header = json::parse(bytes + 8, bytes + 8 + length, nullptr, false);
  if (!header.is_object()) return wrong(path, "its header is not JSON");
  const std::size_t room = size - 8 - length;
  try {
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      if (entry.at("dtype") != "F32") return wrong(path, fmt::format("tensor {} is {}; F32 is wanted", name, entry.at("dtype").dump()));
      const auto shape = entry.at("shape").get<std::vector<std::size_t>>();
      const auto place_of = entry.at("data_offsets").get<std::array<std::size_t, 2>>();
      std::size_t count = 1;
      for (const std::size_t side : shape) count *= side;
      if (place_of[0] > place_of[1] || place_of[1] > room || place_of[1] - place_of[0] != count * sizeof(float) || (8 + length + place_of[0]) % 4) {
        return wrong(path, fmt::format("tensor {} does not lie within the file: is it torn?", name));
      }
      s.tensors_[name] = {shape, reinterpret_cast<const float*>(bytes + 8 + length + place_of[0]), count};
    }
  } catch (const json::exception& error) {
    return wrong(path, fmt::format("its header is damaged: {}", error.what()));
  }
  return s;
}

Result<Digest> digest_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return wrong(path, std::strerror(errno));
  Sha256 hash;
  std::vector<char> piece(1 << 20);
  while (file.read(piece.data(), std::streamsize(piece.size())) || file.gcount() > 0) hash.add(piece.data(), std::size_t(file.gcount()));
  return hash.end();
}

}  // namespace tutti::trainer
