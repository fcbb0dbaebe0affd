// The memory of a node: its uses, and how the parts that grow allocate and free it.
//
// Each part is *claimed* before it is allocated, and its claim is lowered after it is freed. So the
// sum of the claims is never less than the memory in use, whichever process is killed in between,
// and memory is allocated only while the claims are within the limit. Each claim on slots and on
// the heap has one writer, and states what the slot or the heap has: a restarted writer claims the
// same again, and nothing counts twice.
//
// A process that claims records the most memory that the node has had once the memory is allocated;
// a process that frees records it before freeing. In between the claims show it.
#ifndef HVD_FT_MEMORY_H
#define HVD_FT_MEMORY_H

#include "arena/arena.h"
#include "hvd_ft_snapshots.h"

namespace hvdft {

hvdft_memory memory_now(const Node& node);
// The most that each part has been, each at its own moment.
hvdft_memory memory_most(const Node& node);
void note_memory(const Node& node);
// Of a part whose present size the caller knows.
void note_log(const Node& node, uint64_t bytes);

uint64_t used_bytes(const Node& node);  // what counts against the node's limit

// HVDFT_ENOSPACE, with `what` named, when the limit or the filesystem is full.
int no_room(const Node& node, uint64_t bytes, const char* what);

// A loop's slot in a rank's file; only the rank's own worker grows and releases it.
struct SlotPlace {
  int rank, loop, slot;
};
int grow_slot(const Node& node, const RankFile& file, SlotPlace at, uint64_t bytes);
void release_slot(const Node& node, const RankFile& file, SlotPlace at);
// What a slot holds: of its `bytes` those from `stripe` on are shared by the node's ranks.
void note_contents(const Node& node, SlotPlace at, const hvdft_snapshot& snapshot);
// A new worker of this rank: its predecessor may have been killed while it claimed.
void settle_claims(RankBlock& block);

// The heap's first `bytes`; only the owner of the log grows it.
int grow_heap(const Node& node, uint64_t bytes, const char* what);

// Of a rank elsewhere: the first `bytes` of its mailbox here, and its fingerprints. They count in
// the control area, and not against the limit, so that a full log does not keep ranks from
// agreeing. Only the mirror grows and shrinks them.
int grow_mail(const Node& node, int rank, uint64_t bytes);
int grow_fingerprints(const Node& node, int rank);
// Of any rank: for the training loop of this number and those before it. Counts likewise. Only who
// writes the rank's loops does that.
int grow_loops(const Node& node, int rank, int number);
// What the mailbox holds has been taken: keeps memory for announcements of the usual size.
void shrink_mail(const Node& node, int rank);

// [base + had, base + bytes) of a message log.
int grow_messages(const Node& node, int fd, uint64_t base, uint64_t had, uint64_t bytes);
void claim_messages(const Node& node, uint64_t bytes);
void unclaim_messages(const Node& node, uint64_t bytes);

}  // namespace hvdft

#endif  // HVD_FT_MEMORY_H
