#include "arena/memory.h"

#include <fcntl.h>

#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "arena/arena_file.h"
#include "base/error.h"

namespace hvdft {

namespace {

// What a slot holds, in one word: pages of the rank's own, and of its stripe.
constexpr uint64_t contents_word(uint64_t own_bytes, uint64_t stripe_bytes) {
  return align_up(own_bytes, kPage) / kPage << 32 | align_up(stripe_bytes, kPage) / kPage;
}

void raise(Shared<uint64_t>& most, uint64_t value) {
  uint64_t seen = most.load(std::memory_order_relaxed);
  while (seen < value && !most.compare_exchange_weak(seen, value)) {
  }
}

void note(const Node& node, const hvdft_memory& memory) {
  uint64_t words[kMemoryWords];
  std::memcpy(words, &memory, sizeof words);
  for (uint64_t i = 0; i < kMemoryWords; ++i) raise(node.header().most[i], words[i]);
}

// Memory for [offset, offset + bytes) of a file.
int back(int fd, uint64_t offset, uint64_t bytes, const char* what) {
  int error;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == 0) return HVDFT_OK;
  return fail(HVDFT_ENOSPACE,
              "%s needs %" PRIu64
              " MiB more, but the arena's filesystem gives "
              "none (%s); free some space there or set HOROVOD_FT_ARENA_DIR",
              what, (bytes + (1 << 20) - 1) >> 20, strerror(error));
}

// Memory for [base + had, base + bytes) of a file, which is claimed already.
int allocate(const Node& node, int fd, uint64_t base, uint64_t had, uint64_t bytes,
             const char* what) {
  uint64_t more = bytes - had;
  hvdft_memory now = memory_now(node);
  if (used_bytes(node) > node.limit()) return no_room(node, more, what);
  int code = back(fd, base + had, more, what);
  if (code == HVDFT_OK) note(node, now);
  return code;
}

template <typename Act>
void each_loop(const RankBlock& block, Act act) {
  for (int number = 0, there = block.loops_there(); number < there; ++number) {
    act(block.loops[number]);
  }
}

void claim(RankBlock& block, Shared<uint64_t>& claimed, uint64_t bytes) {
  claimed.store(bytes);
  settle_claims(block);
}

}  // namespace

void settle_claims(RankBlock& block) {
  uint64_t sum = 0;
  each_loop(block,
            [&](const Loop& loop) { sum += loop.claimed[0].load() + loop.claimed[1].load(); });
  block.slot_bytes.store(sum);
}

hvdft_memory memory_now(const Node& node) {
  const NodeHeader& h = node.header();
  hvdft_memory m{};
  uint64_t elsewhere = 0;                  // has no limit
  for (int r = 0; r < node.size(); ++r) {  // those elsewhere may have parts here
    const RankBlock& block = node.rank(r);
    elsewhere += block.mail_backed.load() + block.fingerprints_backed.load();
    elsewhere += block.loops_backed.load();
    if (block.slot_bytes.load() == 0) continue;
    m.slots += block.slot_bytes.load();
    each_loop(block, [&](const Loop& loop) {
      for (const Shared<uint64_t>& word : loop.contents) {
        uint64_t contents = word.load();
        m.private_state += (contents >> 32) * kPage;
        m.shared_state += (contents & UINT32_MAX) * kPage;
      }
    });
  }
  m.heap = h.heap_claimed.load();
  m.log = h.log_bytes.load();
  m.kept = h.kept_bytes.load();
  m.messages = h.message_bytes.load();
  m.input_areas = node.window() * h.file.locals;
  m.control = node.control_bytes() + elsewhere;
  m.total = m.slots + m.heap + m.messages + m.input_areas + m.control;
  m.limit = node.limit() + m.input_areas + node.control_bytes();
  return m;
}

hvdft_memory memory_most(const Node& node) {
  hvdft_memory memory = memory_now(node);
  uint64_t words[kMemoryWords];
  std::memcpy(words, &memory, sizeof words);
  for (uint64_t i = 0; i < kMemoryWords; ++i) {
    words[i] = std::max(words[i], node.header().most[i].load());
  }
  std::memcpy(&memory, words, sizeof words);
  return memory;
}

void note_memory(const Node& node) { note(node, memory_now(node)); }

void note_log(const Node& node, uint64_t bytes) {
  raise(node.header().most[offsetof(hvdft_memory, log) / sizeof(uint64_t)], bytes);
}

uint64_t used_bytes(const Node& node) {
  const NodeHeader& h = node.header();
  uint64_t sum = h.heap_claimed.load() + h.message_bytes.load();
  for (int r = 0; r < node.size(); ++r) sum += node.rank(r).slot_bytes.load();
  return sum;
}

// `bytes` may be claimed already.
int no_room(const Node& node, uint64_t bytes, const char* what) {
  uint64_t limit = node.limit(), used = used_bytes(node);
  if (used > limit) used = used > bytes ? used - bytes : 0;
  return fail(HVDFT_ENOSPACE,
              "%s needs %" PRIu64 " MiB more, but %" PRIu64
              " of the arena's "
              "%" PRIu64
              " MiB are in use; raise HOROVOD_FT_ARENA_BYTES or, if the log takes most, take "
              "snapshots more often (snapshot_steps)",
              what, (bytes + (1 << 20) - 1) >> 20, used >> 20, limit >> 20);
}

