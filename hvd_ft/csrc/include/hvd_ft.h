// The C ABI of libhvd_ft.so: the one door into the core.
//
// Three kinds of process come through it: the agent (Python, through
// hvd_ft/native/core.py), the worker's Python (the same file) and Horovod's ft
// backend in the worker (hvd_ft/csrc/horovod/, which finds the library by the path in
// HOROVOD_FT_LIBRARY, so that the process holds one copy of the state).
//
// Words are those of docs/glossary.md. Offsets and sizes are bytes.
// Functions that can fail return a negative HVDFT_E* code; hvdft_error() then tells
// the calling thread what happened, why, and what to do, in one line.
#ifndef HVD_FT_H
#define HVD_FT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVDFT_API __attribute__((visibility("default")))

enum {
  HVDFT_OK = 0,
  HVDFT_AGAIN = -1,      // not now: wait on the doorbell and try again
  HVDFT_EINVAL = -2,     // the call or the file is wrong
  HVDFT_ENOSPACE = -3,   // the arena's limit or its filesystem is reached
  HVDFT_ESTOPPED = -4,   // the job is being stopped
  HVDFT_ESYS = -5,       // the system refused (hvdft_error() has errno's text)
  HVDFT_ETRUNCATED = -6  // the log no longer has this op; what is waited for never comes
};

// What is done with an op's inputs.
enum {
  HVDFT_NONE = 0,    // nothing to compute: barrier, error
  HVDFT_REDUCE = 1,  // elementwise over the ranks, in rank order
  HVDFT_COPY = 2,    // the root's input is the result
  HVDFT_CONCAT = 3,  // the ranks' inputs one after the other, in rank order
  HVDFT_ROSTER = 4,  // nothing to compute: it begins the roster with the number `root`
  // Notes: nothing to compute, and no rank's; see hvdft_worker_note().
  HVDFT_REQUESTS = 5,  // numbers requests, which are announced by their numbers from then on
  HVDFT_TUNED = 6,     // a parameter that autotuning has changed
  HVDFT_FIRST_NOTE = HVDFT_REQUESTS,
  HVDFT_LAST_NOTE = HVDFT_TUNED
};

// Horovod's DataType, value for value (horovod/common/message.h).
enum {
  HVDFT_UINT8 = 0,
  HVDFT_INT8 = 1,
  HVDFT_UINT16 = 2,
  HVDFT_INT16 = 3,
  HVDFT_INT32 = 4,
  HVDFT_INT64 = 5,
  HVDFT_FLOAT16 = 6,
  HVDFT_FLOAT32 = 7,
  HVDFT_FLOAT64 = 8,
  HVDFT_BOOL = 9,
  HVDFT_BFLOAT16 = 10
};

enum { HVDFT_SUM = 0, HVDFT_MIN = 1, HVDFT_MAX = 2, HVDFT_PRODUCT = 3 };

// State of a rank, as agents and workers publish it.
enum {
  HVDFT_STARTING = 0,  // incarnation 0, before it enters the negotiation
  HVDFT_RUNNING = 1,
  HVDFT_WAITING = 2,     // blocked, in a collective or a receive, while another one is down
  HVDFT_RESTARTING = 3,  // its worker died; the next incarnation is on its way
  HVDFT_REPLAYING = 4,   // attached again, being served from the log
  HVDFT_DONE = 5         // its worker ended by itself
};

// Types of events in the node's event list.
enum {
  HVDFT_EV_LOST = 0,      // overwritten before it was read, or its writer was killed
  HVDFT_EV_STARTED = 1,   // worker process started         detail: pid
  HVDFT_EV_FAILED = 2,    // the agent saw its worker die    detail: exit status as in wait(2)
  HVDFT_EV_ATTACHED = 3,  // worker attached to the arena    detail: length of the log then
  HVDFT_EV_RESTORED = 4,  // snapshot loaded                 detail: op id of its position
  HVDFT_EV_JOINED = 5,    // takes part in negotiation again detail: ops replayed
  HVDFT_EV_WAITED = 6,  // waited for a dead rank          detail: nanoseconds, ending at `time_ns`
  HVDFT_EV_DONE = 7,    // worker ended by itself          detail: exit status as in wait(2)
  HVDFT_EV_SNAPSHOT = 8,  // snapshot published              detail: op id of its position
  HVDFT_EV_ADOPTED = 9,   // a new agent took over the rank  detail: its generation
  HVDFT_EV_RESUMED = 10,  // a node's ring goes on           detail: op id << 28 | position
  HVDFT_EV_DIVERGED = 11  // it saw ranks' variables differ  detail: number of the divergence
};

