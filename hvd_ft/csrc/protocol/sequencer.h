// The protocol of the op log: who may append to it, and what may be truncated.
//
// A state machine: events in, actions out; no memory, threads or clock. Rank 0's agent drives it
// with the requests in shared memory; tests drive it with any events.
//
// Announcements of ranks and proposals of the coordinator belong to a *term*. When a rank enters
// again, after its worker was restarted or in its next session, a new term begins and everything
// announced before is void, so a tensor is never counted twice because a dead incarnation had
// announced it too. Ranks that enter at the same time share the new term. A rank that enters for
// the first time has announced nothing, so it joins the present term: a job starts in one term,
// whatever the number of its ranks.
//
// A *mark* is a position of the log, put there because a rank wants a snapshot. Every rank takes
// the snapshot at its first step boundary after the mark: as ranks execute the same ops in the same
// order, this is the same boundary for all, and the same again in a replay.
#ifndef HVD_FT_SEQUENCER_H
#define HVD_FT_SEQUENCER_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hvdft {

// A rank's progress in one training loop, as op ids. `position` is that of its latest snapshot.
struct LoopPosition {
  bool begun = false;
  bool has_snapshot = false;
  uint64_t begin = 0;
  uint64_t position = 0;
};

// Whether a rank at a step boundary, which has executed the ops before `cursor`, takes a snapshot
// for the mark at position `mark` - 1. A rank that stands exactly at the mark has not passed it.
// `since`: the cursor at the rank's latest snapshot of the loop, or at the loop's beginning.
inline bool passes_mark(uint64_t mark, uint64_t since, uint64_t cursor) {
  return mark > since && mark <= cursor;
}

class Sequencer {
 public:
  Sequencer() = default;
  // Continues after another sequencer: with a term that no process has seen yet.
  Sequencer(uint64_t term, uint64_t log_length, uint64_t decided_before, uint64_t mark = 0,
            bool roster_announced = false)
      : term_(term),
        log_length_(log_length),
        next_(decided_before),
        mark_(mark),
        roster_announced_(roster_announced) {}

  uint64_t term() const { return term_; }
  uint64_t log_length() const { return log_length_; }
  size_t loop() const { return loop_; }              // in which the log is being truncated
  uint64_t decided_before() const { return next_; }  // ops before it are dropped or kept

  // Whether a rank that has executed the first `log_length` ops may enter: if that is the whole
  // log. Otherwise it has to catch up first.
  bool may_enter(uint64_t log_length) const { return log_length == log_length_; }

  // Some ranks enter together; `again`: one of them has entered before, so a new term begins.
  void enter(bool again) { term_ += again ? 1 : 0; }

  // The coordinator proposes `count` ops: true if they are the log's next ones.
  bool propose(uint64_t term, uint64_t count) {
    if (term != term_) return false;
    log_length_ += count;
    return true;
  }

  // A rank asks for a mark at `position` or later: true if the log gets one, at its end. The marks
  // that ranks ask for at about the same time are one.
  bool mark(uint64_t position) {
    if (mark_ > position) return false;
    mark_ = log_length_ + 1;
    return true;
  }
  uint64_t latest_mark() const { return mark_; }  // its position + 1; 0: none

  // Another roster is asked for (roster.h). Returns its mark, at the log's end; 0 if the one before
  // has not begun.
  uint64_t announce_roster() {
    if (roster_announced_) return 0;
    roster_announced_ = true;
    return log_length_ + 1;
  }
  // It never begins, so another one may be announced.
  void withdraw_roster() { roster_announced_ = false; }
  // The op that begins it has been proposed and appended. Announcements before it were counted with
  // the ranks of the roster before, so they are void.
  void begin_roster() {
    roster_announced_ = false;
    ++term_;
  }

  struct Truncation {
    std::vector<uint64_t> drop;  // these ops are never needed again
    std::vector<uint64_t> keep;  // outside of every loop: needed until the job ends
  };

  // `positions[rank][loop]`, from loop() on: those before make no difference any more. Ops of a
  // loop that lie before every rank's latest snapshot in it are dropped. Ops between two loops, and
  // before the first, are served again to every restarted worker, so they are kept. That they are
  // outside is known only once all ranks have begun the next loop.
  Truncation truncate(const std::vector<std::vector<LoopPosition>>& positions) {
    Truncation freed;
    size_t first = loop_;
    for (size_t loop = 0; loop < positions[0].size(); ++loop) {
      uint64_t begin = 0, position = UINT64_MAX;
      for (const auto& rank : positions) {
        if (!rank[loop].begun) return freed;
        begin = std::max(begin, rank[loop].begin);
        position = std::min(position, rank[loop].has_snapshot ? rank[loop].position : 0);
      }
      for (; next_ < begin; ++next_) freed.keep.push_back(next_);
      for (; next_ < position; ++next_) freed.drop.push_back(next_);
      loop_ = first + loop;
    }
    return freed;
  }

 private:
  uint64_t term_ = 0;
  uint64_t log_length_ = 0;
  size_t loop_ = 0;    // the loop in which the log is being truncated
  uint64_t next_ = 0;  // first op of which it is not yet decided
  uint64_t mark_ = 0;
  bool roster_announced_ = false;  // and has not begun
};

}  // namespace hvdft

#endif  // HVD_FT_SEQUENCER_H
