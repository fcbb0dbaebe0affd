#include <algorithm>
#include <cstring>
#include <utility>

#include "arena/records.h"
#include "arena/rosters.h"
#include "base/doorbell.h"
#include "base/error.h"
#include "oplog/log_writer.h"
#include "protocol/enter_request.h"

namespace hvdft {

namespace {

// Announcements to an older log writer are void, as it may have granted an entry and died before
// publishing the term.
uint64_t first_term(const NodeHeader& h) { return h.term.load() + 1; }

}  // namespace

int check_rules(const hvdft_op_rules& rules, uint64_t window) {
  uint64_t node = rules.node_segment, ring = rules.ring_segment;
  if (node < kLeastNodeSegment || node > kMostNodeSegment || (node & (node - 1)) != 0) {
    return fail(HVDFT_EINVAL,
                "ops cannot be summed %lu bytes at a time: give a power of two from %lu to %lu",
                node, kLeastNodeSegment, kMostNodeSegment);
  }
  if (!holds(window, node)) {
    return fail(HVDFT_EINVAL,
                "HOROVOD_FT_NODE_SEGMENT_BYTES is %lu, and the job was started with "
                "HOROVOD_FT_NODE_WINDOW_BYTES=%lu, which holds 2 to %lu segments: give the first "
                "one from %lu to %lu",
                node, window, kClaims, std::max(window / kClaims, kLeastNodeSegment),
                std::min(window / 2, kMostNodeSegment));
  }
  if (ring < kLeastRingSegment || ring > kMostRingSegment) {
    return fail(HVDFT_EINVAL, "the ring cannot have messages of %lu bytes: give %lu to %lu", ring,
                kLeastRingSegment, kMostRingSegment);
  }
  return HVDFT_OK;
}

LogWriter::LogWriter(Node& node, const hvdft_op_rules& rules)
    : node_(node),
      rules_(rules),
      store_(node),
      sequencer_(first_term(node.header()), store_.length(), store_.gone(),
                 node.header().mark.load(),
                 latest_roster(node) != roster_at(node, store_.length())) {
  for (int r = 0; r < node.size(); ++r) seen_.push_back(node.rank(r).entered.load());
}

LogWriter::~LogWriter() {
  if (!thread_.joinable()) return;
  closing_ = true;
  notify(node_.header().log_writer_doorbell);
  thread_.join();
}

void LogWriter::open() {
  node_.header().term.store(sequencer_.term(), std::memory_order_release);
  node_.notify_workers();
}

void LogWriter::start() {
  open();
  thread_ = std::thread([this] { run(); });
}

void LogWriter::run() {
  auto& doorbell = node_.header().log_writer_doorbell;
  while (!closing_) {
    uint32_t ticket = doorbell.load(std::memory_order_seq_cst);
    if (step() || yield_for_doorbell(doorbell, ticket)) continue;
    wait_doorbell(doorbell, ticket, -1);
  }
}

bool LogWriter::step() {
  bool joins = answer_enter_requests();
  bool proposal = answer_proposal();
  bool marked = answer_mark_requests();
  marked |= answer_leave_requests();
  marked |= answer_returns();
  bool truncated = truncate();
  store_.publish_room();
  return joins || proposal || marked || truncated;
}

bool LogWriter::answer_mark_requests() {
  NodeHeader& h = node_.header();
  uint64_t wanted = h.mark_wanted.load(std::memory_order_acquire);
  bool any = wanted > 0 && sequencer_.mark(wanted - 1);
  for (int r = 0; r < node_.size(); ++r) {
    uint64_t request = node_.rank(r).mark_request.load(std::memory_order_acquire);
    any |= request > 0 && sequencer_.mark(request - 1);
  }
  // Before the ops that follow it: a rank that has executed one of them knows of the mark.
  if (any) h.mark.store(sequencer_.latest_mark(), std::memory_order_seq_cst);
  return any;
}

bool LogWriter::answer_enter_requests() {
  std::vector<int> granted;
  bool again = false;
  for (int r = 0; r < node_.size(); ++r) {
    uint64_t request = node_.rank(r).enter_request.load(std::memory_order_acquire);
    if (request == seen_[r]) continue;
    seen_[r] = request;
    // A rank that does not know the whole log notices that by itself and asks again.
    if (!sequencer_.may_enter(log_length_of(request))) continue;
    granted.push_back(r);
    again |= node_.rank(r).entered.load() != 0;
  }
  if (granted.empty()) return false;
  sequencer_.enter(again);
  for (int r : granted) node_.rank(r).entered.store(seen_[r], std::memory_order_release);
  node_.header().term.store(sequencer_.term(), std::memory_order_release);
  node_.notify_workers();
  return true;
}

bool LogWriter::answer_proposal() {
  NodeHeader& h = node_.header();
  uint64_t number = h.proposed.load(std::memory_order_acquire);
  if (number == h.answered.load(std::memory_order_relaxed)) return false;
  if (sequencer_.propose(h.proposal_term, h.proposal_count) &&
      append(h.proposal_count) != HVDFT_OK) {
    node_.stop(0, 1, hvdft_error());
    return false;
  }
  store_.publish();
  h.term.store(sequencer_.term(), std::memory_order_release);  // after the log: see hvd_ft.h
  h.answered.store(number, std::memory_order_release);
  node_.notify_workers();
  if (std::exchange(begun_, false)) notify(h.snapshot_doorbell);  // ranks that return wait for it
  return true;
}

int LogWriter::append(uint64_t count) {
  const char *at = node_.proposal(), *end = at + kProposalBytes;
  for (uint64_t i = 0; i < count; ++i) {
    OpHead op;
    auto room = static_cast<uint64_t>(end - at);
    if (room >= sizeof op) std::memcpy(&op, at, sizeof op);
    if (room < sizeof op || !is_possible(node_, op, room - sizeof op)) {
      return fail(HVDFT_EINVAL,
                  "op %lu of the proposal of rank 0 is none: %s/node.arena is damaged; "
                  "start the job again",
                  i, node_.dir().c_str());
    }
    at += sizeof op;
    // What has no data, as a barrier, and broadcasts go on to all nodes: ranks stay in step, and
    // begin with the same variables.
    op.ablated = rules_.ablates_network != 0 && node_.several() && op.kind == HVDFT_REDUCE &&
                 op.result_bytes > 0;
    op.gathered =
        op.ablated == 0 && is_gathered(node_.file().nodes, op.heap_bytes(), rules_.most_gathered);
    op.ring_segment = rules_.ring_segment;
    op.node_segment = rules_.node_segment;
    int code = store_.append(op, at);
    if (code != HVDFT_OK) return code;
    at += align_up(op.tail_bytes(), 8);
    if (op.kind == HVDFT_ROSTER) {
      sequencer_.begin_roster();
      begun_ = true;
    }
  }
  return HVDFT_OK;
}

// Where a rank starts again even if its host is lost, as in Loop::published.
uint64_t LogWriter::restart_of(const Loop& loop, int rank) const {
  bool waits = node_.several() && node_.is_local(rank);
  return (waits ? loop.held : loop.published).load(std::memory_order_acquire);
}

void LogWriter::publish_oldest() {
  if (!node_.several()) return;
  NodeHeader& h = node_.header();
  bool moved = false, begun = true;
  for (auto number = static_cast<int>(sequencer_.loop()); begun; ++number) {
    uint64_t oldest = UINT64_MAX;
    begun = false;
    for (int r = 0; r < node_.size(); ++r) {
      if (!needs_log(node_, r)) continue;
      const Loop& loop = node_.rank(r).loop(number);
      if (loop.begin.load() == 0) continue;
      begun = true;
      uint64_t at = loop.ended.load() != 0 ? 0 : restart_of(loop, r) >> 1;
      if (at > 0) oldest = std::min(oldest, at);
    }
    if (oldest == UINT64_MAX) continue;
    uint64_t word = cut_key(number, oldest);
    moved |= h.oldest[number % kOldest].exchange(word) != word;
  }
  if (!moved) return;
  notify(h.snapshot_doorbell);
  node_.notify_mirror();
}

bool LogWriter::truncate() {
  // Workers publish more often than it matters here: look only when a snapshot has moved.
  std::vector<uint64_t> positions;
  size_t most = 0;  // of a rank's loops
  for (int r = 0; r < node_.size(); ++r) {
    if (!needs_log(node_, r)) continue;
    size_t before = positions.size();
    for (auto number = static_cast<int>(sequencer_.loop());; ++number) {
      const Loop& loop = node_.rank(r).loop(number);
      uint64_t begin = loop.begin.load(std::memory_order_acquire);
      if (begin == 0) break;
      positions.push_back(begin);
      positions.push_back(restart_of(loop, r) >> 1);
    }
    most = std::max(most, (positions.size() - before) / 2);
    positions.push_back(0);
  }
  if (positions == positions_) return false;
  positions_ = positions;
  publish_oldest();

  std::vector<std::vector<LoopPosition>> ranks;
  for (size_t at = 0; at < positions.size(); ++at) {
    std::vector<LoopPosition> loops(most);
    for (size_t loop = 0; positions[at] != 0; at += 2, ++loop) {
      uint64_t published = positions[at + 1];
      loops[loop] = {true, published != 0, positions[at] - 1, published != 0 ? published - 1 : 0};
    }
    ranks.push_back(std::move(loops));
  }
  Sequencer::Truncation freed = sequencer_.truncate(ranks);
  for (uint64_t id = store_.gone(); id < sequencer_.decided_before(); ++id) {
    bool outside = std::binary_search(freed.keep.begin(), freed.keep.end(), id);
    // Notes are asked for at any time.
    if (!outside && !is_note(node_.record(id)->op.kind)) {
      store_.drop(id);
    } else if (store_.keep(id) != HVDFT_OK) {
      node_.stop(0, 1, hvdft_error());
      return false;
    }
  }
  store_.decided(sequencer_.decided_before());
  return !freed.drop.empty();
}

}  // namespace hvdft