typedef struct {
  uint64_t time_ns;  // CLOCK_MONOTONIC
  uint32_t type;
  uint32_t rank;
  uint32_t incarnation;
  uint32_t reserved;
  uint64_t detail;
} hvdft_event;

// Variables that were equal on all ranks, and at a step boundary no longer are.
typedef struct {
  uint64_t step;        // steps done at that boundary
  uint64_t equal_step;  // at the latest boundary at which the ranks were found equal
  uint64_t variables;   // how many differ since then
  uint64_t ranks[4];    // those that stand apart: bit r % 64 of word r / 64 is rank r
  char variable[200];   // name of the first one, cut off if it is too long
} hvdft_divergence;

typedef struct {
  uint32_t state;
  uint32_t incarnation;
  uint64_t pid;         // of the worker, 0 when there is none
  uint64_t step;        // as the training loop last told it
  uint64_t executed;    // ops
  uint64_t since_ns;    // when `state` began, CLOCK_MONOTONIC
  uint64_t step_bytes;  // of the results of a training step, without broadcasts; the most so far
} hvdft_status;

// What snapshots have cost a rank, over all its incarnations.
typedef struct {
  uint64_t count;        // snapshots published
  uint64_t steps;        // from the latest one to the next, as chosen
  uint64_t training_ns;  // time in training loops
  uint64_t stall_ns;     // of this, time in which training stood still for snapshots
  uint64_t copy_ns;      // CPU time of the thread that copies while training goes on
} hvdft_snapshots;

// The memory of a node's arenas, by what it is for.
typedef struct {
  uint64_t total;          // slots, heap, messages, input areas and control area
  uint64_t slots;          // of snapshots; the latest snapshots in them hold …
  uint64_t shared_state;   // … what the node's ranks share, once for all, …
  uint64_t private_state;  // … and what each rank has of its own, or stores alone
  uint64_t heap;           // of the op log: its ops, and what is free between them
  uint64_t log;            // of this, ops that truncation can free, …
  uint64_t kept;           // … and ops that are kept as long as the job lives
  uint64_t messages;
  uint64_t input_areas;
  uint64_t control;
  uint64_t limit;  // of the total
} hvdft_memory;

// Counters that show whether a worker makes progress: if two readings are equal, it has done
// nothing in between.
typedef struct {
  uint32_t state;
  uint32_t incarnation;
  int64_t pending;  // tensors handed to Horovod and not yet executed
  uint32_t asleep;  // its Horovod thread waits and has not been notified since
  uint32_t reserved;
  uint64_t contributed;  // ops
  uint64_t executed;     // ops
  uint64_t announced;    // announcements, twice
  uint64_t step;
} hvdft_watch;

// Points in a worker's life at which a drill (hvdft run --inject) can strike; docs/how-to/drills.md
// tells where each one is.
enum {
  HVDFT_AT_START = 0,
  HVDFT_AT_ATTACH = 1,
  HVDFT_AT_JOIN = 2,
  HVDFT_AT_ANNOUNCE = 3,
  HVDFT_AT_PROPOSE = 4,
  HVDFT_AT_PROPOSED = 5,
  HVDFT_AT_COPY_IN = 6,
  HVDFT_AT_CONTRIBUTE = 7,
  HVDFT_AT_REDUCE = 8,
  HVDFT_AT_WAIT = 9,
  HVDFT_AT_COPY_OUT = 10,
  HVDFT_AT_EXECUTED = 11,
  HVDFT_AT_STEP = 12,
  HVDFT_AT_SNAPSHOT_WRITE = 13,
  HVDFT_AT_SNAPSHOT_PUBLISH = 14,
  HVDFT_AT_SNAPSHOT_PUBLISHED = 15,
  HVDFT_AT_RESTORE = 16,
  HVDFT_AT_REPLAY = 17,
  HVDFT_AT_END = 18,
  HVDFT_AT_EXIT = 19,
  HVDFT_AT_SEND = 20,
  HVDFT_AT_SENT = 21,
  HVDFT_AT_RECEIVE = 22,
  HVDFT_AT_RECEIVED = 23,
  HVDFT_AT_MARK = 24,
  HVDFT_AT_FINGERPRINTS = 25,
  HVDFT_AT_SNAPSHOT_DROP = 26,
  HVDFT_AT_SNAPSHOT_DELIVERED = 27,
  HVDFT_AT_RETURN = 28
};

