#include "comm/wire_bytes.h"

namespace tutti::comm {

// Not inline: GCC 12 sees overflows in the inlined growth of a vector that are not there.
ByteWriter& ByteWriter::raw(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

}  // namespace tutti::comm
