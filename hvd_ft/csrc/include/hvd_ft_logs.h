// The C ABI of logs that two have together: messages between workers (hvd_ft/p2p.py), and a look at
// these logs, at those of the ring's edges and at the op log (hvdft log show).
#ifndef HVDFT_LOGS_H
#define HVDFT_LOGS_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------- messages
// Every message arrives exactly once, whatever dies between. Calls about one peer come from one
// thread at a time.

typedef struct {
  uint64_t number;
  uint64_t bytes;
  const char* form;  // type and shape as the sender told them; valid as long as the worker
} hvdft_message;

// Sends to `dest`, without waiting for it: 1, or 0 if an earlier incarnation has sent this message.
// `form` and `checksum` of a repeated one are compared with what was sent.
HVDFT_API int hvdft_worker_send(int dest, int32_t tag, const char* form, uint32_t checksum,
                                const void* data, uint64_t bytes);
// Waits for the message that the next receive from `source` with this tag gets. HVDFT_AGAIN: it is
// not there within the time.
HVDFT_API int hvdft_worker_await_message(int source, int32_t tag, int timeout_ms,
                                         hvdft_message* out);
// Receives it: copies its data.
HVDFT_API int hvdft_worker_take_message(int source, const hvdft_message* message, void* to);

// What this rank has sent and received since its latest snapshot, and its share of the room that
// the arena has left: snapshots make room again.
HVDFT_API void hvdft_worker_message_room(uint64_t* own_bytes, uint64_t* share_bytes);

// ---------------------------------------------------------------- looking

// How far a node has come at its end of an edge of the ring between nodes. `step` and `segment`
// (ring_plan.h) are known while the log has the op.
typedef struct {
  uint64_t op, position;
  int32_t known, allgather;
  uint64_t step, segment;
} hvdft_ring_end;
// Of the node whose first rank this is: what it has received, or sent. 1, or 0: it is no node's
// first rank, or the job has one node. On other nodes it was so some milliseconds ago.
HVDFT_API int hvdft_observer_ring_end(hvdft_observer* observer, int rank, int sent,
                                      hvdft_ring_end* out);

typedef struct {
  uint64_t sent, received;  // messages
  uint64_t decided_before;  // those before it are dropped, or kept for ever
  uint64_t memory_bytes;    // of the log
} hvdft_pair;
// 1, or 0 if there are no messages from `source` to `dest`, as this node knows it.
HVDFT_API int hvdft_observer_pair(hvdft_observer* observer, int source, int dest, hvdft_pair* out);

// The signature of op `id`. 1, or 0 if the log does not have it any more.
HVDFT_API int hvdft_observer_op(hvdft_observer* observer, uint64_t id, char* out, int capacity);

#ifdef __cplusplus
}
#endif
#endif  // HVDFT_LOGS_H
