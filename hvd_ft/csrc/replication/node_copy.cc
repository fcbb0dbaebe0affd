#include "replication/node_copy.h"

#include <algorithm>
#include <cstring>

#include "arena/records.h"
#include "arena/rosters.h"
#include "base/doorbell.h"
#include "protocol/node_order.h"

namespace hvdft {

namespace {

// Stretches this near to each other are copied as one: a message more costs more.
constexpr uint64_t kNear = 64 << 10;

// Calls `what` for every record of the log.
template <typename What>
void each_record(const Node& node, What what) {
  const NodeHeader& h = node.header();
  auto at = [&](uint64_t entry) { what(*reinterpret_cast<Record*>(node.heap() + entry - 1)); };
  for (uint64_t i = 0; i < h.kept.load(); ++i) at(node.kept()[i].load());
  for (uint64_t id = h.decided_before.load(); id < h.log_length.load(); ++id) {
    if (uint64_t entry = node.index()[id % kIndexEntries].load(); entry != 0) at(entry);
  }
}

void start_again(RankBlock& block) {
  block.sessions.store(0);
  block.pid.store(0);
  block.since_ns.store(now_ns());
  block.state.store(HVDFT_RESTARTING);
}

// A new worker will be started, and finds nothing of its own.
void make_new(RankBlock& block, uint64_t generation) {
  std::memset(static_cast<void*>(block.loops), 0,
              static_cast<uint64_t>(block.loops_there()) * sizeof(Loop));
  block.slot_bytes.store(0);
  block.executed.store(0);
  block.pending.store(0);
  // Unlike any of the lost node's, whatever the coordinator has taken of these.
  block.mail_sequence.store(generation << 40);
  block.mail_taken.store(generation << 40);
  block.mail_term.store(0);
  block.mail_bytes.store(0);
  block.mail_awaited.store(0);
  if (block.state.load() != HVDFT_DONE) start_again(block);
}

uint64_t first_segment(const Node& node, uint64_t op) {
  if (const Record* record = node.record(op)) return record->first_segment;
  const Record* last = op > 0 ? node.record(op - 1) : nullptr;
  return last != nullptr ? last->end_segment() : node.header().dropped_segments.load();
}

}  // namespace

std::vector<ByteRange> copied_ranges(const Node& node, uint64_t complete) {
  NodeOffsets at = node_offsets(node.size());
  std::vector<ByteRange> ranges{{at.peers, at.mail}};
  for (int r = 0; r < node.size(); ++r) {
    uint64_t from = node.rank_offset(r), more = node.rank(r).loops_backed.load();
    more = std::min(more, sizeof(RankBlock) - RankBlock::kBytesAtFirst);  // or it is damaged
    ranges.push_back({from, from + RankBlock::kBytesAtFirst + more});
  }
  auto add = [&](uint64_t offset, uint64_t bytes) {
    if (bytes > 0) ranges.push_back({at.heap + offset, at.heap + offset + bytes});
  };
  each_record(node, [&](const Record& record) {
    add(static_cast<uint64_t>(reinterpret_cast<const char*>(&record) - node.heap()),
        record.bytes());
    if (record.id < complete) add(record.result_offset, record.op.result_bytes);
  });
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.from < b.from; });
  std::vector<ByteRange> merged;
  for (const ByteRange& range : ranges) {
    if (merged.empty() || range.from > merged.back().to + kNear) {
      merged.push_back(range);
    } else {
      merged.back().to = std::max(merged.back().to, range.to);
    }
  }
  return merged;
}

