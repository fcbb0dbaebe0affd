#include "replication/rank_facts.h"

namespace hvdft {

// `state` and `sessions` first: see mirror.h.
RankFacts facts_of(const Node& node, int rank) {
  node.header().looks.fetch_add(1, std::memory_order_relaxed);
  const RankBlock& block = node.rank(rank);
  RankFacts f{};
  f.state = block.state.load(std::memory_order_seq_cst);
  f.sessions = block.sessions.load(std::memory_order_seq_cst);
  f.incarnation = block.incarnation.load();
  f.orderly_exit = block.orderly_exit.load();
  uint64_t asleep = block.asleep.load();
  f.asleep = asleep != 0 && static_cast<uint32_t>(asleep) == block.worker_doorbell.load();
  f.enter_request = block.enter_request.load();
  f.left_at = block.left_at.load();
  f.mark_request = block.mark_request.load();
  f.returns = block.returns.load();
  f.loops_done = block.loops_done.load();
  f.contributed = block.contributed.load(std::memory_order_seq_cst);
  f.executed = block.executed.load();
  f.step = block.step.load();
  f.pending = static_cast<uint64_t>(block.pending.load());
  f.since_ns = block.since_ns.load();
  f.left_ns = block.left_ns.load();
  f.pid = block.pid.load();
  f.snapshot_count = block.snapshot_count.load();
  f.snapshot_steps = block.snapshot_steps.load();
  f.training_ns = block.training_ns.load();
  f.stall_ns = block.stall_ns.load();
  f.copy_ns = block.copy_ns.load();
  f.step_bytes = block.step_bytes.load();
  f.ring_received = block.ring_received.load();
  f.ring_sent = block.ring_sent.load();
  if (rank == node.first_local()) {
    const PairLog& log = node.header().pair_log;
    f.ring_received = pack(log.received.at()) + 1;
    f.ring_sent = pack(log.latest_sent()) + 1;
  }
  return f;
}

bool urgent(const RankFacts& before, const RankFacts& now) {
  return before.state != now.state || before.sessions != now.sessions ||
         before.incarnation != now.incarnation || before.orderly_exit != now.orderly_exit ||
         before.enter_request != now.enter_request || before.left_at != now.left_at ||
         before.mark_request != now.mark_request || before.returns != now.returns ||
         before.loops_done != now.loops_done;
}

}  // namespace hvdft