HVDFT_API const char* hvdft_error(void);
HVDFT_API const char* hvdft_version(void);

// For the shim: the calling process dies with its parent; orphans come to the caller.
HVDFT_API int hvdft_die_with_parent(void);
HVDFT_API int hvdft_become_subreaper(void);

// ---------------------------------------------------------------- the job's files
// `dir` is the job's directory (0700, made by the caller). Creating is the agent's
// part: local rank 0 makes node.arena, each agent its own rank-<r>.arena, all 0600.

// Of the job's `size` ranks, on `nodes` nodes, `locals` are on this node, number `node`, from
// `first_local` on. `window_bytes`: of each rank's input area, the same for all of a node; a power
// of two.
HVDFT_API int hvdft_create_node(const char* dir, const char* job, int size, int nodes, int node,
                                int first_local, int locals, uint64_t limit_bytes,
                                uint64_t window_bytes);
HVDFT_API int hvdft_create_rank(const char* dir, const char* job, int rank, uint64_t limit_bytes,
                                uint64_t window_bytes);

// A read-only look at a job: launcher, live display, reports.
typedef struct hvdft_observer hvdft_observer;
HVDFT_API hvdft_observer* hvdft_observer_open(const char* dir);  // NULL: see hvdft_error()
HVDFT_API void hvdft_observer_close(hvdft_observer* observer);
HVDFT_API int hvdft_observer_size(hvdft_observer* observer);
HVDFT_API int hvdft_observer_status(hvdft_observer* observer, int rank, hvdft_status* out);
HVDFT_API int hvdft_observer_snapshots(hvdft_observer* observer, int rank, hvdft_snapshots* out);
HVDFT_API int hvdft_observer_watch(hvdft_observer* observer, int rank, hvdft_watch* out);
// Whether a rank has left the job, in the roster in force, and has ended: 0 if not; HVDFT_HAS_LEFT;
// or HVDFT_MAY_RETURN, in the training loop in which it has left.
enum { HVDFT_HAS_LEFT = 1, HVDFT_MAY_RETURN = 2 };
HVDFT_API int hvdft_observer_left(hvdft_observer* observer, int rank);
// Copies events [from, from + capacity) of the node's list; returns how many there were. The node
// has those of its own ranks, and those of any rank that are for all nodes.
HVDFT_API int hvdft_observer_events(hvdft_observer* observer, uint64_t from, hvdft_event* out,
                                    int capacity);
// On rank 0's node: likewise, of the list of all ranks' events.
HVDFT_API int hvdft_observer_report(hvdft_observer* observer, uint64_t from, hvdft_event* out,
                                    int capacity);
// How many divergences there were; and one of the latest 64 of them, HVDFT_EINVAL if it is older or
// has not come.
HVDFT_API uint64_t hvdft_observer_divergences(hvdft_observer* observer);
HVDFT_API int hvdft_observer_divergence(hvdft_observer* observer, uint64_t number,
                                        hvdft_divergence* out);
// The memory of the node whose first rank this is: now, or the most that each part of it has been
// since the job began, each at its own moment. 1, or 0 if it is not a node's first rank. Only rank
// 0's node knows that of others, some milliseconds late.
HVDFT_API int hvdft_observer_memory(hvdft_observer* observer, int rank, int most,
                                    hvdft_memory* out);
