// Which ranks are present, as a worker sees it.
#include "arena/rosters.h"

#include "base/doorbell.h"
#include "protocol/roster.h"
#include "worker/worker.h"

using hvdft::is_in_roster;
using hvdft::is_present;
using hvdft::Node;
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

uint64_t hvdft_worker_roster_due(void) {
  const Worker& w = *the_worker();
  uint64_t next = hvdft_worker_roster();
  if (next == hvdft::kRosters) return 0;
  uint64_t mark = w.node->header().rosters[next].mark.load(std::memory_order_seq_cst);
  return hvdft::begins_roster(mark, w.log.common()) ? next + 1 : 0;
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
    hvdft::wait_doorbell(h.snapshot_doorbell, ticket, 1000);
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
