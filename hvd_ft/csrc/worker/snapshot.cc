// Training loops and their snapshots: two slots a loop in the rank's arena, written in turn,
// published by one store. The rules are those of shared_snapshot.h.
#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "hvd_ft_snapshots.h"
#include "arena/memory.h"
#include "arena/rosters.h"
#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "protocol/roster.h"
#include "protocol/sequencer.h"
#include "protocol/shared_snapshot.h"
#include "worker/worker.h"

using hvdft::fail;
using hvdft::failpoint;
using hvdft::Loop;
using hvdft::Mapping;
using hvdft::RankBlock;
using hvdft::SlotUse;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

Loop* loop_of(int loop) {
  RankBlock& block = the_worker()->block();
  if (loop >= 0 && loop < block.loops_there()) return &block.loops[loop];
  fail(HVDFT_EINVAL, "training loop %d has not begun; this is a bug", loop);
  return nullptr;
}

int unpublished_slot(const Loop& loop) {
  uint64_t published = loop.published.load();
  return published == 0 ? 0 : 1 - static_cast<int>(published & 1);
}

int published_slot(const Loop& loop) {
  uint64_t published = loop.published.load();
  return published == 0 ? -1 : static_cast<int>(published & 1);
}

uint64_t published_word(const Loop& loop) {
  int slot = published_slot(loop);
  return slot < 0 ? 0 : loop.slots[slot].load();
}

// A rank that has passed a cut, or ended its loop, has given up what it has not delivered.
hvdft::RankSlots slots_of(const Loop& loop) {
  uint64_t given_up = std::max(loop.given_up.load(std::memory_order_seq_cst),
                               loop.passed_cut.load(std::memory_order_seq_cst));
  if (loop.ended.load(std::memory_order_seq_cst) != 0) given_up = UINT64_MAX;
  uint64_t published = loop.published_cut.load(std::memory_order_seq_cst);
  return {given_up,
          published,
          {loop.slots[0].load(std::memory_order_seq_cst),
           loop.slots[1].load(std::memory_order_seq_cst)}};
}

// One at a time is: that of the loop in which the worker starts again.
bool is_refused(int number, uint64_t cut) {
  return the_worker()->refused.load() == hvdft::cut_key(number, cut);
}

// What is to be done about the slot that is not published. `here`: only ranks of this node count.
SlotUse use_of(int number, bool here = false) {
  const Worker& w = *the_worker();
  const Loop& own = w.block().loops[number];
  uint64_t word = own.slots[unpublished_slot(own)].load();
  if (word != 0 && is_refused(number, hvdft::cut_of(word))) return SlotUse::kFree;
  int slot = unpublished_slot(own);
  std::vector<hvdft::RankSlots> ranks;  // those that may have shared it
  for (int r = w.node->first_local(); r < w.node->end_local(); ++r) {
    if (!hvdft::is_present(*w.node, r, own.positions[slot])) continue;
    ranks.push_back(slots_of(w.node->rank(r).loop(number)));
    // A rank that has left starts again nowhere.
    if (hvdft::has_left(*w.node, r)) ranks.back().published = UINT64_MAX;
  }
  bool newer = here || !w.node->several() || w.apart ||
               hvdft::oldest_in(w.node->header(), number) > own.positions[slot] + 1;
  return hvdft::use_of(word, published_word(own), ranks, newer);
}

// Where a restarted worker goes on: at its newer snapshot, if that is complete, or at the published
// one. -1: it has none.
int restart_slot(int number) {
  const Loop& loop = the_worker()->block().loops[number];
  return use_of(number) == SlotUse::kComplete ? unpublished_slot(loop) : published_slot(loop);
}

// A killed incarnation may not have done so after publishing.
void note_published_cut(Loop& loop) {
  loop.published_cut.store(hvdft::cut_of(published_word(loop)));
}

// A restarted worker comes through its loops once more.
void note_progress(uint64_t loops) {
  Worker& w = *the_worker();
  if (w.block().loops_done.load() >= loops) return;
  w.block().loops_done.store(loops, std::memory_order_seq_cst);
  w.node->notify_mirror();
}

HVDFT_PER_WORKER std::mutex publishing;  // by the script's thread, or the one that copies

