// Training loops and their snapshots: two slots a loop in the rank's arena, written in turn,
// published by one store.
#include <fcntl.h>
#include <sys/mman.h>

#include "bell.h"
#include "error.h"
#include "inject.h"
#include "worker.h"

using hvdft::fail;
using hvdft::Loop;
using hvdft::Mapping;
using hvdft::pass_point;
using hvdft::the_worker;
using hvdft::Worker;

namespace {

Loop* loop_of(int loop) {
  if (loop >= 0 && loop < hvdft::kMaxLoops) return &the_worker()->block().loops[loop];
  fail(HVDFT_EINVAL, "a script can have %d training loops with snapshots, not more; put them into "
       "fewer loops", hvdft::kMaxLoops);
  return nullptr;
}

int unpublished_slot(const Loop& loop) {
  uint64_t published = loop.published.load();
  return published == 0 ? 0 : 1 - static_cast<int>(published & 1);
}

// The slot being written or read; one at a time.
Mapping& slot_mapping() {
  static std::unique_ptr<Mapping> mapping;
  mapping = std::make_unique<Mapping>();
  return *mapping;
}

}  // namespace

int hvdft_worker_loop_begin(int number, uint64_t* begin) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  Worker& w = *the_worker();
  uint64_t known = loop->begin.load();
  if (known == 0) {
    loop->begin.store(w.cursor.load() + 1, std::memory_order_release);
    hvdft::ring(w.node->rank(0).agent_bell);
  } else if (known - 1 != w.cursor.load()) {
    return fail(HVDFT_EINVAL, "training loop %d began after %lu collectives, but the restarted "
                "script reaches it after %lu; the script must do the same collectives before the "
                "loop on every start", number, known - 1, w.cursor.load());
  }
  *begin = loop->begin.load() - 1;
  return HVDFT_OK;
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
    fallocate(w.file->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset), static_cast<off_t>(freed));
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
  Mapping& mapping = slot_mapping();
  int code = mapping.map(w.file->fd(), offset, size, true);
  *room = mapping.data();
  return code;
}

int hvdft_worker_snapshot_publish(int number, uint64_t bytes) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  Worker& w = *the_worker();
  int slot = unpublished_slot(*loop);
  uint64_t position = w.cursor.load();
  loop->bytes[slot] = bytes;
  pass_point(HVDFT_AT_SNAPSHOT_PUBLISH, position);
  loop->published.store((position + 1) << 1 | static_cast<uint64_t>(slot),
                        std::memory_order_release);
  pass_point(HVDFT_AT_SNAPSHOT_PUBLISHED, position);
  w.event(HVDFT_EV_SNAPSHOT, position);
  hvdft::ring(w.node->rank(0).agent_bell);
  return HVDFT_OK;
}

int hvdft_worker_snapshot_get(int number, const void** data, uint64_t* bytes,
                              uint64_t* position) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  uint64_t published = loop->published.load(std::memory_order_acquire);
  if (published == 0) return 0;
  Worker& w = *the_worker();
  int slot = static_cast<int>(published & 1);
  *bytes = loop->bytes[slot];
  *position = (published >> 1) - 1;
  Mapping& mapping = slot_mapping();
  int code = mapping.map(w.file->fd(), hvdft::slot_offset(w.file->limit(), number, slot),
                         hvdft::align_up(*bytes + (*bytes == 0), hvdft::kPage), false);
  *data = mapping.data();
  return code == HVDFT_OK ? 1 : code;
}

int hvdft_worker_jump(int number) {
  Loop* loop = loop_of(number);
  if (loop == nullptr) return HVDFT_EINVAL;
  uint64_t published = loop->published.load(std::memory_order_acquire);
  if (published == 0) return fail(HVDFT_EINVAL, "training loop %d has no snapshot", number);
  Worker& w = *the_worker();
  uint64_t position = (published >> 1) - 1;
  pass_point(HVDFT_AT_RESTORE, position);
  w.cursor.store(position);
  w.event(HVDFT_EV_RESTORED, position);
  hvdft_worker_ring();
  return HVDFT_OK;
}
