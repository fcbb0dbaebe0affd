// Which ranks take part in the job: a *roster*. Roster 0 contains all of them. Each later roster
// begins with an op of the log, a barrier of the previous roster's ranks; only its own ranks take
// part in the ops after it.
//
// A roster is announced with a mark, a position of the log. The ranks begin it at their first step
// boundary beyond the mark. Only ops that all present ranks take part in count for that: all ranks
// execute these in the same order, so it is the same boundary for all, and the same in a replay.
// At any other step boundary a rank could wait for ranks that have already gone further.
//
// Ranks that have left can return: they wait where one of their training loops begins, and when all
// returning ranks are there, a roster with them is announced. They continue where that roster
// begins, with the state that the others have then. So it can begin in that loop only. If the loop
// ends before, the roster never begins, and the next one takes its place.
//
// Rules only: no memory, threads or clock. roster_test.cc and return_test.cc try every
// interleaving.
#ifndef HVD_FT_ROSTER_H
#define HVD_FT_ROSTER_H

#include <algorithm>
#include <cstdint>

namespace hvdft {

// One word, as both are read together: a position of the log + 1, and the loop in which the roster
// begins; -1: in any.
inline uint64_t pack_mark(uint64_t position, int loop) {
  return position << 16 | static_cast<uint64_t>(loop + 1);
}
inline int loop_of_mark(uint64_t mark) { return static_cast<int>(mark & 0xffff) - 1; }

// Whether a rank at a step boundary of a loop begins the next roster there, with this mark (0: none
// is announced). `common`: the position after the last op that it has executed with all ranks. A
// rank that has executed an op behind the mark knows of the mark.
inline bool begins_roster(uint64_t mark, int loop, uint64_t common) {
  bool here = loop_of_mark(mark) < 0 || loop_of_mark(mark) == loop;
  return mark != 0 && mark >> 16 <= common && here;
}

// A roster counts for the ops from `since` on: the id of the op that begins it, + 1; 0: it has not
// begun.
inline bool has_begun(uint64_t since, uint64_t position) { return since != 0 && since <= position; }

// How far a rank is in its training loops: how many it has begun, and whether it has ended the
// latest. It only grows.
inline uint64_t loops_begun(int loop) { return (static_cast<uint64_t>(loop) + 1) << 1; }
inline uint64_t loops_ended(int loop) { return loops_begun(loop) | 1; }
// Whether one that is so far has left a loop behind.
inline bool is_past(uint64_t loops, int loop) { return loops > loops_begun(loop); }

// A word that is damaged may have any number.
inline int latest_loop(uint64_t loops) {
  return static_cast<int>(std::min(loops >> 1, uint64_t{1} << 30)) - 1;
}
// Whether one that has left may return: it has ended the loop in which the first rank is.
inline bool may_return(uint64_t theirs, uint64_t firsts) {
  return theirs == loops_ended(latest_loop(firsts)) && !is_past(firsts, latest_loop(firsts));
}

// What a rank that returns tells: that it is on its way, or the loop where it waits. 0: it does not
// return, or is present again.
constexpr uint64_t kReturns = 1;
inline uint64_t waits_in(int loop) { return static_cast<uint64_t>(loop) + 2; }
inline int loop_waited_in(uint64_t returns) { return static_cast<int>(returns) - 2; }

// Where a rank that begins a loop without a snapshot of it goes on: the op of the roster with which
// it returned, + 1; 0: that is not there yet, or it goes on where the loop begins. `since`: of the
// latest roster with which it returned. `begin`: the loop's first op + 1. `part`: see below. One
// that is on its way does not take part by an older return.
inline uint64_t returned_at(uint64_t since, uint64_t begin, uint64_t returns, bool part) {
  bool on_its_way = returns != 0 && !part;
  return !on_its_way && since >= begin ? since : 0;
}

// What becomes of a rank whose host is lost, or that is started where its place is now.
// `part`: whether it is in the roster in force, or in the one that is announced. `returns`: as it
// has told. `leaving`: whether its place has no host of its own.
enum class Renewal { kGoesOn, kReturns, kStaysOut };
inline Renewal renewal(bool part, uint64_t returns, bool leaving) {
  if (part) return Renewal::kGoesOn;
  if (!leaving) return Renewal::kReturns;
  return returns != 0 ? Renewal::kStaysOut : Renewal::kGoesOn;  // it may have to leave once more
}

}  // namespace hvdft

#endif  // HVD_FT_ROSTER_H
