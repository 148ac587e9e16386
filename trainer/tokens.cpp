#include "trainer/tokens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "trainer/safetensors.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kHeader = 256 * sizeof(std::int32_t);
// Magic number, version, bytes of a token.
struct Format {
  std::int32_t magic, version;
  std::size_t width;
};
constexpr std::array<Format, 2> kFormats = {{{20240520, 1, 2}, {20240801, 7, 4}}};

Status wrong(const std::string& path, const std::string& what) {
  return Status(Code::invalid_argument, fmt::format("data file {}: {}", path, what));
}

}  // namespace

Tokens Tokens::of_text(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  Tokens t;
  t.name_ = "the generated text";
  t.data_ = reinterpret_cast<const unsigned char*>(owner->data());
  t.count_ = owner->size();
  t.owner_ = std::move(owner);
  return t;
}

Tokens Tokens::of_tokens(std::string name, const std::vector<Token>& tokens) {
  auto owner = std::make_shared<const std::vector<Token>>(tokens);
  Tokens t;
  t.name_ = std::move(name);
  t.data_ = reinterpret_cast<const unsigned char*>(owner->data());
  t.count_ = owner->size();
  t.width_ = sizeof(Token);
  t.owner_ = std::move(owner);
  return t;
}

Status write_tokens(const std::string& path, const std::vector<Token>& tokens, std::size_t vocabulary) {
  if (tokens.size() > 0x7fffffff) return wrong(path, fmt::format("its format holds at most {} tokens, these are {}", 0x7fffffff, tokens.size()));
  const Format& format = kFormats[vocabulary <= 1u << 16 ? 0 : 1];
  std::string bytes(kHeader + tokens.size() * format.width, '\0');
  const std::array<std::int32_t, 3> header = {format.magic, format.version, std::int32_t(tokens.size())};
  std::memcpy(bytes.data(), header.data(), sizeof(header));
  for (std::size_t i = 0; i < tokens.size(); ++i) {      // the lower bytes come first
    std::memcpy(bytes.data() + kHeader + i * format.width, &tokens[i], format.width);
  }
  const std::filesystem::path file(path);
  return write_text(file.has_parent_path() ? file.parent_path().string() : ".", file.filename().string(), bytes).status();
}

Result<Tokens> Tokens::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return wrong(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat info {};
  const bool known = fstat(file, &info) == 0;
  const auto size = std::size_t(info.st_size);
  void* place = known && S_ISREG(info.st_mode) && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0) : nullptr;
  close(file);
  if (!known || !S_ISREG(info.st_mode)) return wrong(path, "is not a file");
  if (size == 0) return wrong(path, "is empty: give a text or a token file of llm.c");
  if (place == MAP_FAILED) return wrong(path, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  Tokens t;
  t.name_ = path;
  t.owner_ = std::shared_ptr<const void>(place, [size](const void* at) { munmap(const_cast<void*>(at), size); });
  t.data_ = static_cast<const unsigned char*>(place);
  t.count_ = size;
  std::array<std::int32_t, 3> header{};
  if (size >= kHeader) std::memcpy(header.data(), t.data_, sizeof(header));
  for (const Format& format : kFormats) {
    if (header[0] != format.magic) continue;
    if (header[1] != format.version) return wrong(path, fmt::format("token file of version {}, not {}", header[1], format.version));
    t.width_ = format.width;
    t.count_ = std::size_t(std::max(header[2], 0));
    if (kHeader + t.count_ * t.width_ > size) {
      return wrong(path, fmt::format("says {} tokens but holds {}: is it torn?", t.count_, (size - kHeader) / t.width_));
    }
    t.data_ += kHeader;
    if (t.count_ == 0) return wrong(path, "has no tokens");
  }
  return t;
}

Token Tokens::at(std::size_t i) const {
  const unsigned char* p = data_ + i * width_;
  if (width_ == 1) return *p;
  std::uint16_t narrow = 0;
  std::uint32_t wide = 0;
  if (width_ == 2) return std::memcpy(&narrow, p, 2), Token(narrow);
  return std::memcpy(&wide, p, 4), Token(wide);
}

Token Tokens::largest() const {
  Token top = 0;
  for (std::size_t i = 0; i < count_; ++i) top = std::max(top, at(i));
  return top;
}

}  // namespace tutti::trainer
