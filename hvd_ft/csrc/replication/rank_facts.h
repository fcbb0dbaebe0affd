// A rank's state as other nodes need it.
#ifndef HVD_FT_RANK_FACTS_H
#define HVD_FT_RANK_FACTS_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "arena/arena.h"

namespace hvdft {

// Times are those of the rank's node.
struct RankFacts {
  uint32_t state, incarnation, orderly_exit, sessions, asleep, reserved;
  uint64_t enter_request, left_at, mark_request, returns, loops_done;
  uint64_t contributed, executed, step, pending, since_ns, left_ns, pid;
  uint64_t snapshot_count, snapshot_steps, training_ns, stall_ns, copy_ns, step_bytes;
  uint64_t ring_received, ring_sent;
  uint64_t rounds, compute_ns, wait_ns, moving_ns, network_ns;
};

// The fields that a process may wait for. Counters change all the time, and nothing waits for them.
bool urgent(const RankFacts& before, const RankFacts& now);

// As it is in the arena of this node.
RankFacts facts_of(const Node& node, int rank);

// Appends what has changed of a rank, if anything has: which words of its facts, and these.
void put_changes(int rank, const RankFacts& before, const RankFacts& now, std::string* out);

struct FactsChange {
  int rank;
  uint32_t changed;   // a bit for each word of RankFacts
  const char* words;  // those that have changed, at any address

  // Whether put_changes() can have written what is there, of so many bytes.
  static bool fits(const char* at, uint64_t bytes);
  // The one that put_changes() has written there.
  explicit FactsChange(const char* at);
  // Where the next one begins.
  const char* end() const;
  void apply(RankFacts* facts) const;
};

}  // namespace hvdft

#endif  // HVD_FT_RANK_FACTS_H