int adopt_copy(Node& node, const NodeHeader& theirs, uint64_t generation, int64_t ahead_ns) {
  using H = NodeHeader;
  NodeHeader& h = node.header();
  for (auto word : {&H::term, &H::log_length, &H::mark, &H::kept, &H::truncated, &H::decided_before,
                    &H::kept_bytes, &H::dropped_segments, &H::dropped_inputs, &H::event_count,
                    &H::divergence_count}) {
    (h.*word).store((theirs.*word).load());
  }
  for (uint64_t i = 0; i < kRosters; ++i) {
    Roster& ours = h.rosters[i];
    const Roster& other = theirs.rosters[i];
    for (int word = 0; word < kMaxRanks / 64; ++word) {
      ours.present[word].store(other.present[word].load());
    }
    ours.since.store(other.since.load());
    ours.mark.store(other.mark.load());
  }
  for (uint32_t kind = 0; kind < kNoteKinds; ++kind) {
    for (int i = 0; i < HVDFT_NOTES; ++i) {
      h.notes[kind][i].store(theirs.notes[kind][i].load());
    }
  }
  if (int code = check_log(node); code != HVDFT_OK) return code;
  each_record(node, [&](Record& record) {
    RingPlan plan = node.plan(record);
    NodeOrder order = node.order(record, plan);
    record.first_given = order.first_given;
    record.first_taken = order.first_taken;
    record.checksum = checksum_of(record, &record + 1);
  });
  uint64_t events = h.event_count.load();
  for (uint64_t i = events > kEvents ? events - kEvents : 0; i < events; ++i) {
    node.event_slots()[i % kEvents].event.time_ns += static_cast<uint64_t>(ahead_ns);
  }
  for (int r = 0; r < node.size(); ++r) {
    RankBlock& block = node.rank(r);
    block.asleep.store(0);
    block.op_times.forget();
    block.ring_times.forget();
    block.clock_ahead_ns.store(0);
    block.mail_backed.store(0);
    block.fingerprints_backed.store(0);
    for (auto* time : {&block.since_ns, &block.left_ns}) {
      if (time->load() != 0) time->fetch_add(static_cast<uint64_t>(ahead_ns));
    }
    if (node.is_local(r)) {
      make_new(block, generation);
    } else {
      block.slot_bytes.store(0);
    }
  }
  return HVDFT_OK;
}

namespace {

// Its worker has ended, but what it contributed to the op that is done over is lost.
bool is_needed_again(const Node& node, int rank) {
  const RankBlock& block = node.rank(rank);
  return block.state.load() == HVDFT_DONE &&
         ops_contributed(block) >= node.header().done_over.load();
}

// The memory of its slots stays as it is.
void forget_progress(Loop& loop) {
  loop.begin.store(0);
  loop.published.store(0);
  loop.ended.store(0);
  for (auto* word : {&loop.held, &loop.slots[0], &loop.slots[1], &loop.given_up,
                     &loop.published_cut, &loop.passed_cut, &loop.begun_cut}) {
    word->store(0);
  }
}

}  // namespace

void renew(Node& node, int rank, Renewal renewal) {
  RankBlock& block = node.rank(rank);
  uint64_t length = node.header().log_length.load();
  if (renewal == Renewal::kGoesOn) {
    if (is_present(node, rank, length)) block.returns.store(0);
    if (is_needed_again(node, rank)) start_again(block);
    return;
  }
  block.sessions.store(0);
  block.left_at.store(0);
  block.pid.store(0);
  block.since_ns.store(now_ns());
  bool returns = renewal == Renewal::kReturns;
  block.returns.store(returns ? kReturns : 0);
  block.state.store(returns ? HVDFT_RESTARTING : HVDFT_DONE);
  for (int loop = std::max(latest_loop(block.loops_done.load()), 0); loop < block.loops_there();
       ++loop) {
    forget_progress(block.loops[loop]);
  }
}

void begin_at(Node& node, uint64_t op) {
  NodeHeader& h = node.header();
  uint64_t first = first_segment(node, op);
  for (uint64_t n = first > kClaims ? first - kClaims : 0; n < first; ++n) {
    h.claims[n % kClaims].word.store(claim_word(n, 0, true));
  }
  h.final_segments.store(first);
  for (int r = node.first_local(); r < node.end_local(); ++r) {
    RankBlock& block = node.rank(r);
    if (block.state.load() != HVDFT_DONE) block.contributed.store(position(op, 0));
  }
}

}  // namespace hvdft
