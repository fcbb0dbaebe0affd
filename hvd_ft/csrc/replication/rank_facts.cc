#include "replication/rank_facts.h"

#include <cstring>

namespace hvdft {

namespace {

constexpr size_t kWord = sizeof(uint64_t), kWords = sizeof(RankFacts) / kWord;
static_assert(kWords < 32 && sizeof(RankFacts) % kWord == 0);

struct ChangeHead {
  uint32_t rank, changed;
};

template <typename Act>
void each_word(uint32_t changed, Act act) {
  for (uint32_t bits = changed; bits != 0; bits &= bits - 1) {
    act(static_cast<size_t>(__builtin_ctz(bits)) * kWord);
  }
}

}  // namespace

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
  f.rounds = block.rounds.load();
  f.compute_ns = block.compute_ns.load();
  f.wait_ns = block.wait_ns.load();
  f.moving_ns = block.moving_ns.load();
  f.network_ns = block.network_ns.load();
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

void put_changes(int rank, const RankFacts& before, const RankFacts& now, std::string* out) {
  const auto *old = reinterpret_cast<const char*>(&before),
             *fresh = reinterpret_cast<const char*>(&now);
  ChangeHead head{static_cast<uint32_t>(rank), 0};
  for (size_t word = 0; word < kWords; ++word) {
    bool differs = std::memcmp(old + word * kWord, fresh + word * kWord, kWord) != 0;
    head.changed |= static_cast<uint32_t>(differs) << word;
  }
  if (head.changed == 0) return;
  out->append(reinterpret_cast<const char*>(&head), sizeof head);
  each_word(head.changed, [&](size_t at) { out->append(fresh + at, kWord); });
}

bool FactsChange::fits(const char* at, uint64_t bytes) {
  if (bytes < sizeof(ChangeHead)) return false;
  FactsChange change(at);
  return change.changed >> kWords == 0 && static_cast<uint64_t>(change.end() - at) <= bytes;
}

FactsChange::FactsChange(const char* at) : words(at + sizeof(ChangeHead)) {
  ChangeHead head{};
  std::memcpy(&head, at, sizeof head);
  rank = static_cast<int>(head.rank);
  changed = head.changed;
}

const char* FactsChange::end() const {
  return words + static_cast<size_t>(__builtin_popcount(changed)) * kWord;
}

void FactsChange::apply(RankFacts* facts) const {
  const char* from = words;
  each_word(changed, [&](size_t at) {
    std::memcpy(reinterpret_cast<char*>(facts) + at, from, kWord);
    from += kWord;
  });
}

}  // namespace hvdft
