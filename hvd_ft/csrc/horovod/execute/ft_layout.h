// The positions of an op's tensors in this rank's input, in bytes. Numbers only.
//
// Between nodes the ring cuts an op into as many chunks as there are nodes, and each chunk's sums
// are taken in an order of its own. The fusion of tensors depends on timing, and the sums must
// not depend on it. So each tensor is split by itself: an op is laid out chunk by chunk, with the
// tensors' parts one after the other in each chunk. Parts are padded to cache lines, all of a
// tensor to the same length, so the ring's chunks are exactly these chunks. With one chunk the
// tensors lie one after the other, each at the beginning of a cache line. Ops that do not reduce
// have no padding.
#ifndef HOROVOD_FT_LAYOUT_H
#define HOROVOD_FT_LAYOUT_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace horovod {
namespace common {

class FtLayout {
public:
  // Of a reduction.
  explicit FtLayout(uint64_t chunks) : FtLayout(chunks, 64) {}
  static FtLayout Packed() { return {1, 1}; }

  void Add(uint64_t tensor_bytes) {
    uint64_t part = tensor_bytes;
    if (chunks_ > 1) {
      part = Lines((part + chunks_ - 1) / chunks_);
    } else if (!ends_.empty()) {
      ends_.back() = Lines(ends_.back());
    }
    tensors_.push_back(tensor_bytes);
    ends_.push_back(ChunkBytes() + part);
  }

  // Offset of a whole tensor, with one chunk.
  uint64_t Begin(size_t tensor) const { return tensor == 0 ? 0 : ends_[tensor - 1]; }

  uint64_t Bytes() const { return chunks_ * ChunkBytes(); }

  // Calls copy(tensor, byte in the tensor, bytes, byte in the stretch) for each part of a stretch.
  template <typename Copy> void Each(uint64_t from, uint64_t bytes, Copy copy) const {
    uint64_t at = from, end = from + bytes;
    while (at < end) {
      uint64_t chunk = at / ChunkBytes(), in_chunk = at % ChunkBytes();
      auto i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), in_chunk) -
                                   ends_.begin());
      uint64_t begin = Begin(i);
      uint64_t room = std::min(ends_[i] - in_chunk, end - at);
      uint64_t in_tensor = chunk * (ends_[i] - begin) + in_chunk - begin;
      if (in_tensor < tensors_[i]) {
        copy(i, in_tensor, std::min(room, tensors_[i] - in_tensor), at - from);
      }
      at += room;
    }
  }

private:
  FtLayout(uint64_t chunks, uint64_t line) : chunks_(chunks), line_(line) {}

  uint64_t Lines(uint64_t bytes) const { return (bytes + line_ - 1) / line_ * line_; }
  uint64_t ChunkBytes() const { return ends_.empty() ? 0 : ends_.back(); }

  uint64_t chunks_, line_;
  std::vector<uint64_t> tensors_; // their bytes
  std::vector<uint64_t> ends_;    // of their parts in a chunk
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_LAYOUT_H
