// The worker's one attachment to its job.
#ifndef HVD_FT_WORKER_H
#define HVD_FT_WORKER_H

#include <deque>
#include <memory>

#include "arena/node_arenas.h"
#include "hvd_ft_snapshots.h"
#include "protocol/rank_times.h"
#include "worker/log_cursor.h"
#include "worker/messages.h"
#include "worker/negotiation.h"
#include "worker/rank_state.h"
#include "worker/result_views.h"

// A process is one worker; in tests/core/threaded each thread is one.
#ifdef HVDFT_THREADED
#define HVDFT_PER_WORKER thread_local
#else
#define HVDFT_PER_WORKER
#endif

namespace hvdft {

// An op that this worker has begun and not yet finished.
struct BegunOp {
  const Record* record;
  hvdft_copies copies;
  ByteRange mine;  // offset in the result of this rank's input
};

struct Worker {
  Worker(std::unique_ptr<Arenas> of_node, int rank, uint32_t incarnation);

  const int rank;
  const uint32_t incarnation;
  const std::unique_ptr<Arenas> arenas;
  Node* const node;  // these two are the arenas'
  RankFile* const file;

  RankState state;
  LogCursor log;
  Negotiation negotiation;
  Messages messages;
  Views views;

  // Of the thread that executes ops.
  std::deque<BegunOp> begun;
  SegmentSchedule schedule;
  RankTimes times;

  // Of the results of ops that it has executed, without those of broadcasts: all, those up to the
  // latest step, and those of a step of the present loop, at most.
  std::atomic<uint64_t> result_bytes{0};
  uint64_t bytes_before_step = 0, loop_step_bytes = 0;
  std::atomic<bool> apart{false};  // see hvdft_worker_snapshot_apart()

  // By loop: the cut of a complete snapshot that this process has refused to start again from.
  std::atomic<uint64_t> refused{0};

  RankBlock& block() const { return node->rank(rank); }
  bool stopped() const { return node->header().stop.load(std::memory_order_acquire) != 0; }
};

// The time for which a receive blocks the script.
class Blocked {
 public:
  explicit Blocked(RankTimes& times) : times_(times) {}
  ~Blocked();
  void since(uint64_t now) { since_ = since_ == 0 ? now : since_; }

 private:
  RankTimes& times_;
  uint64_t since_ = 0;
};

// Whether a rank of another node has passed the boundary of a cut, at this position, without a
// snapshot: it waits in a later collective, and has not published its fingerprints of the cut.
bool is_passed_elsewhere(const Worker& worker, int loop, uint64_t cut, uint64_t position);
// Stops the job if the next op is agreed, but a rank that ended has not contributed to it.
void stop_for_ended_peer(const Worker& worker);

// Publishes how the rank has spent its time in the round that ends.
void end_round(Worker& worker);

// The process's worker; nullptr before hvdft_worker_open() succeeded.
Worker* the_worker();

}  // namespace hvdft

#endif  // HVD_FT_WORKER_H
