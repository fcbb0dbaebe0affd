// The C ABI for filling arenas that nodes have lost (protocol/rejoin.h). Agents use it at the
// beginning of a generation: all files exist, and no engine, leader or worker of a lost node runs.
#ifndef HVDFT_REJOIN_H
#define HVDFT_REJOIN_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a node's arena says, for the others.
typedef struct {
  uint64_t lost;  // 1: it is new, and not filled yet
  uint64_t log_length;
  uint64_t dropped;    // ops that are in no log any more
  uint64_t op;         // in which it is
  uint64_t done_over;  // the latest op that was to be done over, + 1
  uint64_t term, mark, events;
} hvdft_rejoin_state;

// See Rejoin in protocol/rejoin.h.
typedef struct {
  uint32_t needed, possible;
  uint64_t log_from, results_from, op;
} hvdft_rejoin;

HVDFT_API void hvdft_rejoin_verdict(const hvdft_rejoin_state* nodes, int count, hvdft_rejoin* out);

typedef struct hvdft_rejoining hvdft_rejoining;

// NULL and an error if the arena is not this job's, or its log is damaged.
HVDFT_API hvdft_rejoining* hvdft_rejoin_open(const char* dir, const char* job);
HVDFT_API void hvdft_rejoin_close(hvdft_rejoining* node);
// Marks an arena that was just made as one that is to be filled.
HVDFT_API void hvdft_rejoin_lose(hvdft_rejoining* node);
HVDFT_API void hvdft_rejoin_local_ranks(const hvdft_rejoining* node, int* first, int* count);
HVDFT_API void hvdft_rejoin_look(const hvdft_rejoining* node, hvdft_rejoin_state* out);

// The stretches of the arena's file that another node copies, each as offset and bytes; returns
// their number, of which at most `capacity` are written. Results of ops before `complete` are among
// them.
HVDFT_API int64_t hvdft_rejoin_ranges(const hvdft_rejoining* node, uint64_t complete, uint64_t* out,
                                      int64_t capacity);
// The address of a stretch of the file.
HVDFT_API void* hvdft_rejoin_at(hvdft_rejoining* node, uint64_t offset);
// The head of a file, which is not copied as it is.
HVDFT_API uint64_t hvdft_rejoin_head_bytes(void);
// Memory for what will be copied from the node with this head.
HVDFT_API int hvdft_rejoin_make_room(hvdft_rejoining* node, const void* their_head);
// Everything is copied: makes it this node's own, and its ranks such as have to be started again.
// This host's clock (CLOCK_MONOTONIC) is so far ahead of theirs. HVDFT_EINVAL, and an error, if the
// copied log is damaged.
HVDFT_API int hvdft_rejoin_adopt(hvdft_rejoining* node, const void* their_head, uint64_t generation,
                                 int64_t ahead_ns);

// Notes that this op will be done over.
HVDFT_API void hvdft_rejoin_note(hvdft_rejoining* node, uint64_t op);

// What becomes of a rank of a node that was filled (Renewal in protocol/roster.h); `leaving`:
// whether its place in the job has no host of its own.
HVDFT_API int hvdft_rejoin_renewal(hvdft_rejoining* node, int rank, int leaving);
// Notes that on any node, after the op that is done over and before the ranks get their snapshots.
HVDFT_API void hvdft_rejoin_renew(hvdft_rejoining* node, int rank, int renewal);

// The bytes of an op's result, and where it lies; HVDFT_EINVAL if the log does not have the op.
HVDFT_API int64_t hvdft_rejoin_result(hvdft_rejoining* node, uint64_t op, void** data);

// What one of the two slots of a rank's training loop holds.
typedef struct {
  uint64_t begin;      // op id + 1 at which the rank has begun the loop; 0: it has not
  uint64_t ended;      // 1: it has ended it
  uint64_t published;  // 1: this slot is the one that the rank starts again from
  uint64_t word;       // cut and agreement (protocol/shared_snapshot.h); 0: it holds nothing
  uint64_t position;   // the rank's cursor at that moment
  uint64_t bytes;      // of this slot; for ranks of other nodes, of their private part
  uint64_t stripe;     // where the rank's stripe begins
} hvdft_rejoin_slot;

// A slot of a rank of this node, or of one whose parts are kept here; *data: its bytes, or NULL.
HVDFT_API int hvdft_rejoin_slot_of(hvdft_rejoining* node, int rank, int loop, int slot,
                                   hvdft_rejoin_slot* out, const void** data);
// Memory for a slot of a rank of this node; then what was written there is its snapshot, which it
// starts again from.
HVDFT_API int hvdft_rejoin_slot_room(hvdft_rejoining* node, int rank, int loop, int slot,
                                     uint64_t bytes, void** room);
HVDFT_API void hvdft_rejoin_slot_publish(hvdft_rejoining* node, int rank, int loop, int slot,
                                         const hvdft_rejoin_slot* snapshot);

typedef struct {
  uint64_t op;          // is done over
  uint64_t term, mark;  // the latest that any node knows, for a new node of rank 0
} hvdft_rejoin_resume;

// Sets the node's record to the beginning of the op; from then on the arena counts as filled.
HVDFT_API void hvdft_rejoin_resume_at(hvdft_rejoining* node, const hvdft_rejoin_resume* resume);
// Of the node with this first rank so many events are known here.
HVDFT_API void hvdft_rejoin_heard(hvdft_rejoining* node, int first_rank, uint64_t events);

#ifdef __cplusplus
}
#endif

#endif  // HVDFT_REJOIN_H