// Bytes that count against the limit: without the input areas and the control area.
HVDFT_API uint64_t hvdft_observer_used_bytes(hvdft_observer* observer);
HVDFT_API uint64_t hvdft_observer_limit_bytes(hvdft_observer* observer);
HVDFT_API uint64_t hvdft_observer_window_bytes(hvdft_observer* observer);  // of an input area
HVDFT_API uint64_t hvdft_observer_generation(hvdft_observer* observer);    // of the newest agents
HVDFT_API uint64_t hvdft_observer_log_length(hvdft_observer* observer);
HVDFT_API uint64_t hvdft_observer_log_records(hvdft_observer* observer);  // not truncated

// ---------------------------------------------------------------- agent
typedef struct hvdft_agent hvdft_agent;
// `generation`: of the agents. The arenas are new in generation 0; later generations take over
// those of older agents, and are refused if an agent of a later generation has been there.
HVDFT_API hvdft_agent* hvdft_agent_open(const char* dir, const char* job, int rank,
                                        uint64_t generation);
// How ops are done. The log says it of each op, so all nodes do the same, in later generations too,
// whatever these are given.
typedef struct {
  uint64_t node_segment;   // bytes that a node's ranks sum at a time: a power of two
  uint64_t most_gathered;  // between nodes ops of up to so many bytes are gathered (gather_plan.h)
  uint64_t ring_segment;   // the largest message of the ring between nodes, for others
  uint64_t ablates_network;  // 1 or 0, for measurements: no node's sums leave it
} hvdft_op_rules;
// Rank 0's on one node: the log's thread. The others need no rules. HVDFT_EINVAL.
HVDFT_API int hvdft_agent_start(hvdft_agent* agent, const hvdft_op_rules* rules);
HVDFT_API void hvdft_agent_close(hvdft_agent* agent);
HVDFT_API void hvdft_agent_started(hvdft_agent* agent, int incarnation, uint64_t pid);
HVDFT_API void hvdft_agent_failed(hvdft_agent* agent, int status);
HVDFT_API void hvdft_agent_done(hvdft_agent* agent, int status);
// Stops the job with a message (the first one counts) and an exit code.
HVDFT_API void hvdft_agent_fatal(hvdft_agent* agent, int exit_code, const char* message);
// Waits until the job is stopped (1), all ranks are done (2), there are more than `seen` events
// (3), or the time is over or hvdft_agent_wake() was called (0). Only one thread may wait.
HVDFT_API int hvdft_agent_wait(hvdft_agent* agent, uint64_t seen, int timeout_ms);
HVDFT_API void hvdft_agent_wake(hvdft_agent* agent);  // ends hvdft_agent_wait, from any thread
// Rank 0's agent: as hvdft_worker_ask_to_leave, but does not wait.
HVDFT_API void hvdft_agent_ask_to_leave(hvdft_agent* agent, const uint64_t* leaving);
// Whether the worker has announced that it ends by itself.
HVDFT_API int hvdft_agent_orderly_exit(hvdft_agent* agent);
// The last words of the worker of the present incarnation; "" if none.
HVDFT_API void hvdft_agent_last_words(hvdft_agent* agent, char* out, int capacity);
HVDFT_API uint64_t hvdft_agent_event_count(hvdft_agent* agent);  // of rank 0's: in both lists
HVDFT_API int hvdft_agent_fatal_text(hvdft_agent* agent, char* out, int capacity, int* exit_code,
                                     int* rank);

// ---------------------------------------------------------------- worker
// One per process. Attaches by the environment the agent set: HOROVOD_FT_DIR,
// HOROVOD_FT_JOB, HOROVOD_RANK, HOROVOD_FT_INCARNATION. Calling it again returns the same.
HVDFT_API int hvdft_worker_open(void);
HVDFT_API int hvdft_worker_rank(void);
HVDFT_API int hvdft_worker_size(void);
HVDFT_API int hvdft_worker_nodes(void);  // of the job: the members of its ring
HVDFT_API int hvdft_worker_incarnation(void);

// Waiting: take the ticket, look at the state, then wait if there is nothing to do.
HVDFT_API uint32_t hvdft_worker_ticket(void);
HVDFT_API int hvdft_worker_wait(uint32_t ticket, int timeout_ms);  // 1 notified, 0 time is over
HVDFT_API int hvdft_worker_waits(void);  // 1 if some rank is being restarted: it waits for that one
HVDFT_API void hvdft_worker_notify(void);  // ends the wait: from the worker's other threads

