#pragma once
// Layout: where the chunks of one operation lie, in bytes. The only place that knows how counts become chunks.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/program.h"

namespace tutti::comm {

// Blocks of elements in one buffer; without `counts`, all blocks have `each` elements, one behind another.
struct Blocks {
  std::uint64_t each = 0;
  std::vector<std::uint64_t> counts, offsets;   // elements; both or none
  std::uint64_t count(std::uint64_t block) const { return counts.empty() ? each : counts[block]; }
  std::uint64_t offset(std::uint64_t block) const { return counts.empty() ? block * each : offsets[block]; }
};

struct Extent {
  std::uint64_t offset = 0, bytes = 0;
};

class Layout {
 public:
  // all_reduce, reduce, broadcast: `vector` elements are cut into the program's chunks. Others: `in` are the blocks of
  // a full input, `out` of a full output (for all_gather and gather `in` is ignored and so on).
  void bind(const Program& program, std::size_t element_bytes, std::uint64_t vector, const Blocks& in,
            const Blocks& out);
  Extent extent(const algorithms::Chunks& chunks) const;
  std::uint64_t scratch_bytes() const { return scratch_offset_.empty() ? 0 : scratch_offset_.back(); }

 private:
  Extent in_vector(std::uint64_t first, std::uint64_t count) const;
  Extent in_blocks(const Blocks& blocks, std::uint64_t first, std::uint64_t count) const;
  std::uint64_t shape_bytes(std::uint32_t shape) const;
  bool cuts_vector() const;
  bool full_input() const;
  bool full_output() const;

  const Program* program_ = nullptr;
  std::uint64_t element_ = 1, vector_ = 0, chunk_ = 0;
  Blocks in_, out_;
  std::vector<std::uint64_t> scratch_offset_;   // one more than chunks
};

}  // namespace tutti::comm
