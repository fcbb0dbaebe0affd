// The core of a checkpoint writer: slots copied without a lock, marks, events.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "hvd_ft_checkpoints.h"
#include "arena/message_file.h"
#include "arena/rosters.h"
#include "base/doorbell.h"
#include "base/error.h"

using namespace hvdft;

struct hvdft_checkpointer {
  std::unique_ptr<Node> node;
  std::vector<std::unique_ptr<RankFile>> files;  // of this node's ranks
  std::atomic<bool> woken{false};
  const RankFile& file(int rank) const {
    return *files[static_cast<size_t>(rank - node->first_local())];
  }
};

namespace {

constexpr uint64_t kCopiedAtOnce = 256 << 10;

bool is_ours(const hvdft_event& event) {
  return event.type == HVDFT_EV_CHECKPOINT || event.type == HVDFT_EV_SHARE ||
         event.type == HVDFT_EV_CHECKPOINTED;
}

uint64_t word_of(const hvdft_snapshot& snapshot) { return snapshot.cut << 32 | snapshot.agreement; }

}  // namespace

hvdft_checkpointer* hvdft_checkpointer_open(const char* dir, const char* job) {
  auto opened = std::make_unique<hvdft_checkpointer>();
  opened->node = Node::open(dir, job, Node::kAgent);
  if (!opened->node) return nullptr;
  for (int r = opened->node->first_local(); r < opened->node->end_local(); ++r) {
    opened->files.push_back(RankFile::open(dir, job, r, false));
    if (!opened->files.back()) return nullptr;
  }
  return opened.release();
}

void hvdft_checkpointer_close(hvdft_checkpointer* checkpointer) { delete checkpointer; }

void hvdft_checkpointer_place(hvdft_checkpointer* checkpointer, hvdft_place* out) {
  const FileHeader& file = checkpointer->node->file();
  *out = {static_cast<int32_t>(file.size), static_cast<int32_t>(file.nodes),
          static_cast<int32_t>(file.node), static_cast<int32_t>(file.first_local),
          static_cast<int32_t>(file.locals)};
}

int hvdft_checkpointer_present(hvdft_checkpointer* checkpointer, int rank, uint64_t position) {
  return is_present(*checkpointer->node, rank, position);
}

// The description may be that of the next snapshot already: then the copy does not count.
int hvdft_checkpointer_slot(hvdft_checkpointer* checkpointer, int rank, int loop, int slot,
                            hvdft_snapshot* out) {
  const Loop& of = checkpointer->node->rank(rank).loop(loop);
  uint64_t word = of.slots[slot].load(std::memory_order_seq_cst);
  *out = {word >> 32, of.positions[slot], of.bytes[slot], of.stripes[slot],
          static_cast<uint32_t>(word)};
  // One that is damaged may have any length.
  return word != 0 && out->bytes <= checkpointer->node->limit() && out->stripe <= out->bytes;
}

int hvdft_checkpointer_copy(hvdft_checkpointer* checkpointer, int rank, int loop, int slot,
                            const hvdft_snapshot* snapshot, void* to) {
  const auto& word = checkpointer->node->rank(rank).loop(loop).slots[slot];
  auto is_there = [&] {
    std::atomic_thread_fence(std::memory_order_acquire);
    return word.load(std::memory_order_seq_cst) == word_of(*snapshot);
  };
  if (!is_there()) return 0;
  const RankFile& file = checkpointer->file(rank);
  uint64_t at = slot_offset(file.limit(), loop, slot);
  for (uint64_t done = 0; done < snapshot->bytes;) {
    ssize_t more =
        pread(file.fd(), static_cast<char*>(to) + done,
              std::min(snapshot->bytes - done, kCopiedAtOnce), static_cast<off_t>(at + done));
    if (!is_there()) return 0;
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      return fail(HVDFT_ESYS, "a snapshot of rank %d cannot be read from its arena: %s", rank,
                  more < 0 ? strerror(errno) : "it is too short");
    }
    done += static_cast<uint64_t>(more);
  }
  return 1;
}

