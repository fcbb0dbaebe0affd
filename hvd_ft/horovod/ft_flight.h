// An op that this rank has begun and not yet finished. Several are under way at once, so that one
// op's results are copied out while others' inputs are already copied in.
#ifndef HOROVOD_FT_FLIGHT_H
#define HOROVOD_FT_FLIGHT_H

#include <algorithm>
#include <functional>
#include <vector>

#include "../common.h"
#include "ft_library.h"

namespace horovod {
namespace common {

struct FtFlight {
  // `of`: the tensors of the entries are, one after the other, this rank's input.
  FtFlight(const hvdft_record& record, std::vector<TensorTableEntry> of)
      : record(record), entries(std::move(of)) {
    for (auto& e : entries) {
      tensors += e.callback ? 1 : 0; // none: zeros for others, see FtJoined
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + e.tensor->size());
    }
  }

  hvdft_record record;
  std::vector<TensorTableEntry> entries;
  size_t tensors = 0; // that are pending until it is executed
  bool of_others = false; // the op of a process set without this rank

  // As in hvdft_copies; without one nothing is copied.
  std::function<void(uint64_t from, uint64_t bytes, char* to)> copy_in;
  std::function<void(uint64_t from, uint64_t bytes, const char* result)> copy_out;
  // What is left to do when it is complete.
  std::function<Status()> finish = [] { return Status::OK(); };

  // Calls copy(entry, byte in the entry, bytes, byte in the stretch) for each part of a stretch.
  template <typename Copy> void Each(uint64_t from, uint64_t bytes, Copy copy) {
    auto first = std::upper_bound(ends_.begin(), ends_.end(), from);
    uint64_t at = from, end = from + bytes;
    for (auto i = static_cast<size_t>(first - ends_.begin()); at < end; ++i) {
      uint64_t begin = i == 0 ? 0 : ends_[i - 1];
      uint64_t part = std::min(ends_[i], end) - at;
      if (part > 0) {
        copy(entries[i], at - begin, part, at - from);
      }
      at += part;
    }
  }

private:
  std::vector<uint64_t> ends_; // of each entry, in bytes from the first one's beginning
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_FLIGHT_H
