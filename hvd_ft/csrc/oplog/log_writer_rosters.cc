// The log writer's part in rosters: it announces those without ranks that are to leave, and those
// with ranks that return.
#include "arena/rosters.h"
#include "base/doorbell.h"
#include "oplog/log_writer.h"
#include "protocol/roster.h"

namespace hvdft {

namespace {

bool is_among(const LeaveRequest& request, int rank) {
  return rank > 0 && (request.leaving[rank / 64].load() >> rank % 64 & 1) != 0;
}

}  // namespace

// Other processes go on meanwhile, so what decides is read once: who is in a roster, and after
// which one it comes.

bool LogWriter::answer_leave_requests() {
  bool any = false;
  for (LeaveRequest& request : node_.header().leave_requests) {
    uint64_t number = request.number.load(std::memory_order_acquire);
    if (number == request.answered.load()) continue;
    uint64_t latest = next_roster() - 1;
    Ranks ranks;
    for (int r = 0; r < node_.size(); ++r) {
      if (is_in_roster(node_, latest, r) && !is_among(request, r)) ranks.add(r);
    }
    if (!announce(latest, ranks, -1)) continue;
    request.answered.store(number, std::memory_order_seq_cst);
    notify(node_.header().snapshot_doorbell);
    any = true;
  }
  return any;
}

// Ranks return together, when all that are on their way have come to the loop.
bool LogWriter::answer_returns() {
  const LeaveRequest& leaving = node_.header().leave_requests[1];
  uint64_t latest = next_roster() - 1;
  if (latest == 0 || latest == kRosters) return false;
  int loop = -1;
  Ranks ranks;
  for (int r = 0; r < node_.size(); ++r) {
    if (!is_in_roster(node_, latest, r)) {
      const RankBlock& block = node_.rank(r);
      uint64_t returns = block.returns.load(std::memory_order_acquire);
      bool ended = block.state.load(std::memory_order_acquire) == HVDFT_DONE;
      if (returns == 0 || ended || is_among(leaving, r)) continue;
      if (returns == kReturns) return false;
      loop = loop_waited_in(returns);
      if (is_over(node_, loop)) return false;  // they end by themselves
    }
    ranks.add(r);
  }
  return loop >= 0 && announce(latest, ranks, loop);
}

// The number of the next roster to be announced. One that was announced for a loop that is over
// never begins: the next one gets its number.
uint64_t LogWriter::next_roster() {
  uint64_t latest = latest_roster(node_);
  if (latest == 0 || latest == roster_at(node_, store_.length())) return latest + 1;
  auto& mark = node_.header().rosters[latest - 1].mark;
  int loop = loop_of_mark(mark.load());
  if (loop < 0 || !is_over(node_, loop)) return latest + 1;
  mark.store(0, std::memory_order_seq_cst);
  sequencer_.withdraw_roster();
  return latest;
}

// Announces a roster of these ranks, if it is another one than the latest. False: not yet, as that
// has not begun.
bool LogWriter::announce(uint64_t latest, const Ranks& ranks, int loop) {
  bool changes = false;
  for (int r = 0; r < node_.size(); ++r) changes |= ranks.has(r) != is_in_roster(node_, latest, r);
  if (!changes || latest == kRosters) return true;
  uint64_t position = sequencer_.announce_roster();
  if (position == 0) return false;
  Roster& roster = node_.header().rosters[latest];
  for (int i = 0; i < kMaxRanks / 64; ++i) roster.present[i].store(ranks.words[i]);
  // As with marks: a rank that has executed one of the ops that follow it knows of it.
  roster.mark.store(pack_mark(position, loop), std::memory_order_seq_cst);
  return true;
}

}  // namespace hvdft
