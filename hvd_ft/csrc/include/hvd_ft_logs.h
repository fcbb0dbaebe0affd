// The C ABI of logs that two ends share: messages between workers (hvd_ft/p2p.py), and reading
// these logs, those of the ring's edges and the op log (hvdft log show).
#ifndef HVDFT_LOGS_H
#define HVDFT_LOGS_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------- messages
// Every message arrives exactly once, whatever dies in between. Calls about one peer come from one
// thread at a time.

typedef struct {
  uint64_t number;
  uint64_t bytes;
  const char* form;  // type and shape as the sender gave them; valid as long as the worker is open
} hvdft_message;

// Sends to `dest` without waiting for it: 1, or 0 if an earlier incarnation has sent this message.
// `form` and checksum of a repeated message are compared with those of the first.
HVDFT_API int hvdft_worker_send(int dest, int32_t tag, const char* form, const void* data,
                                uint64_t bytes);
// Waits for the message of the next receive from `source` with this tag. HVDFT_AGAIN: it has not
// come in time.
HVDFT_API int hvdft_worker_await_message(int source, int32_t tag, int timeout_ms,
                                         hvdft_message* out);
// Receives it: copies its data. HVDFT_EINVAL if these are not what was sent.
HVDFT_API int hvdft_worker_take_message(int source, const hvdft_message* message, void* to);

// Bytes that this rank has sent and received since its latest snapshot, and its share of the free
// room in the arena; snapshots free room again.
HVDFT_API void hvdft_worker_message_room(uint64_t* own_bytes, uint64_t* share_bytes);

// ---------------------------------------------------------------- looking

// A node's progress at its ends of the edges between nodes. `phase`, `step` and `segment`
// (ring_plan.h) are known while the log has the op; of a gathered op `step` is the round.
enum { HVDFT_PHASE_REDUCE_SCATTER = 0, HVDFT_PHASE_ALLGATHER = 1, HVDFT_PHASE_GATHER = 2 };
typedef struct {
  uint64_t op, position;
  int32_t known, phase;
  uint64_t step, segment;
} hvdft_ring_end;
// The progress of the node whose first rank this is: received, or sent. 0 if it is not a node's
// first rank, or the job has one node; otherwise 1. For other nodes the values are some
// milliseconds old.
HVDFT_API int hvdft_observer_ring_end(hvdft_observer* observer, int rank, int sent,
                                      hvdft_ring_end* out);

// What the leader of this node has done so far, over all generations but for what it has sent; 0 in
// a job of one node. For measurements.
typedef struct {
  uint64_t sent_messages, sent_bytes;  // to other nodes, …
  uint64_t data_messages, data_bytes;  // … of that the ops' data, over the ring or gathered
  uint64_t naps;                       // of its threads
  uint64_t looks;                      // at a rank, for one of the mirror's links
} hvdft_traffic;
HVDFT_API void hvdft_observer_traffic(hvdft_observer* observer, hvdft_traffic* out);

// On rank 0's node: what the coordinator has taken so far of what other ranks have announced. For
// measurements.
typedef struct {
  uint64_t announcements, bytes;
} hvdft_announced;
HVDFT_API void hvdft_observer_announced(hvdft_observer* observer, hvdft_announced* out);

typedef struct {
  uint64_t sent, received;  // messages
  uint64_t decided_before;  // messages before it are dropped, or kept for ever
  uint64_t memory_bytes;    // of the log
} hvdft_pair;
// 1, or 0 if this node knows of no messages from `source` to `dest`.
HVDFT_API int hvdft_observer_pair(hvdft_observer* observer, int source, int dest, hvdft_pair* out);

// The id of the note of this kind with this number (see hvdft_worker_note); HVDFT_AGAIN if the log
// has fewer.
HVDFT_API int64_t hvdft_observer_note(hvdft_observer* observer, uint32_t kind, uint64_t number);

// The signature of op `id`. 1, or 0 if the log no longer has it.
HVDFT_API int hvdft_observer_op(hvdft_observer* observer, uint64_t id, char* out, int capacity);

// How far the log's op `id` has come on this node.
typedef struct {
  uint64_t bytes;     // of its result
  uint64_t segments;  // in which this node's ranks sum it, …
  uint64_t reduced;   // … of them summed over all ranks
  uint64_t gathered;  // 1 if nodes gather it, 0 if it goes round the ring
} hvdft_op_progress;
// 1, or 0 if the log no longer has it.
HVDFT_API int hvdft_observer_op_progress(hvdft_observer* observer, uint64_t id,
                                         hvdft_op_progress* out);

// How far a rank of this node has come; of another node's only `op` and `segment` are known.
typedef struct {
  uint64_t op, segment;  // it has contributed all ops before, and so many segments of this one
  uint64_t announced;    // announcements, twice
  uint64_t taken;        // the same, of those that the coordinator has taken
} hvdft_rank_progress;
HVDFT_API void hvdft_observer_rank_progress(hvdft_observer* observer, int rank,
                                            hvdft_rank_progress* out);

// The node's ranks: the first one, and how many.
HVDFT_API int hvdft_observer_first_local(hvdft_observer* observer);
HVDFT_API int hvdft_observer_locals(hvdft_observer* observer);

#ifdef __cplusplus
}
#endif
#endif  // HVDFT_LOGS_H