// Negotiation. A term begins when ranks enter again; what was announced in an older
// term is void and has to be announced again. Read the term, then look whether the log has
// the op, and only then announce it in that term: the other way round an op could be agreed,
// a new term begin, and the op be announced in that one though the log has it.
HVDFT_API uint64_t hvdft_worker_term(void);
HVDFT_API int hvdft_worker_entered(void);
HVDFT_API int hvdft_worker_enter(uint64_t log_length);
// Ends the session, which lasts from hvd.init to hvd.shutdown: this rank takes part in nothing
// until it enters again, which begins its next session.
HVDFT_API void hvdft_worker_leave(void);
// This rank has caught up with the others: replay is over. Only the first call counts.
HVDFT_API void hvdft_worker_caught_up(void);
HVDFT_API int hvdft_worker_announce(uint64_t term, const void* blob, uint64_t bytes);
// Coordinator: the next announcement of `rank` in `term` into *blob (valid until the next
// call); returns its bytes or HVDFT_AGAIN.
HVDFT_API int64_t hvdft_worker_take(int rank, uint64_t term, const void** blob);

typedef struct {
  uint32_t kind, dtype, reduce, root;
  uint64_t result_bytes;
  // Each rank's bytes, for HVDFT_CONCAT, and for an HVDFT_REDUCE of only some ranks (all or
  // nothing). Otherwise NULL.
  const uint64_t* block_bytes;
  const void* response;  // Horovod's Response, serialised; opaque to the core
  uint64_t response_bytes;
  const char* signature;  // what was agreed, readable; compared on replay
  // 1: ranks take the result as views of the log (hvdft_worker_view), not by copy_out; in jobs on
  // one node only. So the result is multiplied by `factor` before it is stored; 1 if it is neither
  // HVDFT_FLOAT32 nor _FLOAT64.
  uint32_t viewed;
  uint32_t common;  // 1 if all present ranks take part
  double factor;
} hvdft_op;

// Coordinator: asks that `count` ops be appended to the log. Waits only for the answer to the
// previous proposal. If the term changes meanwhile they are not appended.
HVDFT_API int hvdft_worker_propose(uint64_t term, const hvdft_op* ops, int count);

// The log. Every rank passes every op, even those of process sets that it is not in, so that no
// rank ever waits for it. The cursor is the position of its script: after the last op that it took
// part in. The next op to be executed or passed may be a later one.
HVDFT_API uint64_t hvdft_worker_log_length(void);
HVDFT_API uint64_t hvdft_worker_cursor(void);
HVDFT_API uint64_t hvdft_worker_next(void);
typedef struct {
  uint64_t id;
  uint32_t kind, dtype, reduce, root;
  uint64_t result_bytes;
  const uint64_t* block_bytes;
  const void* result;  // the node's result, valid once complete
  const void* response;
  uint64_t response_bytes;
  const char* signature;
  uint32_t viewed;
} hvdft_record;
HVDFT_API int hvdft_worker_record(uint64_t id, hvdft_record* out);

// Notes are the coordinator's, for all ranks and for later coordinators; what their responses say
// is Horovod's side's. The log keeps all of them as long as the job lives, so they say the same to
// every rank, also to a restarted one. The note of this kind with this number, from 0 on;
// HVDFT_AGAIN if the log has fewer.
enum { HVDFT_NOTES = 1024 };  // the most that there may be of a kind
HVDFT_API int hvdft_worker_note(uint32_t kind, uint64_t number, hvdft_record* out);

// Rosters: which ranks take part (protocol/roster.h). The number of the one in force where this
// rank's script is; the ranks of one, their number returned.
HVDFT_API uint64_t hvdft_worker_roster(void);
HVDFT_API int hvdft_worker_present(uint64_t roster, int* ranks);
// At a step boundary of a loop: the number of the next roster if this rank is to begin it here,
// else 0.
HVDFT_API uint64_t hvdft_worker_roster_due(int loop);
// Where a loop begins for a rank without a snapshot of it: whether the rank has left the job, and
// goes on in this loop, where a roster with it begins.
HVDFT_API int hvdft_worker_returns(int loop);
// Then: waits for that, and moves the cursor there. 1; 0 if the loop ends without it: the cursor is
// then at the log's end, and the rank is still not in the roster. HVDFT_ESTOPPED.
HVDFT_API int hvdft_worker_return(int loop);
// Rank 0's worker, for a drill: asks that these ranks leave, and waits until a roster without them
// is announced, or HVDFT_ESTOPPED. Rank r is bit r % 64 of word r / 64, of 64 words. Rank 0 stays.
HVDFT_API int hvdft_worker_ask_to_leave(const uint64_t* leaving);

