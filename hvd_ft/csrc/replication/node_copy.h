// Makes a node's arena from another node's, before anything runs on the node.
#ifndef HVD_FT_NODE_COPY_H
#define HVD_FT_NODE_COPY_H

#include <vector>

#include "arena/arena.h"
#include "protocol/byte_range.h"
#include "protocol/roster.h"

namespace hvdft {

// The stretches of the file that are copied as they are: what is known of the ranks, the events,
// and the log with the results of its ops before `complete`.
std::vector<ByteRange> copied_ranges(const Node& node, uint64_t complete);

// Makes the copy this node's own: the rest of the head, and how this node takes part in the ops of
// the log. Its ranks appear as ranks whose workers are dead, with no snapshot. `ahead_ns`: of this
// host's clock against theirs. HVDFT_EINVAL, and an error, if a record is not as it was written.
int adopt_copy(Node& node, const NodeHeader& theirs, uint64_t generation, int64_t ahead_ns);

// Notes on any node what becomes of a rank of a node that was copied, when it is noted which op is
// done over. A rank that is done, but whose input to that op is needed again, is started again. Of
// one that returns the loop in which it has left is forgotten, with the snapshots of it.
void renew(Node& node, int rank, Renewal renewal);

// On a node that was copied: all ops before this one are complete, and this node's ranks have to
// contribute to it and to those after it.
void begin_at(Node& node, uint64_t op);

}  // namespace hvdft

#endif  // HVD_FT_NODE_COPY_H