int hvdft_checkpointer_loops(hvdft_checkpointer* checkpointer, int rank) {
  return loops_of(*checkpointer->node, rank);
}

int64_t hvdft_checkpointer_messages(hvdft_checkpointer* checkpointer, int source, int dest,
                                    int sent, int loop, int slot) {
  const Node& node = *checkpointer->node;
  bool sends = node.has_peer(node.sends_to(source), dest);
  bool receives = node.has_peer(node.receives_from(dest), source);
  if (!(sent != 0 ? sends : receives)) return -1;
  auto file = PairFile::open(node, source, dest, false);
  if (!file) return HVDFT_ESYS;
  const PairEnd& end = sent != 0 ? file->header().sender : file->header().receiver;
  return loop < end.loops_there() ? static_cast<int64_t>(end.loops[loop].at[slot].count) : -1;
}

void hvdft_checkpointer_mark(hvdft_checkpointer* checkpointer) {
  const Node& node = *checkpointer->node;
  uint64_t position = node.header().log_length.load(std::memory_order_acquire);
  node.header().mark_wanted.store(position + 1, std::memory_order_release);
  node.notify_log_writer();
}

uint64_t hvdft_checkpointer_request(hvdft_checkpointer* checkpointer) {
  const Node& node = *checkpointer->node;
  uint64_t position = node.header().log_length.load(std::memory_order_acquire);
  hvdft_checkpointer_mark(checkpointer);
  hvdft_checkpointer_event(checkpointer, HVDFT_EV_CHECKPOINT, position);
  return position;
}

void hvdft_checkpointer_event(hvdft_checkpointer* checkpointer, uint32_t type, uint64_t detail) {
  const Node& node = *checkpointer->node;
  auto rank = static_cast<uint32_t>(node.first_local());
  node.push_event({now_ns(), type, rank, 0, 0, detail});
}

int hvdft_checkpointer_next(hvdft_checkpointer* checkpointer, uint64_t* from, hvdft_event* out) {
  while (checkpointer->node->events().read(*from, out, 1) == 1) {
    ++*from;
    if (is_ours(*out)) return 1;
  }
  return 0;
}

void hvdft_checkpointer_wait(hvdft_checkpointer* checkpointer, uint64_t from, int any,
                             int timeout_ms) {
  const NodeHeader& h = checkpointer->node->header();
  auto& doorbell = checkpointer->node->header().event_doorbell;
  uint64_t end = now_ns() + static_cast<uint64_t>(timeout_ms) * 1000000;
  for (;;) {
    uint32_t ticket = doorbell.load(std::memory_order_seq_cst);
    if (checkpointer->woken.exchange(false)) return;
    hvdft_event event;
    if (any != 0 ? h.event_count.load() > from
                 : hvdft_checkpointer_next(checkpointer, &from, &event) == 1) {
      return;
    }
    uint64_t now = now_ns();
    if (now >= end) return;
    wait_doorbell(doorbell, ticket, static_cast<int>((end - now + 999999) / 1000000));
  }
}

void hvdft_checkpointer_wake(hvdft_checkpointer* checkpointer) {
  checkpointer->woken = true;
  notify(checkpointer->node->header().event_doorbell);
}

uint64_t hvdft_checkpointer_event_count(hvdft_checkpointer* checkpointer) {
  return checkpointer->node->header().event_count.load();
}

int hvdft_checkpointer_ended_well(hvdft_checkpointer* checkpointer) {
  const Node& node = *checkpointer->node;
  if (node.header().stop.load(std::memory_order_acquire) != 0) return 0;
  for (int r = 0; r < node.size(); ++r) {
    if (node.rank(r).state.load(std::memory_order_acquire) != HVDFT_DONE) return 0;
  }
  return 1;
}
