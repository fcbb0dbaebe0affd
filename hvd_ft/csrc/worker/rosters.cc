// Which ranks are present, as a worker sees it.
#include "arena/rosters.h"

#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "protocol/roster.h"
#include "worker/worker.h"

using hvdft::failpoint;
using hvdft::is_in_roster;
using hvdft::is_present;
using hvdft::Node;
using hvdft::RankBlock;
using hvdft::roster_at;
using hvdft::the_worker;
using hvdft::Worker;

uint64_t hvdft_worker_roster(void) {
  const Worker& w = *the_worker();
  return roster_at(*w.node, w.log.next());
}

int hvdft_worker_present(uint64_t roster, int* ranks) {
  const Node& node = *the_worker()->node;
  int count = 0;
  for (int r = 0; r < node.size(); ++r) {
    if (is_in_roster(node, roster, r)) ranks[count++] = r;
  }
  return count;
}

uint64_t hvdft_worker_roster_due(int loop) {
  const Worker& w = *the_worker();
  uint64_t next = hvdft_worker_roster();
  if (next == hvdft::kRosters) return 0;
  uint64_t mark = w.node->header().rosters[next].mark.load(std::memory_order_seq_cst);
  return hvdft::begins_roster(mark, loop, w.log.common()) ? next + 1 : 0;
}

namespace {

// How often a waiter checks whether the job is stopped, or a notifier was killed.
constexpr int kLookMs = 1000;

uint64_t returned_at(const Worker& w, int loop) {
  const Node& node = *w.node;
  uint64_t number = hvdft::latest_return(node, w.rank);
  if (number == 0) return 0;
  uint64_t since = node.header().rosters[number - 1].since.load(std::memory_order_acquire);
  return hvdft::returned_at(since, w.block().loop(loop).begin.load(), w.block().returns.load(),
                            hvdft::has_part(node, w.rank));
}

int stopped() { return hvdft::fail(HVDFT_ESTOPPED, "the job is being stopped"); }

// Whether the script has gone on there. Ops are passed by Horovod's thread.
int go_to(Worker& w, uint64_t position) {
  bool gone = w.log.jump(position, [&] { return w.stopped(); });
  return gone ? HVDFT_OK : stopped();
}

}  // namespace

int hvdft_worker_returns(int loop) {
  const Worker& w = *the_worker();
  return w.block().returns.load() != 0 || returned_at(w, loop) != 0;
}

int hvdft_worker_return(int loop) {
  Worker& w = *the_worker();
  RankBlock& block = w.block();
  auto& doorbell = w.node->header().snapshot_doorbell;
  if (block.returns.load() != 0 &&
      block.returns.exchange(hvdft::waits_in(loop)) != hvdft::waits_in(loop)) {
    w.node->notify_mirror();
    w.node->notify_log_writer();
  }
  for (;;) {
    uint32_t ticket = doorbell.load(std::memory_order_seq_cst);
    bool over = hvdft::is_over(*w.node, loop);  // before the log: what is not there never comes
    uint64_t since = returned_at(w, loop);
    if (since == 0 && over) {
      int code = go_to(w, hvdft_worker_log_length());
      return code == HVDFT_OK ? 0 : code;
    }
    if (since != 0 && hvdft_worker_log_length() >= since) {
      failpoint(HVDFT_AT_RETURN, since);
      if (int code = go_to(w, since); code != HVDFT_OK) return code;
      block.returns.store(0);
      w.node->notify_mirror();
      hvdft_worker_notify();
      return 1;
    }
    if (w.stopped()) return stopped();
    hvdft::wait_doorbell(doorbell, ticket, kLookMs);
  }
}

int hvdft_worker_ask_to_leave(const uint64_t* leaving) {
  const Worker& w = *the_worker();
  auto& h = w.node->header();
  auto& request = h.leave_requests[0];
  write_leave_request(request, leaving);
  w.node->notify_log_writer();
  for (;;) {
    uint32_t ticket = h.snapshot_doorbell.load(std::memory_order_seq_cst);
    if (request.answered.load(std::memory_order_seq_cst) == request.number.load()) return HVDFT_OK;
    if (w.stopped()) return HVDFT_ESTOPPED;
    hvdft::wait_doorbell(h.snapshot_doorbell, ticket, kLookMs);
  }
}

int hvdft_worker_node_ranks(uint64_t position, int* ranks) {
  const Node& node = *the_worker()->node;
  int count = 0;
  for (int r = node.first_local(); r < node.end_local(); ++r) {
    if (is_present(node, r, position)) ranks[count++] = r;
  }
  return count;
}

// The mirror brings the fingerprints of all ranks to rank 0's node, and rank 0's to all others.
int hvdft_worker_reference(uint64_t position) {
  const Node& node = *the_worker()->node;
  return hvdft::first_present_outside(node, roster_at(node, position), node.first_local(),
                                      node.end_local());
}
