// Training loops and their snapshots: two slots a loop in the rank's arena, written in turn,
// published by one store.
#include <fcntl.h>
#include <sys/mman.h>

#include "base/doorbell.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "worker/worker.h"

using hvdft::fail;
using hvdft::failpoint;
using hvdft::Loop;
using hvdft::Mapping;
using hvdft::RankBlock;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

Loop* loop_of(int loop) {
  if (loop >= 0 && loop < hvdft::kMaxLoops) return &the_worker()->block().loops[loop];
  fail(HVDFT_EINVAL,
       "a script can have %d training loops with snapshots, not more; put them into "
       "fewer loops",
       hvdft::kMaxLoops);
  return nullptr;
}

int unpublished_slot(const Loop& loop) {
  uint64_t published = loop.published.load();
  return published == 0 ? 0 : 1 - static_cast<int>(published & 1);
}

// This process's mapping of a slot. A new mapping costs a fault for every page, so the slots being
// written stay mapped; the one being read has a mapping of its own.
class Slot {
 public:
  // The first `bytes` of a loop's slot, or nullptr and an error.
  char* map(int loop, int slot, uint64_t bytes, bool writable) {
    uint64_t size = hvdft::align_up(bytes + (bytes == 0), hvdft::kPage);
    if (mapping_ != nullptr && loop == loop_ && slot == slot_ && size <= bytes_) {
      return mapping_->data();
    }
    const hvdft::RankFile& file = *the_worker()->file;
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

}  // namespace

int hvdft_worker_loop_begin(int number, uint64_t* begin) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  Worker& w = *the_worker();
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
  if (loop->ended.exchange(1) == 1) return HVDFT_OK;
  Worker& w = *the_worker();
  int slot = unpublished_slot(*loop);
  uint64_t offset = hvdft::slot_offset(w.file->limit(), number, slot);
  uint64_t freed = loop->backed[slot].exchange(0);
  if (freed > 0) {
    fallocate(w.file->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(freed));
    w.node->header().used_bytes.fetch_sub(freed);
  }
  return HVDFT_OK;
}

int hvdft_worker_loop_ended(int number) {
  Loop* loop = loop_of(number);
  return loop == nullptr ? HVDFT_EINVAL : static_cast<int>(loop->ended.load());
}

int hvdft_worker_snapshot_room(int number, uint64_t bytes, void** room) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  Worker& w = *the_worker();
  int slot = unpublished_slot(*loop);
  uint64_t offset = hvdft::slot_offset(w.file->limit(), number, slot);
  uint64_t size = hvdft::align_up(bytes + (bytes == 0), hvdft::kPage);
  uint64_t backed = loop->backed[slot].load();
  if (size > backed) {
    int code = w.node->grow(w.file->fd(), offset, backed, size, "the next snapshot");
    if (code != HVDFT_OK) return code;
    loop->backed[slot].store(size);
  }
  w.messages.snapshot_begins(number, slot);
  *room = written[slot].map(number, slot, bytes, true);
  return *room != nullptr ? HVDFT_OK : HVDFT_ESYS;
}

int hvdft_worker_snapshot_publish(int number, uint64_t bytes, uint64_t position) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  Worker& w = *the_worker();
  int code = w.views.detach(position);  // from then on the log may be truncated there
  if (code != HVDFT_OK) return code;
  int slot = unpublished_slot(*loop);
  loop->bytes[slot] = bytes;
  failpoint(HVDFT_AT_SNAPSHOT_PUBLISH, position);
  loop->published.store((position + 1) << 1 | static_cast<uint64_t>(slot),
                        std::memory_order_release);
  w.messages.snapshot_published(number, slot);
  w.block().snapshot_count.fetch_add(1);
  failpoint(HVDFT_AT_SNAPSHOT_PUBLISHED, position);
  w.state.event(HVDFT_EV_SNAPSHOT, position);
  w.node->notify_log_writer();  // the log may be truncatable now
  return HVDFT_OK;
}

int hvdft_worker_snapshot_get(int number, const void** data, uint64_t* bytes, uint64_t* position) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  uint64_t published = loop->published.load(std::memory_order_acquire);
  if (published == 0) return 0;
  int slot = static_cast<int>(published & 1);
  *bytes = loop->bytes[slot];
  *position = (published >> 1) - 1;
  *data = being_read.map(number, slot, *bytes, false);
  return *data != nullptr ? 1 : HVDFT_ESYS;
}

int hvdft_worker_jump(int number) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  uint64_t published = loop->published.load(std::memory_order_acquire);
  if (published == 0) return fail(HVDFT_EINVAL, "training loop %d has no snapshot", number);
  Worker& w = *the_worker();
  uint64_t position = (published >> 1) - 1;
  failpoint(HVDFT_AT_RESTORE, position);
  w.messages.go_back(number, static_cast<int>(published & 1));
  w.log.jump(position);
  w.state.event(HVDFT_EV_RESTORED, position);
  hvdft_worker_notify();
  return HVDFT_OK;
}

void hvdft_worker_count_snapshots(const hvdft_snapshots* more) {
  RankBlock& block = the_worker()->block();
  block.snapshot_steps.store(more->steps);
  block.training_ns.fetch_add(more->training_ns);
  block.stall_ns.fetch_add(more->stall_ns);
  block.copy_ns.fetch_add(more->copy_ns);
}

void hvdft_worker_log(hvdft_log* out) {
  auto& h = the_worker()->node->header();
  out->bytes = h.log_bytes.load();
  out->bytes_room = h.log_room.load();
  uint64_t decided_before =
      h.truncated.load() + h.kept.load();  // before the length, which only grows
  out->ops = h.log_length.load() - decided_before;
  out->ops_room = hvdft::kIndexEntries;
}
