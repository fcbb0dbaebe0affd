// A range of bytes, usually of an op's data.
#ifndef HVD_FT_BYTE_RANGE_H
#define HVD_FT_BYTE_RANGE_H

#include <algorithm>
#include <cstdint>

namespace hvdft {

struct ByteRange {
  uint64_t from, to;
  uint64_t bytes() const { return to - from; }
};

constexpr ByteRange overlap(ByteRange a, ByteRange b) {
  uint64_t from = std::max(a.from, b.from);
  return {from, std::max(from, std::min(a.to, b.to))};
}

}  // namespace hvdft

#endif  // HVD_FT_BYTE_RANGE_H
