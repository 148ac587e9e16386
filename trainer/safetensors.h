#pragma once
// Files of named f32 tensors in Hugging Face's safetensors format: 8 bytes of length, a JSON header, the numbers.
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tutti/status.h>
#include <vector>

#include "trainer/sha256.h"

namespace tutti::trainer {

struct NamedTensor {
  std::string name;
  std::vector<std::size_t> shape;
  const float* data;
};

struct WrittenFile {
  std::string name;                   // without its folder
  std::size_t bytes = 0;
  Digest digest{};
};

// Atomic: written under another name, synced, renamed. network or out_of_resources never; invalid_argument names file and errno.
Result<WrittenFile> write_safetensors(const std::string& folder, const std::string& name, const std::vector<NamedTensor>& tensors);
// The same for any text.
Result<WrittenFile> write_text(const std::string& folder, const std::string& name, const std::string& text);

// A mapped file.
class Safetensors {
 public:
  // invalid_argument: missing, torn, or with tensors that are not f32.
  static Result<Safetensors> open(const std::string& path);
  struct Entry {
    std::vector<std::size_t> shape;
    const float* data;                // valid while this lives
    std::size_t count;
  };
  const std::map<std::string, Entry>& tensors() const { return tensors_; }

 private:
  std::shared_ptr<const void> owner_;
  std::map<std::string, Entry> tensors_;
};

// Of a whole file; invalid_argument where it cannot be read.
Result<Digest> digest_of_file(const std::string& path);

}  // namespace tutti::trainer
