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

  // What may block this rank: its collectives, or the messages from one peer.
  struct Wait {
    bool blocked = false;
  };

  // The time for which this rank is blocked while another rank is down: from the first wait until
  // all that was blocked has progressed. A wait that is blocked already may be reported again.
  void about_to_wait(Wait& wait);
  void progressed(Wait& wait);
  Wait& collectives() { return collectives_; }

  // Sleeps on this rank's doorbell, visibly to the hang rule (hang_rule.py).
  bool sleep(uint32_t ticket, int timeout_ms);

 private:
  Node& node_;
  RankBlock& block_;
  const int rank_;
  const uint32_t incarnation_;
  std::mutex watch_;  // between this worker's own threads; never shared with a process
  Wait collectives_;
  int blocked_ = 0;  // waits
  uint64_t blocked_since_ = 0;
  bool waiting_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_RANK_STATE_H
