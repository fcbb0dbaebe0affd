// Ranks that end: what they publish, and how waiting for them for ever is avoided.
#include <algorithm>
#include <cstring>
#include <string>

#include "arena/rosters.h"
#include "base/doorbell.h"
#include "worker/worker.h"

using hvdft::RankBlock;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

// A script that has called hvd.shutdown() usually ends at once, and its exit code says more.
constexpr uint64_t kGraceNs = 3000000000u;
// A script that has announced its end is ending; that takes long on a busy machine.
constexpr uint64_t kEndingGraceNs = 60000000000u;

bool ended(const Worker& w, const RankBlock& peer) {
  if (peer.state.load(std::memory_order_acquire) == HVDFT_DONE) return true;
  bool left = peer.sessions.load(std::memory_order_acquire) > w.block().sessions.load();
  bool ending = peer.orderly_exit.load() == peer.incarnation.load() + 1;
  return left && hvdft::now_ns() - peer.left_ns.load() > (ending ? kEndingGraceNs : kGraceNs);
}

// "rank 0" or "ranks 0, 2": this rank, and all others that have tensors pending.
std::string waiting_ranks(const Worker& w) {
  std::string list;
  int count = 0;
  for (int r = 0; r < w.node->size(); ++r) {
    uint32_t state = w.node->rank(r).state.load();
    bool alive = state != HVDFT_DONE && state != HVDFT_RESTARTING;
    if (r != w.rank && (!alive || w.node->rank(r).pending.load() <= 0)) continue;
    list += (count++ > 0 ? ", " : " ") + std::to_string(r);
  }
  return (count > 1 ? "ranks" : "rank") + list + (count > 1 ? " wait" : " waits");
}

}  // namespace

void hvdft::stop_for_ended_peer(const Worker& worker) {
  hvdft_record record;
  int peer = hvdft_worker_ended_peer();
  if (peer < 0 || hvdft_worker_record(worker.log.next(), &record) != HVDFT_OK) return;
  std::string first(record.signature, std::strcspn(record.signature, "\n"));
  hvdft_worker_stop_for_peer(peer, first.c_str());
}

void hvdft_worker_leave(void) {
  Worker& w = *the_worker();
  w.negotiation.leave();
  w.block().pending.store(0);
  w.block().left_ns.store(hvdft::now_ns());
  w.block().left_at.store(std::max(w.block().left_at.load(), w.log.next() + 1));
  w.block().sessions.fetch_add(1, std::memory_order_release);
}

uint64_t hvdft_worker_owed(void) {
  Worker& w = *the_worker();
  bool known_end = w.log.next() < w.block().left_at.load();
  return known_end ? 0 : hvdft::ops_contributed(w.block());
}

int hvdft_worker_ended_peer(void) {
  Worker& w = *the_worker();
  for (int r = 0; r < w.node->size(); ++r) {
    const RankBlock& peer = w.node->rank(r);
    if (r != w.rank && ended(w, peer) && hvdft::ops_contributed(peer) <= w.log.next() &&
        hvdft::is_present(*w.node, r, w.log.next())) {
      return r;
    }
  }
  return -1;
}

void hvdft_worker_stop_for_peer(int rank, const char* wanted) {
  Worker& w = *the_worker();
  bool done = w.node->rank(rank).state.load() == HVDFT_DONE;
  std::string text = "rank " + std::to_string(rank) +
                     (done ? " has ended, but " : " has called hvd.shutdown(), but ") +
                     waiting_ranks(w) + " for it in op " + std::to_string(w.log.next()) + ", '" +
                     wanted + "'; every rank must do the same collectives before it ends";
  w.node->stop(w.rank, 1, text.c_str());
}

void hvdft_worker_last_words(const char* text) {
  Worker& w = *the_worker();
  RankBlock& block = w.block();
  if (block.last_words_of.load() == w.incarnation + 1) return;
  strncpy(block.last_words, text, sizeof block.last_words - 1);
  block.last_words_of.store(w.incarnation + 1, std::memory_order_release);
}