// Publishes what is complete. A worker that is replaying must have come to it, as the log may be
// truncated there from then on; or it is `restoring`, and goes on from there.
int publish_complete(int number, bool restoring = false) {
  std::lock_guard<std::mutex> guard(publishing);
  Worker& w = *the_worker();
  Loop& loop = w.block().loops[number];
  note_published_cut(loop);
  if (use_of(number) != SlotUse::kComplete) return HVDFT_OK;
  int slot = unpublished_slot(loop);
  uint64_t position = loop.positions[slot];
  if (!restoring && w.log.cursor() < position) return HVDFT_OK;
  int code = w.views.detach(position);  // from then on the log may be truncated there
  if (code != HVDFT_OK) return code;
  loop.published.store((position + 1) << 1 | static_cast<uint64_t>(slot),
                       std::memory_order_release);
  loop.published_cut.store(hvdft::cut_of(loop.slots[slot].load()), std::memory_order_seq_cst);
  if (loop.ended.load() != 0) w.block().loop_changes.fetch_add(1);
  hvdft::notify(w.node->header().snapshot_doorbell);
  w.messages.snapshot_published(number, slot);
  w.block().snapshot_count.fetch_add(1);
  failpoint(HVDFT_AT_SNAPSHOT_PUBLISHED, position);
  w.state.event(HVDFT_EV_SNAPSHOT, position);
  w.node->notify_log_writer();  // the log may be truncatable now
  return HVDFT_OK;
}

// This process's mapping of a slot. A new mapping costs a fault for every page, so the slots being
// written stay mapped; the one being read has a mapping of its own.
class Slot {
 public:
  // The first `bytes` of a loop's slot in a rank's file, or nullptr and an error.
  char* map(const hvdft::RankFile& file, int loop, int slot, uint64_t bytes, bool writable) {
    uint64_t size = hvdft::align_up(bytes + (bytes == 0), hvdft::kPage);
    if (mapping_ != nullptr && loop == loop_ && slot == slot_ && size <= bytes_) {
      return mapping_->data();
    }
    mapping_ = std::make_unique<Mapping>();
    if (mapping_->map(file.fd(), hvdft::slot_offset(file.limit(), loop, slot), size, writable) !=
        HVDFT_OK) {
      mapping_.reset();
      return nullptr;
    }
    loop_ = loop;
    slot_ = slot;
    bytes_ = size;
    return mapping_->data();
  }

 private:
  std::unique_ptr<Mapping> mapping_;
  int loop_ = -1, slot_ = -1;
  uint64_t bytes_ = 0;
};

HVDFT_PER_WORKER Slot written[2];
HVDFT_PER_WORKER Slot being_read;
HVDFT_PER_WORKER std::map<int, Slot> stripes;  // of other ranks on the node

// An ended loop needs one slot only, the published one.
void release_unneeded(int number) {
  Worker& w = *the_worker();
  Loop& loop = w.block().loops[number];
  int slot = unpublished_slot(loop);
  if (loop.claimed[slot].load() == 0 || use_of(number) != SlotUse::kFree) return;
  hvdft::withdraw(loop.slots[slot]);
  hvdft::release_slot(*w.node, *w.file, {w.rank, number, slot});
}

}  // namespace

int hvdft_worker_loop_begin(int number, uint64_t* begin) {
  Worker& w = *the_worker();
  if (number >= hvdft::kMaxLoops) {
    return fail(HVDFT_EINVAL,
                "a script can have %d training loops with snapshots, not more; put them into "
                "fewer loops",
                hvdft::kMaxLoops);
  }
  if (int code = hvdft::grow_loops(*w.node, w.rank, number); code != HVDFT_OK) return code;
  Loop* loop = loop_of(number);
  // Their ends may have been too early for that, or an incarnation was killed there.
  for (int ended = 0; ended < number; ++ended) release_unneeded(ended);
  w.bytes_before_step = w.result_bytes.load();
  w.loop_step_bytes = 0;
  note_progress(hvdft::loops_begun(number));
  uint64_t known = loop->begin.load();
  if (known == 0) {
    loop->begin.store(w.log.cursor() + 1, std::memory_order_release);
    w.node->notify_log_writer();
  } else if (known - 1 != w.log.cursor()) {
    return fail(HVDFT_EINVAL,
                "training loop %d began after %lu collectives, but the restarted "
                "script reaches it after %lu; the script must do the same collectives before the "
                "loop on every start",
                number, known - 1, w.log.cursor());
  }
  *begin = loop->begin.load() - 1;
  return w.messages.loop_begins(number);
}

