// The published state of this worker's rank: its state, its events, and how long it waits for
// others.
#ifndef HVD_FT_RANK_STATE_H
#define HVD_FT_RANK_STATE_H

#include <mutex>

#include "arena/arena.h"

namespace hvdft {

class RankState {
 public:
  RankState(Node& node, int rank, uint32_t incarnation)
      : node_(node), block_(node.rank(rank)), rank_(rank), incarnation_(incarnation) {}

  void set(uint32_t state) const;
  void event(uint32_t type, uint64_t detail) const;

  // The time for which this rank is blocked in a collective while another rank is down: from the
  // first wait to the first progress.
  void about_to_wait();
  void progressed();

  // Sleeps on this rank's doorbell, visibly to the hang rule (hang_rule.py).
  bool sleep(uint32_t ticket, int timeout_ms);

 private:
  Node& node_;
  RankBlock& block_;
  const int rank_;
  const uint32_t incarnation_;
  std::mutex watch_;  // between this worker's own threads; never shared with a process
  uint64_t blocked_since_ = 0;
  bool waiting_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_RANK_STATE_H
