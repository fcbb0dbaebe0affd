// An op that this rank has begun and not yet finished. Several are under way at once, so that one
// op's results are copied out while others' inputs are already copied in.
#ifndef HOROVOD_FT_IN_FLIGHT_H
#define HOROVOD_FT_IN_FLIGHT_H

#include <functional>
#include <vector>

#include "../common.h"
#include "ft_layout.h"
#include "ft_library.h"

namespace horovod {
namespace common {

struct InFlightOp {
  // `of`: the entries whose tensors are this rank's input, laid out as in `layout`, which is still
  // empty.
  InFlightOp(const hvdft_record& record, std::vector<TensorTableEntry> of,
             FtLayout layout = FtLayout::Packed())
      : record(record), entries(std::move(of)), layout_(std::move(layout)) {
    for (auto& e : entries) {
      tensors += e.callback ? 1 : 0; // none: zeros for others, see FtJoined
      layout_.Add(e.tensor->size());
    }
  }

  hvdft_record record;
  std::vector<TensorTableEntry> entries;
  size_t tensors = 0;         // tensors that are pending until it is executed
  bool of_others = false;     // the op of a process set without this rank
  bool shown_waiting = false; // in Horovod's timeline

  // As in hvdft_copies; an empty function copies nothing.
  std::function<void(uint64_t from, uint64_t bytes, char* to)> copy_in;
  std::function<void(uint64_t from, uint64_t bytes, const char* result)> copy_out;
  // Called when it is complete.
  std::function<Status()> finish = [] { return Status::OK(); };

  // Calls copy(entry, byte in the entry, bytes, byte in the stretch) for each part of a stretch.
  template <typename Copy> void Each(uint64_t from, uint64_t bytes, Copy copy) {
    layout_.Each(from, bytes, [&](size_t i, uint64_t at, uint64_t n, uint64_t of) {
      copy(entries[i], at, n, of);
    });
  }

  // For an op in one chunk: the offset of an entry's part of the result.
  const char* ResultOf(size_t entry) const {
    return static_cast<const char*>(record.result) + layout_.Begin(entry);
  }

private:
  FtLayout layout_;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_IN_FLIGHT_H