int hvdft_worker_loop_end(int number) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  if (int code = publish_complete(number); code != HVDFT_OK) return code;
  Worker& w = *the_worker();
  loop->ended.store(1);
  note_progress(hvdft::loops_ended(number));
  hvdft::notify(w.node->header().snapshot_doorbell);  // no fingerprints come any more
  w.node->notify_mirror();
  release_unneeded(number);
  return HVDFT_OK;
}

int hvdft_worker_loop_ended(int number) {
  Loop* loop = loop_of(number);
  return loop == nullptr ? HVDFT_EINVAL : static_cast<int>(loop->ended.load());
}

int hvdft_worker_snapshot_settle(int number) {
  if (loop_of(number) == nullptr) return HVDFT_EINVAL;
  if (int code = publish_complete(number); code != HVDFT_OK) return code;
  SlotUse use = use_of(number, true);
  return use == SlotUse::kFree ? HVDFT_OK : use == SlotUse::kHeld ? 1 : HVDFT_AGAIN;
}

int hvdft_worker_snapshot_owed(int number) {
  if (loop_of(number) == nullptr) return HVDFT_EINVAL;
  return use_of(number) == SlotUse::kNeeded && use_of(number, true) == SlotUse::kFree;
}

void hvdft_worker_snapshot_apart(void) { the_worker()->apart = true; }

int hvdft_worker_snapshot_begin(int number, uint64_t cut, uint64_t position) {
  Worker& w = *the_worker();
  // Read first: a rank that has passed the boundary may have published its snapshot before.
  bool passed = hvdft::is_passed_elsewhere(w, number, cut, position);
  int code = hvdft_worker_snapshot_settle(number);
  if (code < 0 && code != HVDFT_AGAIN) return code;
  if (code == HVDFT_OK && hvdft_worker_snapshot_owed(number) == 1) code = passed ? 1 : HVDFT_AGAIN;
  Loop& loop = w.block().loops[number];
  // An earlier incarnation may have delivered it. What it delivered damaged is delivered again.
  bool again = is_refused(number, cut);
  uint64_t latest = hvdft::cut_of(std::max(loop.slots[0].load(), loop.slots[1].load()));
  if (latest >= cut && !again) return 1;
  // Or it has passed the cut without a snapshot, and others count on that; or so does this one.
  bool left_out = loop.passed_cut.load() >= cut || loop.ended.load() != 0;
  if (code == 1 || left_out) hvdft_worker_snapshot_give_up(number, cut);
  if (code != HVDFT_OK) return code;
  int slot = unpublished_slot(loop);
  uint64_t held = hvdft::cut_of(loop.slots[slot].load());
  if (held > loop.published_cut.load() && !again) hvdft_worker_snapshot_give_up(number, held);
  hvdft::withdraw(loop.slots[slot]);
  failpoint(HVDFT_AT_SNAPSHOT_DROP, position);
  w.messages.snapshot_begins(number, slot);
  loop.begun_position = position;
  loop.begun_cut.store(cut, std::memory_order_seq_cst);
  return HVDFT_OK;
}

int hvdft_worker_snapshot_room(int number, uint64_t bytes, void** room) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  Worker& w = *the_worker();
  int slot = unpublished_slot(*loop);
  int code = hvdft::grow_slot(*w.node, *w.file, {w.rank, number, slot}, bytes);
  if (code != HVDFT_OK) return code;
  *room = written[slot].map(*w.file, number, slot, bytes, true);
  return *room != nullptr ? HVDFT_OK : HVDFT_ESYS;
}

int hvdft_worker_snapshot_deliver(int number, const hvdft_snapshot* snapshot) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  int slot = unpublished_slot(*loop);
  Worker& w = *the_worker();
  w.refused = 0;
  hvdft::note_contents(*w.node, {w.rank, number, slot}, *snapshot);
  loop->positions[slot] = snapshot->position;
  loop->bytes[slot] = snapshot->bytes;
  loop->stripes[slot] = snapshot->stripe;
  failpoint(HVDFT_AT_SNAPSHOT_PUBLISH, snapshot->position);
  loop->slots[slot].store(hvdft::slot_word(snapshot->cut, snapshot->agreement),
                          std::memory_order_seq_cst);
  failpoint(HVDFT_AT_SNAPSHOT_DELIVERED, snapshot->position);
  hvdft::notify(w.node->header().snapshot_doorbell);
  return publish_complete(number);
}

