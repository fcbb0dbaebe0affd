// Which ranks of a process set have joined, in the sense of hvd.join: until all have, they give
// zeros to the allreduces of the others. Every rank that has announced its join again in a new term
// is added again.
#ifndef HOROVOD_FT_JOINED_H
#define HOROVOD_FT_JOINED_H

#include <cstdint>
#include <set>

#include "../common.h"

namespace horovod {
namespace common {

struct FtJoined {
  // The device of a rank in a response that it gives zeros to: so the log tells, and only what
  // lacks the same ranks is fused.
  static constexpr int32_t kAbsentDevice = CPU_DEVICE_ID - 1;

  // `op`: the first one that the rank takes no part in by itself. It decides who is the last, not
  // when it is told: the order of announcements is another one after a recovery.
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
