// The C ABI of libhvd_ft.so for training loops and their snapshots. Not in hvd_ft.h: Horovod is
// built with that file, and needs none of this.
#ifndef HVD_FT_SNAPSHOTS_H
#define HVD_FT_SNAPSHOTS_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// Training loops and their snapshots. Loops are numbered from 0 in the order in which the
// script begins them; each has two slots.
HVDFT_API int hvdft_worker_loop_begin(int loop, uint64_t* begin);
HVDFT_API int hvdft_worker_loop_end(int loop);    // its last snapshot is kept, the other slot freed
HVDFT_API int hvdft_worker_loop_ended(int loop);  // 1 ended, 0 not

// Snapshots. One at a time is begun, is filled, perhaps by another thread, and is delivered. It
// includes what this rank has sent and received before it was begun (hvd_ft_logs.h). Several ranks
// of a node can share one: see protocol/shared_snapshot.h.
typedef struct {
  uint64_t cut;        // its number: from 1, and it grows within the loop
  uint64_t position;   // the cursor at the moment whose state it holds
  uint64_t bytes;      // of this rank's slot
  uint64_t stripe;     // where in it this rank's share of what is equal on all ranks begins
  uint32_t agreement;  // what that is, as a hash; 0: all is this rank's own
} hvdft_snapshot;
// Publishes what has become complete. HVDFT_AGAIN: the other slot waits for other ranks of the
// node; 1: it has to stay until they take another snapshot. In neither case can one be begun. Nor
// can one of a cut that is delivered already: 1.
HVDFT_API int hvdft_worker_snapshot_settle(int loop);
// 1: the other slot has to stay only because ranks of other nodes have published nothing newer.
// Until they have, beginning a snapshot returns HVDFT_AGAIN; or 1, if one of these ranks has passed
// the cut without a snapshot.
HVDFT_API int hvdft_worker_snapshot_owed(int loop);
// From now on this process does not wait for ranks of other nodes before it overwrites a slot: if
// their nodes are lost, they may not find what they had shared.
HVDFT_API void hvdft_worker_snapshot_apart(void);
HVDFT_API int hvdft_worker_snapshot_begin(int loop, uint64_t cut, uint64_t position);
HVDFT_API int hvdft_worker_snapshot_room(int loop, uint64_t bytes, void** room);
HVDFT_API int hvdft_worker_snapshot_deliver(int loop, const hvdft_snapshot* snapshot);
// This rank will not deliver its part of a shared snapshot of this cut, nor of an earlier one.
HVDFT_API int hvdft_worker_snapshot_give_up(int loop, uint64_t cut);
// 1 and the latest snapshot, or 0; and the stripe of a rank on this node in that snapshot.
HVDFT_API int hvdft_worker_snapshot_get(int loop, const void** data, hvdft_snapshot* out);
HVDFT_API int hvdft_worker_snapshot_stripe(int loop, int rank, const void** data, uint64_t* bytes);
// A restarted worker cannot use the snapshot that hvdft_worker_snapshot_get() returns. 1: it is
// passed over from now on. It was complete and not yet published, so the log still reaches back to
// the one before, or to the loop's beginning if there is none; when the worker comes to its
// boundary again, it is taken again. 0: it is published, and the log may be truncated there.
HVDFT_API int hvdft_worker_snapshot_refuse(int loop);
// Marks: see protocol/sequencer.h. Asks for one at `position` or later. Whether this rank has
// passed one since the cursor was at `since`.
HVDFT_API void hvdft_worker_mark_request(uint64_t position);
HVDFT_API int hvdft_worker_mark_passed(int loop, uint64_t since);
// Fingerprints of a rank's variables at a cut of a loop, for the other ranks: published, none if it
// takes no part in the cut; and read: their bytes, HVDFT_AGAIN while they have not come, or
// HVDFT_ETRUNCATED if they never will, or the rank has given the cut up.
HVDFT_API int hvdft_worker_fingerprints_publish(int loop, uint64_t cut, const void* data,
                                                uint64_t bytes);
HVDFT_API int64_t hvdft_worker_fingerprints(int rank, int loop, uint64_t cut, void* out,
                                            uint64_t capacity);
// Likewise, for rank 0, which compares those of all ranks: what a rank has published counts even if
// it has given the cut up.
HVDFT_API int64_t hvdft_worker_published(int rank, int loop, uint64_t cut, void* out,
                                         uint64_t capacity);
// Rank 0's worker has found a divergence: all ranks see the event. Reading one: as an observer.
HVDFT_API void hvdft_worker_diverged(const hvdft_divergence* found);
HVDFT_API int hvdft_worker_divergence(uint64_t number, hvdft_divergence* out);
// This rank has taken part in all cuts of the loop, up to this one, in which it is going to.
HVDFT_API void hvdft_worker_cuts_passed(int loop, uint64_t cut);
// Waiting for other ranks' fingerprints and parts: take the ticket, look, then wait.
HVDFT_API uint32_t hvdft_worker_snapshot_ticket(void);
HVDFT_API void hvdft_worker_snapshot_wait(uint32_t ticket, int timeout_ms);
// Whether another rank is being restarted, or is being served from the log; or no leader works on
// this node, so that no news of other nodes arrives. Ask every second or more often while you wait:
// a leader is missed when it has done nothing between two calls for a second.
HVDFT_API int hvdft_worker_any_away(void);
// The ranks on this node that are present at a position of the log, their number returned; and a
// present rank on another node that has what these share, -1 if there is none.
HVDFT_API int hvdft_worker_node_ranks(uint64_t position, int* ranks);
HVDFT_API int hvdft_worker_reference(uint64_t position);
HVDFT_API int hvdft_worker_jump(int loop);  // cursor to the snapshot's position
HVDFT_API void hvdft_worker_count_snapshots(const hvdft_snapshots* more);  // `steps` is set
// The part of the log that snapshots can truncate, and how much of that the arena has room for.
typedef struct {
  uint64_t bytes, bytes_room, ops, ops_room;
} hvdft_log;
HVDFT_API void hvdft_worker_log(hvdft_log* out);
HVDFT_API void hvdft_worker_memory(hvdft_memory* out);  // of this node, now
// As in hvdft_status, but of the present training loop.
HVDFT_API uint64_t hvdft_worker_step_bytes(void);

#ifdef __cplusplus
}
#endif
#endif  // HVD_FT_SNAPSHOTS_H
