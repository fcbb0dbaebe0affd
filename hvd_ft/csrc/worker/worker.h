// The worker's one attachment to its job.
#ifndef HVD_FT_WORKER_H
#define HVD_FT_WORKER_H

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "base/doorbell.h"
#include "arena/node_arenas.h"
#include "worker/messages.h"
#include "worker/result_views.h"

// A process is one worker; in the tests of tests/core/threaded each thread is.
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
  ByteRange mine;  // of the result: where this rank's input goes
};

struct Worker {
  int rank = 0;
  uint32_t incarnation = 0;
  std::unique_ptr<Arenas> arenas;
  Node* node = nullptr;      // these two are the arenas'
  RankFile* file = nullptr;
  std::unique_ptr<Messages> messages;
  Views views;

  std::atomic<uint64_t> cursor{0};   // after the last op that this rank took part in
  std::atomic<uint64_t> next{0};     // id of the next op to execute or pass
  std::atomic<uint64_t> replayed{0};  // ops executed before catching up
  std::atomic<bool> caught_up{false};
  uint64_t enter_request = 0;  // of this attachment; 0: none yet

  // Of the thread that executes ops.
  std::deque<BegunOp> begun;
  SegmentSchedule schedule;

  RankBlock& block() const { return node->rank(rank); }
  bool stopped() const { return node->header().stop.load(std::memory_order_acquire) != 0; }
  void event(uint32_t type, uint64_t detail) const {
    node->push_event({now_ns(), type, static_cast<uint32_t>(rank), incarnation, 0, detail});
  }
  void set_state(uint32_t state) const;

  // The time this rank spends blocked in a collective while another rank is down. Begins
  // with the first wait, ends with the first progress.
  void about_to_wait();
  void progressed();

  // It has come to a message that no earlier incarnation came to. A script that does collectives
  // besides is back when these are (hvdft_worker_caught_up).
  void caught_up_by_message() const;

  // Sleeps on this rank's doorbell, and lets be seen that it does: see hang_rule.py.
  bool sleep(uint32_t ticket, int timeout_ms);

  // Stops the job if the next op is agreed, but a rank that ended has not contributed to it.
  void stop_for_ended_peer() const;

 private:
  std::mutex watch_;  // between this worker's own threads; never shared with a process
  uint64_t blocked_since_ = 0;
  bool waiting_ = false;
};

// The process's worker; nullptr before hvdft_worker_open() succeeded.
Worker* the_worker();

}  // namespace hvdft

#endif  // HVD_FT_WORKER_H