int grow_slot(const Node& node, const RankFile& file, SlotPlace at, uint64_t bytes) {
  RankBlock& block = node.rank(at.rank);
  Loop& loop = block.loops[at.loop];
  uint64_t size = align_up(bytes + (bytes == 0), kPage), had = loop.backed[at.slot].load();
  if (size <= had) return HVDFT_OK;
  Shared<uint64_t>& claimed = loop.claimed[at.slot];
  uint64_t before = claimed.load();  // more than it had, if a predecessor was killed here
  if (size > before) claim(block, claimed, size);
  uint64_t base = slot_offset(file.limit(), at.loop, at.slot);
  int code = allocate(node, file.fd(), base, had, size, "the next snapshot");
  if (code == HVDFT_OK) {
    loop.backed[at.slot].store(size);
  } else {
    claim(block, claimed, before);
  }
  return code;
}

void release_slot(const Node& node, const RankFile& file, SlotPlace at) {
  RankBlock& block = node.rank(at.rank);
  Loop& loop = block.loops[at.loop];
  uint64_t claimed = loop.claimed[at.slot].load();
  if (claimed == 0) return;
  note_memory(node);
  loop.contents[at.slot].store(0);
  loop.backed[at.slot].store(0);
  fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(slot_offset(file.limit(), at.loop, at.slot)),
            static_cast<off_t>(claimed));
  claim(block, loop.claimed[at.slot], 0);
}

void note_contents(const Node& node, SlotPlace at, const hvdft_snapshot& snapshot) {
  uint64_t own = snapshot.agreement != 0 ? snapshot.stripe : snapshot.bytes;
  node.rank(at.rank).loops[at.loop].contents[at.slot].store(
      contents_word(own, snapshot.bytes - own));
  note_memory(node);
}

int grow_heap(const Node& node, uint64_t bytes, const char* what) {
  NodeHeader& h = node.header();
  uint64_t had = h.backed.load(), before = h.heap_claimed.load();
  if (bytes > before) h.heap_claimed.store(bytes);
  int code = allocate(node, node.fd(), node.heap_offset(), had, bytes, what);
  if (code == HVDFT_OK) {
    h.backed.store(bytes);
  } else {
    h.heap_claimed.store(before);
  }
  return code;
}

int grow_mail(const Node& node, int rank, uint64_t bytes) {
  Shared<uint64_t>& backed = node.rank(rank).mail_backed;
  uint64_t had = backed.load(), size = align_up(bytes, kPage);
  if (node.is_local(rank) || size <= had) return HVDFT_OK;
  int code = back(node.fd(), node.mail_offset(rank) + had, size - had, "an announcement");
  if (code == HVDFT_OK) backed.store(size);
  return code;
}

void shrink_mail(const Node& node, int rank) {
  Shared<uint64_t>& backed = node.rank(rank).mail_backed;
  uint64_t had = backed.load();
  if (had <= kKeptMailBytes) return;
  backed.store(kKeptMailBytes);
  fallocate(node.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(node.mail_offset(rank) + kKeptMailBytes),
            static_cast<off_t>(had - kKeptMailBytes));
}

int grow_fingerprints(const Node& node, int rank) {
  Shared<uint64_t>& backed = node.rank(rank).fingerprints_backed;
  if (node.is_local(rank) || backed.load() != 0) return HVDFT_OK;
  constexpr uint64_t kBytes = 2 * sizeof(Fingerprints);
  int code = back(node.fd(), node.fingerprints_offset(rank), kBytes, "fingerprints");
  if (code == HVDFT_OK) backed.store(kBytes, std::memory_order_release);
  return code;
}

int grow_loops(const Node& node, int rank, int number) {
  RankBlock& block = node.rank(rank);
  if (number < block.loops_there()) return HVDFT_OK;
  if (number >= kMaxLoops) {
    return fail(HVDFT_EINVAL,
                "rank %d has a training loop %d, but %d are all that there may be; %s", rank,
                number, kMaxLoops, kStartAgain);
  }
  uint64_t had = block.loops_backed.load();
  uint64_t end = align_up(offsetof(RankBlock, loops) + (number + 1) * sizeof(Loop), kPage);
  uint64_t bytes = end - RankBlock::kBytesAtFirst;
  uint64_t base = node.rank_offset(rank) + RankBlock::kBytesAtFirst;
  int code = back(node.fd(), base + had, bytes - had, "a training loop");
  if (code != HVDFT_OK) return code;
  raise(node.header().loops_backed, bytes);
  block.loops_backed.store(bytes, std::memory_order_release);
  return HVDFT_OK;
}

int grow_messages(const Node& node, int fd, uint64_t base, uint64_t had, uint64_t bytes) {
  node.header().message_bytes.fetch_add(bytes - had);
  int code = allocate(node, fd, base, had, bytes, "the next message");
  if (code != HVDFT_OK) node.header().message_bytes.fetch_sub(bytes - had);
  return code;
}

void claim_messages(const Node& node, uint64_t bytes) {
  node.header().message_bytes.fetch_add(bytes);
  note_memory(node);
}

void unclaim_messages(const Node& node, uint64_t bytes) {
  note_memory(node);
  node.header().message_bytes.fetch_sub(bytes);
}

}  // namespace hvdft
