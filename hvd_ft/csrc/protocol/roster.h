// Which ranks take part in the job: a *roster*. Roster 0 has all of them, and each later one begins
// with an op of the log, a barrier of the ranks of the roster before. The ops behind it are those
// of its ranks alone.
//
// A roster is announced with a mark, a position of the log. The ranks begin it at their first step
// boundary beyond the mark. Only ops that all present ranks take part in count for that: all ranks
// execute these in the same order, so it is the same boundary for all, and the same in a replay.
// There is no other step boundary at which a rank could wait for ranks that have gone further.
//
// Rules only: no memory, threads or clock. roster_test.cc tries every interleaving.
#ifndef HVD_FT_ROSTER_H
#define HVD_FT_ROSTER_H

#include <cstdint>

namespace hvdft {

// Whether a rank at a step boundary begins the next roster there, which was announced at position
// `mark` - 1 (0: none was). `common`: the position after the last op that it has executed with all
// ranks. A rank that has executed an op behind the mark knows of the mark.
inline bool begins_roster(uint64_t mark, uint64_t common) { return mark != 0 && mark <= common; }

// A roster counts for the ops from `since` on: the id of the op that begins it, + 1; 0: it has not
// begun.
inline bool has_begun(uint64_t since, uint64_t position) { return since != 0 && since <= position; }

}  // namespace hvdft

#endif  // HVD_FT_ROSTER_H
