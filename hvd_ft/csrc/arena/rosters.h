// The rosters in a node's arena: which ranks are present where in the log.
#ifndef HVD_FT_ROSTERS_H
#define HVD_FT_ROSTERS_H

#include "arena/arena.h"

namespace hvdft {

// The number of the roster in force for an op at `position`.
uint64_t roster_at(const Node& node, uint64_t position);
// The number of the latest one that is announced; 0: the first.
uint64_t latest_roster(const Node& node);
bool is_in_roster(const Node& node, uint64_t roster, int rank);
inline bool is_present(const Node& node, int rank, uint64_t position) {
  return is_in_roster(node, roster_at(node, position), rank);
}
// Whether a rank is in the roster in force, or in the one that is announced.
bool has_part(const Node& node, int rank);
// Whether a rank has left the job: its worker has ended, and no later op needs it.
bool has_left(const Node& node, int rank);
// Whether a rank has left the job, and returns: no roster with it is announced yet.
bool returns_later(const Node& node, int rank);
// Whether the log has to keep what a rank would start again from.
inline bool needs_log(const Node& node, int rank) {
  return !has_left(node, rank) && !returns_later(node, rank);
}
// Whether a present rank is being restarted, or is served from the log.
bool is_away(const Node& node, int rank);
// The number of the latest roster with which a rank returns; 0: of none.
uint64_t latest_return(const Node& node, int rank);
// Whether no step of a loop is left in which a roster could begin. Rank 0 never leaves.
bool is_over(const Node& node, int loop);
// How many training loops a rank has begun.
int loops_of(const Node& node, int rank);
// The first present rank that is not among [first, end); -1: there is none.
int first_present_outside(const Node& node, uint64_t roster, int first, int end);

void write_leave_request(LeaveRequest& request, const uint64_t* leaving);

}  // namespace hvdft

#endif  // HVD_FT_ROSTERS_H
