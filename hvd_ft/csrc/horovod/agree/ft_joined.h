// The ranks of a process set that have joined, in the sense of hvd.join: until all have joined,
// they contribute zeros to the allreduces of the others. A rank that announces its join again in a
// new term is added again.
#ifndef HOROVOD_FT_JOINED_H
#define HOROVOD_FT_JOINED_H

#include <cstdint>
#include <set>

#include "../common.h"

namespace horovod {
namespace common {

struct FtJoined {
  // Device number of a rank that contributes zeros to a response: so the log records it, and only
  // ops that lack the same ranks are fused.
  static constexpr int32_t kAbsentDevice = CPU_DEVICE_ID - 1;

  // `op`: the first op that the rank takes no part in by itself. It determines which rank joined
  // last; the order of announcements does not, as it differs after a recovery.
  void Add(int rank, int64_t op) {
    if (op >= last_op) {
      last = rank;
      last_op = op;
    }
    ranks.insert(rank);
  }

  std::set<int> ranks; // of the process set
  int last = -1;
  int64_t last_op = 0;
};

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_JOINED_H