// Executing ops, several at once. The caller copies data in and out, a stretch at a time. `from`
// counts from the beginning of this rank's input, or of the op's result.
typedef struct {
  void (*copy_in)(void* context, uint64_t from, uint64_t bytes, void* to);
  void (*copy_out)(void* context, uint64_t from, uint64_t bytes, const void* result);  // or NULL
  void* context;
} hvdft_copies;
// Begins an op, in the log's order; `copies` are called by hvdft_worker_advance.
HVDFT_API int hvdft_worker_begin(uint64_t id, const hvdft_copies* copies);
// Advances the ops begun as far as possible without waiting. 1 when the oldest of them is complete:
// it is no longer among them. HVDFT_AGAIN: wait on the doorbell. HVDFT_ESTOPPED.
HVDFT_API int hvdft_worker_advance(void);
// 1 if this rank has contributed nothing to the op yet; 0 if an earlier incarnation has.
HVDFT_API int hvdft_worker_owes(uint64_t id);
HVDFT_API int hvdft_worker_executed(uint64_t id);  // moves the cursor on
// An op of other ranks is begun, if it may be passed now, and passed when it is complete. It may
// not be while the script jumps to a snapshot, nor if it lies before that.
HVDFT_API int hvdft_worker_may_pass(uint64_t id);
HVDFT_API int hvdft_worker_passed(uint64_t id);

// A read-only mapping of `bytes` of the result of op `id`, which is complete and not yet executed.
// It stays valid until it is released, whatever becomes of the log. NULL: they have to be copied.
// Views may be released by any thread, at any time.
HVDFT_API const void* hvdft_worker_view(uint64_t id, const void* result, uint64_t bytes);
HVDFT_API void hvdft_worker_view_release(const void* view);
// `release_unused` is called before a snapshot is published, and before a fork. It should release
// the views that are no longer used: the others are detached, which copies their pages.
HVDFT_API void hvdft_worker_before_detach(void (*release_unused)(void));

// Tensors queued and not yet executed: adds `tensors`, which may be negative.
HVDFT_API void hvdft_worker_pend(int64_t tensors);
HVDFT_API uint64_t hvdft_worker_pending(void);
// How many ops a script that calls hvd.shutdown() now must have executed: those that earlier
// incarnations took part in, unless one of them also called it here or later.
HVDFT_API uint64_t hvdft_worker_owed(void);

// A rank that has ended, or left this session some time ago, without having contributed to the
// next op; -1 if there is none. Waiting for the next op would then never end; the caller stops the
// job with an error naming `wanted`.
HVDFT_API int hvdft_worker_ended_peer(void);
HVDFT_API void hvdft_worker_stop_for_peer(int rank, const char* wanted);

// Passes a failpoint, about op `op`; a drill that is due there strikes. May be called before
// hvdft_worker_open(). Returns 1 if the drill asks the caller to raise an exception.
HVDFT_API int hvdft_failpoint(int point, uint64_t op);

HVDFT_API void hvdft_worker_set_step(uint64_t step);
HVDFT_API void hvdft_worker_orderly_exit(void);
// Why this process is about to fail, in one line; the first one counts.
HVDFT_API void hvdft_worker_last_words(const char* text);
HVDFT_API void hvdft_worker_fatal(const char* message);  // stops the job with exit code 1
HVDFT_API int hvdft_worker_stop_code(void);  // exit code of the job if it is being stopped, else -1
HVDFT_API uint64_t hvdft_worker_event_count(void);
HVDFT_API int hvdft_worker_events(uint64_t from, hvdft_event* out, int capacity);
HVDFT_API int hvdft_worker_wait_event(uint64_t seen, int timeout_ms);  // 1: more than `seen`

#ifdef __cplusplus
}
#endif
#endif  // HVD_FT_H
