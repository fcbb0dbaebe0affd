// How the ring continues after members have lost their arenas, with their nodes. Pure arithmetic on
// the contents of all members' arenas at the beginning of a generation, when no member runs.
//
// A member without an arena knows nothing of the op in flight, and ring.h's rule for a remade edge
// does not help it: the data that its predecessor would have to send again may have been
// overwritten by final values. So that one op is *done over* by all members, from its beginning:
//
//  - It is the op in which the most advanced of the surviving members is. All ops before it are
//    complete there, so whoever lacks results of those takes them from that member.
//  - Nobody has more than a part of it, and the inputs of all survivors are still in their places
//    (ring.h). A member that lost its arena gets its inputs anew, from workers that start again:
//    those of ranks that were done too, if they had contributed to this op.
//  - Values of it that are final somewhere may have been read. Doing it over gives the same ones,
//    but partial sums must not be written over them meanwhile: they are put *aside*, into memory
//    of the process. If one dies, the op is done over again.
//
// Each member takes these steps, and may be killed between any two: it notes that the op is done
// over; it takes the results; it sets its record to the op's beginning. A member that had no arena
// counts as without one until it has done all of that. So as long as any member may be in the
// middle, or in the op that is done over, the next generation's verdict is to do it over again.
#ifndef HVD_FT_REJOIN_H
#define HVD_FT_REJOIN_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/ring_plan.h"

namespace hvdft {

// What a member's arena says.
struct RejoinState {
  bool lost = false;        // there is none, or it is not filled yet: nothing else counts
  uint64_t log_length = 0;  // ops of its copy of the log
  uint64_t op = 0;          // in which it is: of its record of the edge
  uint64_t done_over = 0;   // the latest op that was to be done over, + 1; 0: none
};

struct Rejoin {
  bool needed = false;
  bool possible = true;       // some arena has survived
  uint64_t log_from = 0;      // the member whose arena is copied by those without one
  uint64_t results_from = 0;  // the member that has the results of all ops before `op`
  uint64_t op = 0;            // is done over
};

inline Rejoin rejoin(const std::vector<RejoinState>& members) {
  Rejoin verdict;
  const RejoinState *longest = nullptr, *furthest = nullptr;
  uint64_t least = UINT64_MAX, done_over = 0;
  for (const RejoinState& member : members) {
    if (member.lost) {
      verdict.needed = true;
      continue;
    }
    least = std::min(least, member.op);
    done_over = std::max(done_over, member.done_over);
    if (longest == nullptr || member.log_length > longest->log_length) longest = &member;
    if (furthest == nullptr || member.op > furthest->op) furthest = &member;
  }
  verdict.possible = longest != nullptr;
  if (!verdict.possible) return verdict;
  verdict.needed = verdict.needed || done_over > least;
  verdict.log_from = static_cast<uint64_t>(longest - members.data());
  verdict.results_from = static_cast<uint64_t>(furthest - members.data());
  verdict.op = furthest->op;
  return verdict;
}

// Whether what is received at a position is a partial sum, to which later members add; else it is
// final, or an input of a gathered op.
inline bool is_partial(const RingPlan& plan, uint64_t position) {
  return !plan.gathered() && position + 2 * plan.segments() < plan.members() * plan.segments();
}

}  // namespace hvdft

#endif  // HVD_FT_REJOIN_H
