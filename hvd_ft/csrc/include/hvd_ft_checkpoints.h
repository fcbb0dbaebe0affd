// The C ABI of libhvd_ft.so for checkpoint writers: a process of each node that writes snapshots to
// a disk. The writer holds no lock: it copies a slot, and the copy counts only if the slot has the
// same contents before and after.
#ifndef HVD_FT_CHECKPOINTS_H
#define HVD_FT_CHECKPOINTS_H

#include "hvd_ft_snapshots.h"

#ifdef __cplusplus
extern "C" {
#endif

// Types of events, besides those of hvd_ft.h; `rank` is the first one of the writer's node.
enum {
  HVDFT_EV_CHECKPOINT = 32,   // a checkpoint is to be written  detail: position it lies behind
  HVDFT_EV_SHARE = 33,        // a node's share of it is on disk  detail: checkpointer/round.py
  HVDFT_EV_CHECKPOINTED = 34  // it is complete                 detail: as of HVDFT_EV_CHECKPOINT
};

typedef struct hvdft_checkpointer hvdft_checkpointer;
HVDFT_API hvdft_checkpointer* hvdft_checkpointer_open(const char* dir, const char* job);
HVDFT_API void hvdft_checkpointer_close(hvdft_checkpointer* checkpointer);
// The job's ranks and nodes, and this node's number, first rank, and ranks.
typedef struct {
  int32_t size, nodes, node, first, locals;
} hvdft_place;
HVDFT_API void hvdft_checkpointer_place(hvdft_checkpointer* checkpointer, hvdft_place* out);
// Whether a rank is present (protocol/roster.h) at a position of the op log; UINT64_MAX: now.
HVDFT_API int hvdft_checkpointer_present(hvdft_checkpointer* checkpointer, int rank,
                                         uint64_t position);
// What a slot holds: see hvdft_snapshot. 1, or 0 if it holds nothing now.
HVDFT_API int hvdft_checkpointer_slot(hvdft_checkpointer* checkpointer, int rank, int loop,
                                      int slot, hvdft_snapshot* out);
// Copies its bytes: 1, or 0 if it does not hold that snapshot any more.
HVDFT_API int hvdft_checkpointer_copy(hvdft_checkpointer* checkpointer, int rank, int loop,
                                      int slot, const hvdft_snapshot* snapshot, void* to);
// How many training loops a rank has begun.
HVDFT_API int hvdft_checkpointer_loops(hvdft_checkpointer* checkpointer, int rank);
// How many messages rank `source` had sent to `dest` at the snapshot in a slot of a rank of this
// node, which is one of the two; or how many of them `dest` had received. -1: there is no such log.
HVDFT_API int64_t hvdft_checkpointer_messages(hvdft_checkpointer* checkpointer, int source,
                                              int dest, int sent, int loop, int slot);
// Rank 0's node: asks all ranks for a snapshot, by a mark, and all writers to write it. Returns the
// position that it lies behind.
HVDFT_API uint64_t hvdft_checkpointer_request(hvdft_checkpointer* checkpointer);
// Asks for another mark: one from before a training loop began has no effect in it.
HVDFT_API void hvdft_checkpointer_mark(hvdft_checkpointer* checkpointer);
HVDFT_API void hvdft_checkpointer_event(hvdft_checkpointer* checkpointer, uint32_t type,
                                        uint64_t detail);
// The next event of checkpoint writers from number *from on, which is moved behind it: 1, or 0.
HVDFT_API int hvdft_checkpointer_next(hvdft_checkpointer* checkpointer, uint64_t* from,
                                      hvdft_event* out);
// Waits for such an event, or with `any` for any event, from number `from` on; or for the time to
// be over; or for another thread to call hvdft_checkpointer_wake(), after the latest wait or in it.
HVDFT_API void hvdft_checkpointer_wait(hvdft_checkpointer* checkpointer, uint64_t from, int any,
                                       int timeout_ms);
HVDFT_API void hvdft_checkpointer_wake(hvdft_checkpointer* checkpointer);
HVDFT_API uint64_t hvdft_checkpointer_event_count(hvdft_checkpointer* checkpointer);
// Whether all ranks are done, and the job was not stopped.
HVDFT_API int hvdft_checkpointer_ended_well(hvdft_checkpointer* checkpointer);

#ifdef __cplusplus
}
#endif
#endif  // HVD_FT_CHECKPOINTS_H
