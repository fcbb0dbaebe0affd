// The allocator of the node's heap for records and results: it works on offsets and has no memory
// of its own. First fit from the bottom, so that pages are reused.
#ifndef HVD_FT_HEAP_H
#define HVD_FT_HEAP_H

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace hvdft {

class Heap {
 public:
  static constexpr uint64_t kAlign = 64;
  static constexpr uint64_t kFull = UINT64_MAX;

  explicit Heap(uint64_t limit) : limit_(limit) {}

  // Offset of `bytes` free bytes, or kFull.
  uint64_t allocate(uint64_t bytes) {
    bytes = rounded(bytes);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      allocated_ += bytes;
      uint64_t offset = it->first, rest = it->second - bytes;
      free_.erase(it);
      if (rest > 0) free_[offset + bytes] = rest;
      return offset;
    }
    if (bytes > limit_ - top_) return kFull;
    uint64_t offset = top_;
    top_ += bytes;
    allocated_ += bytes;
    return offset;
  }

  void release(uint64_t offset, uint64_t bytes) {
    auto it = free_.emplace(offset, rounded(bytes)).first;
    allocated_ -= rounded(bytes);
    auto next = std::next(it);
    if (next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin()) {
      auto before = std::prev(it);
      if (before->first + before->second == it->first) {
        before->second += it->second;
        free_.erase(it);
      }
    }
  }

  // For a new heap: these ranges, offset and bytes, are in use already.
  void occupy(std::vector<std::pair<uint64_t, uint64_t>> ranges) {
    std::sort(ranges.begin(), ranges.end());
    for (auto [offset, bytes] : ranges) {
      if (offset > top_) free_[top_] = offset - top_;
      top_ = offset + rounded(bytes);
      allocated_ += rounded(bytes);
    }
  }

  uint64_t top() const { return top_; }  // the highest offset ever used
  uint64_t allocated() const { return allocated_; }

  // Zero bytes still get an offset of their own, so that offsets stay distinct.
  static uint64_t rounded(uint64_t bytes) {
    return (bytes + (bytes == 0) + kAlign - 1) / kAlign * kAlign;
  }

 private:
  uint64_t limit_;
  uint64_t allocated_ = 0;
  uint64_t top_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset → bytes, never two that touch
};

}  // namespace hvdft

#endif  // HVD_FT_HEAP_H
