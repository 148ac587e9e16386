#pragma once
// UnpackedArchive: a tar archive in a folder of its own, which goes with the object. Nothing of it lands or points
// outside of the folder.
#include <tutti/status.h>
#include <string>
#include <utility>

namespace tutti::topology {

class UnpackedArchive {
 public:
  // invalid_argument: not a tar archive, larger than a snapshot can be, or with names, links or devices that no
  // snapshot has.
  static Result<UnpackedArchive> unpack(const std::string& file);
  UnpackedArchive(UnpackedArchive&& other) noexcept : folder_(std::exchange(other.folder_, "")) {}
  UnpackedArchive& operator=(UnpackedArchive&& other) noexcept {
    std::swap(folder_, other.folder_);
    return *this;
  }
  ~UnpackedArchive();
  const std::string& folder() const { return folder_; }

 private:
  explicit UnpackedArchive(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace tutti::topology