int hvdft_worker_snapshot_give_up(int number, uint64_t cut) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  if (loop->given_up.load() < cut) loop->given_up.store(cut, std::memory_order_seq_cst);
  hvdft::notify(the_worker()->node->header().snapshot_doorbell);
  return HVDFT_OK;
}

int hvdft_worker_snapshot_get(int number, const void** data, hvdft_snapshot* out) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  const Worker& w = *the_worker();
  note_published_cut(*loop);
  int slot = restart_slot(number);
  if (slot < 0) return 0;
  uint64_t word = loop->slots[slot].load();
  *out = {hvdft::cut_of(word), loop->positions[slot], loop->bytes[slot], loop->stripes[slot],
          static_cast<uint32_t>(word)};
  if (int code = w.file->check_slot(out->bytes, out->stripe); code != HVDFT_OK) return code;
  *data = being_read.map(*w.file, number, slot, out->bytes, false);
  return *data != nullptr ? 1 : HVDFT_ESYS;
}

int hvdft_worker_snapshot_refuse(int number) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  if (use_of(number) != SlotUse::kComplete) return 0;
  uint64_t word = loop->slots[unpublished_slot(*loop)].load();
  the_worker()->refused = hvdft::cut_key(number, hvdft::cut_of(word));
  return 1;
}

int hvdft_worker_snapshot_stripe(int number, int rank, const void** data, uint64_t* bytes) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  const Worker& w = *the_worker();
  const Loop& theirs = w.node->rank(rank).loop(number);
  int own = restart_slot(number);
  uint64_t word = own < 0 ? 0 : loop->slots[own].load();
  for (int slot = 0; slot < 2; ++slot) {
    if (theirs.slots[slot].load(std::memory_order_seq_cst) != word) continue;
    const hvdft::RankFile& file = w.arenas->file(rank);
    int code = file.check_slot(theirs.bytes[slot], theirs.stripes[slot]);
    if (code != HVDFT_OK) return code;
    const char* all = stripes[rank].map(file, number, slot, theirs.bytes[slot], false);
    if (all == nullptr) return HVDFT_ESYS;
    *data = all + theirs.stripes[slot];
    *bytes = theirs.bytes[slot] - theirs.stripes[slot];
    return HVDFT_OK;
  }
  return fail(HVDFT_EINVAL,
              "rank %d has lost its part of the snapshot of training loop %d that "
              "the ranks of its node share; start the job again",
              rank, number);
}

int hvdft_worker_jump(int number) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  if (int code = publish_complete(number, true); code != HVDFT_OK) return code;
  uint64_t published = loop->published.load(std::memory_order_acquire);
  if (published == 0) return fail(HVDFT_EINVAL, "training loop %d has no snapshot", number);
  Worker& w = *the_worker();
  uint64_t position = (published >> 1) - 1;
  failpoint(HVDFT_AT_RESTORE, position);
  w.messages.go_back(number, static_cast<int>(published & 1));
  if (!w.log.jump(position, [&] { return w.stopped(); })) {
    return fail(HVDFT_ESTOPPED, "the job is being stopped");
  }
  w.state.event(HVDFT_EV_RESTORED, position);
  hvdft_worker_notify();
  return HVDFT_OK;
}

int hvdft_worker_mark_passed(int number, uint64_t since) {
  if (loop_of(number) == nullptr) return HVDFT_EINVAL;
  const Worker& w = *the_worker();
  uint64_t mark = w.node->header().mark.load(std::memory_order_acquire);
  if (!hvdft::passes_mark(mark, since, w.log.cursor())) return 0;
  failpoint(HVDFT_AT_MARK, w.log.cursor());
  return 1;
}

void hvdft_worker_mark_request(uint64_t position) {
  Worker& w = *the_worker();
  if (w.block().mark_request.exchange(position + 1) == position + 1) return;
  w.node->notify_log_writer();
}

void hvdft_worker_count_snapshots(const hvdft_snapshots* more) {
  RankBlock& block = the_worker()->block();
  block.snapshot_steps.store(more->steps);
  block.training_ns.fetch_add(more->training_ns);
  block.stall_ns.fetch_add(more->stall_ns);
  block.copy_ns.fetch_add(more->copy_ns);
}
