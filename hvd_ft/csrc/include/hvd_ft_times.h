/* The C ABI of the core, continued: how ranks spend their time. */
#ifndef HVDFT_TIMES_H
#define HVDFT_TIMES_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of one rank, over all its incarnations, measured on its own node by its own clock alone. A round
// ends when no tensor is pending any more. The four times add up to the whole time of all rounds.
typedef struct {
  uint64_t rounds;
  uint64_t compute_ns;  // until it had handed its last tensor over
  uint64_t wait_ns;     // then blocked: in receives, and while ranks had not announced theirs
  uint64_t copy_ns;     // blocked while an op was under way: copies and sums on its node, …
  uint64_t network_ns;  // … or nothing was left to do there, and other nodes' parts were missing
} hvdft_times;

// As the rank publishes them; those of another node's ranks are as old as the mirror is.
HVDFT_API int hvdft_observer_times(hvdft_observer* observer, int rank, hvdft_times* out);
HVDFT_API void hvdft_worker_times(hvdft_times* out);

// Of scripts that compute on after they have handed tensors over: a thread waits for results from
// now on, and no longer. A script that has never said so is taken to wait from its last hand-over
// on.
HVDFT_API void hvdft_worker_script_waits(void);
HVDFT_API void hvdft_worker_script_goes_on(void);

// When a rank came to an op, CLOCK_MONOTONIC in nanoseconds; 0: not yet, or an earlier incarnation
// did. Of the ring, whose member a node is: begun: the op's first message had come; contributed:
// the last one to which the node adds its own sum, so the reduce-scatter was over; 0: a gathered
// op; done: the last one had come; handed: 0.
typedef struct {
  uint64_t op;
  uint64_t handed_ns;       // its script had handed tensors over, latest before …
  uint64_t begun_ns;        // … the op began: all ranks had announced theirs
  uint64_t contributed_ns;  // it had contributed all of its input
  uint64_t done_ns;         // it had taken the result
} hvdft_op_moments;
// Those of a rank's latest ops, in no order, or of the ring (`of_ring`) those of the node whose
// first rank this is; returns how many. Of another node only rank 0's has some, if ops are traced:
// by this node's clock, and as old as the mirror is.
HVDFT_API int hvdft_observer_op_moments(hvdft_observer* observer, int rank, int of_ring,
                                        hvdft_op_moments* out, int capacity);
// From now on the mirror copies when this node's ranks, and the node in the ring, came to each op.
HVDFT_API void hvdft_agent_trace_ops(hvdft_agent* agent);
// How far, in nanoseconds, this node's clock is ahead of that of another node whose first rank this
// is, at most: it includes the shortest time that a message took. 0 for others, and while no
// message has come from there.
HVDFT_API int64_t hvdft_observer_clock_ahead(hvdft_observer* observer, int first_rank);

#ifdef __cplusplus
}
#endif

#endif  // HVDFT_TIMES_H
