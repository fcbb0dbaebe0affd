// The fingerprints of a rank's variables, published for the other ranks at each cut.
#include <atomic>
#include <cstring>

#include "arena/rosters.h"
#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "worker/worker.h"

using hvdft::fail;
using hvdft::failpoint;
using hvdft::Fingerprints;
using hvdft::Loop;
using hvdft::Node;
using hvdft::RankBlock;
using hvdft::the_worker;
using hvdft::Worker;

int hvdft_worker_fingerprints_publish(int loop, uint64_t cut, const void* data, uint64_t bytes) {
  Worker& w = *the_worker();
  Fingerprints* both = w.node->fingerprints(w.rank);
  if (bytes > sizeof both->data) {
    return fail(HVDFT_EINVAL, "fingerprints of %lu bytes are over %zu", bytes, sizeof both->data);
  }
  hvdft::publish_fingerprints(both, hvdft::cut_key(loop, cut), static_cast<const char*>(data),
                              bytes);
  failpoint(HVDFT_AT_FINGERPRINTS, w.log.cursor());
  w.node->notify_mirror();
  hvdft::notify(w.node->header().snapshot_doorbell);
  return HVDFT_OK;
}

namespace hvdft {

namespace {
bool has_come(const Node& node, int rank, uint64_t key) {
  if (node.rank(rank).fingerprints_backed.load(std::memory_order_acquire) == 0) return false;
  const Fingerprints* both = node.fingerprints(rank);
  return both[0].cut.load(std::memory_order_seq_cst) == key ||
         both[1].cut.load(std::memory_order_seq_cst) == key;
}
}  // namespace

bool is_passed_elsewhere(const Worker& w, int loop, uint64_t cut, uint64_t position) {
  for (int r = 0; r < w.node->size(); ++r) {
    if (w.node->is_local(r) || !is_present(*w.node, r, position)) continue;
    const RankBlock& block = w.node->rank(r);
    // In this order, as in is_beyond(). The mirror brings a rank's fingerprints before both.
    if (block.executed.load(std::memory_order_seq_cst) >= position &&
        block.pending.load(std::memory_order_seq_cst) > 0 &&
        !has_come(*w.node, r, cut_key(loop, cut))) {
      return true;
    }
  }
  return false;
}

}  // namespace hvdft

namespace {

// Whether a rank of this node waits in a collective beyond the boundary of the cut that this rank
// has begun, and has not begun it: with a tensor pending no snapshot is taken.
bool is_beyond(const Worker& w, int rank, int loop, uint64_t cut) {
  const Loop& own = w.block().loop(loop);
  if (!w.node->is_local(rank) || own.begun_cut.load() != cut) return false;
  const RankBlock& block = w.node->rank(rank);
  // In this order: what is pending when the boundary's ops are executed comes after these.
  return block.executed.load(std::memory_order_seq_cst) >= own.begun_position &&
         block.pending.load(std::memory_order_seq_cst) > 0 &&
         block.loop(loop).begun_cut.load(std::memory_order_seq_cst) < cut;
}

}  // namespace

int64_t hvdft_worker_fingerprints(int rank, int loop, uint64_t cut, void* out, uint64_t capacity) {
  const Worker& w = *the_worker();
  const Loop& theirs = w.node->rank(rank).loop(loop);
  // Before the fingerprints: what is not there when these say that it never comes has not come.
  if (theirs.given_up.load(std::memory_order_seq_cst) >= cut) return HVDFT_ETRUNCATED;
  bool passed =
      theirs.passed_cut.load(std::memory_order_seq_cst) >= cut || is_beyond(w, rank, loop, cut);
  int64_t found = hvdft_worker_published(rank, loop, cut, out, capacity);
  if (found == HVDFT_AGAIN && passed) return HVDFT_ETRUNCATED;
  return found;
}

// A rank that has passed the cut may still publish: another of its threads does it.
int64_t hvdft_worker_published(int rank, int loop, uint64_t cut, void* out, uint64_t capacity) {
  const Worker& w = *the_worker();
  const RankBlock& block = w.node->rank(rank);
  bool never = block.state.load(std::memory_order_seq_cst) == HVDFT_DONE ||
               block.loop(loop).ended.load(std::memory_order_seq_cst) != 0;
  if (!w.node->is_local(rank) && block.fingerprints_backed.load(std::memory_order_acquire) == 0) {
    return never ? HVDFT_ETRUNCATED : HVDFT_AGAIN;  // reading would give them memory
  }
  const Fingerprints* both = w.node->fingerprints(rank);
  uint64_t key = hvdft::cut_key(loop, cut);
  for (int at = 0; at < 2; ++at) {
    uint64_t there = both[at].cut.load(std::memory_order_seq_cst);
    never |= there > key;
    if (there != key) continue;
    uint64_t bytes = both[at].bytes;
    if (bytes > capacity) return HVDFT_EINVAL;
    hvdft::copy_torn(static_cast<char*>(out), both[at].data, bytes);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (both[at].cut.load(std::memory_order_seq_cst) == key) return static_cast<int64_t>(bytes);
  }
  return never ? HVDFT_ETRUNCATED : HVDFT_AGAIN;
}

void hvdft_worker_diverged(const hvdft_divergence* found) {
  Worker& w = *the_worker();
  uint64_t number = w.node->header().divergence_count.load();
  w.node->put_divergence(number, *found);
  w.state.event(HVDFT_EV_DIVERGED, number);
}

int hvdft_worker_divergence(uint64_t number, hvdft_divergence* out) {
  return the_worker()->node->read_divergence(number, out);
}

void hvdft_worker_cuts_passed(int loop, uint64_t cut) {
  Loop& own = the_worker()->block().loops[loop];
  if (own.passed_cut.load() < cut) own.passed_cut.store(cut, std::memory_order_seq_cst);
}

uint32_t hvdft_worker_snapshot_ticket(void) {
  return the_worker()->node->header().snapshot_doorbell.load(std::memory_order_seq_cst);
}

void hvdft_worker_snapshot_wait(uint32_t ticket, int timeout_ms) {
  hvdft::wait_doorbell(the_worker()->node->header().snapshot_doorbell, ticket, timeout_ms);
}

namespace {

constexpr uint64_t kSilentNs = 1000000000;  // a working leader counts something far more often
HVDFT_PER_WORKER std::atomic<uint64_t> latest_life{0}, alive_ns{0};

// Whether no leader works on this node. When a host is lost, the agents of all hosts end, and no
// news of ranks elsewhere arrives until the next agents have started.
bool lacks_leader(const Node& node) {
  if (!node.several()) return false;
  const auto& h = node.header();
  uint64_t life = h.naps.load() + h.looks.load() + h.sent_messages.load(), now = hvdft::now_ns();
  if (latest_life.exchange(life) != life) alive_ns = now;
  return now - alive_ns.load() > kSilentNs;
}

}  // namespace

int hvdft_worker_any_away(void) {
  const Worker& w = *the_worker();
  if (lacks_leader(*w.node)) return 1;
  for (int r = 0; r < w.node->size(); ++r) {
    if (r != w.rank && hvdft::is_away(*w.node, r)) return 1;
  }
  return 0;
}
