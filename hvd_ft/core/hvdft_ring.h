// The C ABI of the ring's protocol (ring.h, ring_plan.h and pair_log.h tell what it means), for
// drivers that are not in C++. Nothing here waits, allocates but in _new, or touches data.
#ifndef HVDFT_RING_H
#define HVDFT_RING_H

#include "hvd_ft.h"

#ifdef __cplusplus
extern "C" {
#endif

// An op's plan. Filled in by hvdft_ring_make_plan, then only read.
typedef struct {
  uint64_t members, bytes;
  uint64_t segment_bytes;  // the most that a message carries; rounded up to cache lines
  uint64_t segments;       // of a step
  uint64_t positions;      // on an edge
  uint64_t inputs;         // of a member
} hvdft_ring_plan;

enum { HVDFT_RING_REDUCE_SCATTER = 0, HVDFT_RING_ALLGATHER = 1 };
typedef struct {
  uint32_t phase;
  uint32_t reserved;
  uint64_t step, segment;
  uint64_t from, to;  // bytes of the op's data
} hvdft_ring_at;

HVDFT_API int hvdft_ring_make_plan(uint64_t members, uint64_t bytes, uint64_t segment_bytes,
                                   hvdft_ring_plan* out);
// What passes over an edge (the number of the member that sends) at a position below `positions`.
HVDFT_API void hvdft_ring_on_edge(const hvdft_ring_plan* plan, uint64_t edge, uint64_t position,
                                  hvdft_ring_at* out);
// A member's i-th input, in the order in which it is wanted; its i-th result to be final; and how
// many of these are when it has received up to a position.
HVDFT_API void hvdft_ring_input(const hvdft_ring_plan* plan, uint64_t member, uint64_t i,
                                uint64_t* from, uint64_t* to);
HVDFT_API void hvdft_ring_result(const hvdft_ring_plan* plan, uint64_t member, uint64_t i,
                                 uint64_t* from, uint64_t* to);
HVDFT_API uint64_t hvdft_ring_results(const hvdft_ring_plan* plan, uint64_t position);

// A place is how far an edge has come: an op and a position in one word. Later is greater.
HVDFT_API uint64_t hvdft_ring_place(uint64_t op, uint64_t position);
HVDFT_API void hvdft_ring_unpack(uint64_t place, uint64_t* op, uint64_t* position);

// A pair log in shared memory, zeroed at first: so many bytes, aligned to a cache line.
enum { HVDFT_RING_RECEIVED = 0, HVDFT_RING_SENT = 1 };  // a member's ends of its two edges
HVDFT_API uint64_t hvdft_ring_log_bytes(void);
HVDFT_API uint64_t hvdft_ring_log_place(const void* log, int end);
HVDFT_API uint64_t hvdft_ring_log_generation(const void* log, int end);
HVDFT_API void hvdft_ring_log_publish(void* log, int end, uint64_t place);
HVDFT_API void hvdft_ring_log_made_in(void* log, int end, uint64_t generation);

// What is to be sent or received next.
enum {
  HVDFT_RING_SEND_INPUT = 0,
  HVDFT_RING_SEND_RESULT = 1,
  HVDFT_RING_ADD = 2,   // result = received + input, once more than `input` inputs are ready
  HVDFT_RING_STORE = 3  // result = received
};
typedef struct {
  uint64_t place;
  uint64_t from, to;  // bytes of the op's data
  uint32_t what;
  uint32_t reserved;
  uint64_t input;
} hvdft_ring_transfer;

// A half of a member: each of one thread. _begun: it has the plan of _op; else it waits for it.
typedef struct hvdft_ring_sender hvdft_ring_sender;
HVDFT_API hvdft_ring_sender* hvdft_ring_sender_new(uint64_t member);
HVDFT_API void hvdft_ring_sender_free(hvdft_ring_sender* half);
HVDFT_API uint64_t hvdft_ring_sender_op(const hvdft_ring_sender* half);
HVDFT_API int hvdft_ring_sender_begun(const hvdft_ring_sender* half);
HVDFT_API void hvdft_ring_sender_begin(hvdft_ring_sender* half, const hvdft_ring_plan* plan);
HVDFT_API void hvdft_ring_sender_resume(hvdft_ring_sender* half, uint64_t generation,
                                        uint64_t successor_has);
HVDFT_API void hvdft_ring_sender_pause(hvdft_ring_sender* half);
// 1, or 0: nothing to send now. `received`: the member's own record of what it has received.
HVDFT_API int hvdft_ring_sender_next(const hvdft_ring_sender* half, uint64_t received,
                                     uint64_t inputs, hvdft_ring_transfer* out);
HVDFT_API uint64_t hvdft_ring_sender_sent(hvdft_ring_sender* half);  // the place to publish

typedef struct hvdft_ring_receiver hvdft_ring_receiver;
HVDFT_API hvdft_ring_receiver* hvdft_ring_receiver_new(uint64_t member, uint64_t members,
                                                       uint64_t record);
HVDFT_API void hvdft_ring_receiver_free(hvdft_ring_receiver* half);
HVDFT_API uint64_t hvdft_ring_receiver_op(const hvdft_ring_receiver* half);
HVDFT_API int hvdft_ring_receiver_begun(const hvdft_ring_receiver* half);
// Returns the place to publish: ops without data are passed by.
HVDFT_API uint64_t hvdft_ring_receiver_begin(hvdft_ring_receiver* half,
                                             const hvdft_ring_plan* plan);
// Returns the place to tell the predecessor.
HVDFT_API uint64_t hvdft_ring_receiver_remade(hvdft_ring_receiver* half, uint64_t generation);
HVDFT_API int hvdft_ring_receiver_next(const hvdft_ring_receiver* half, hvdft_ring_transfer* out);
HVDFT_API int hvdft_ring_receiver_accepts(const hvdft_ring_receiver* half, uint64_t generation,
                                          uint64_t place);
HVDFT_API uint64_t hvdft_ring_receiver_received(hvdft_ring_receiver* half);  // to publish

#ifdef __cplusplus
}
#endif
#endif  // HVDFT_RING_H
