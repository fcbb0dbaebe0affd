// The C ABI of hvd_ft_rejoin.h.
#include "protocol/rejoin.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "arena/memory.h"
#include "arena/records.h"
#include "arena/rosters.h"
#include "base/error.h"
#include "hvd_ft_rejoin.h"
#include "protocol/roster.h"
#include "protocol/shared_snapshot.h"
#include "replication/node_copy.h"

using hvdft::fail;
using hvdft::Node;
using hvdft::NodeHeader;
using hvdft::RankFile;
using hvdft::Record;

namespace {

// Another node's head, as it came: at any address.
struct HeadCopy {
  explicit HeadCopy(const void* from) { std::memcpy(bytes, from, sizeof bytes); }
  const NodeHeader& operator*() const { return *reinterpret_cast<const NodeHeader*>(bytes); }
  alignas(NodeHeader) char bytes[sizeof(NodeHeader)];
};

}  // namespace

struct hvdft_rejoining {
  std::unique_ptr<Node> node;
  std::vector<std::unique_ptr<hvdft::Mapping>> slots{};  // that were asked for
  NodeHeader& header() const { return node->header(); }

  // A slot's bytes, or nullptr and an error.
  char* map(const RankFile& file, int loop, int slot, uint64_t bytes, bool writable) {
    auto& mapping = slots.emplace_back(std::make_unique<hvdft::Mapping>());
    uint64_t size = hvdft::align_up(bytes, hvdft::kPage);
    int code =
        mapping->map(file.fd(), hvdft::slot_offset(file.limit(), loop, slot), size, writable);
    return code == HVDFT_OK ? mapping->data() : nullptr;
  }
  std::unique_ptr<RankFile> file(int rank, bool writable) const {
    auto kind = node->is_local(rank) ? RankFile::kLocal : RankFile::kParts;
    return RankFile::open(node->dir(), node->file().job, rank, writable, kind);
  }
};

void hvdft_rejoin_verdict(const hvdft_rejoin_state* nodes, int count, hvdft_rejoin* out) {
  std::vector<hvdft::RejoinState> states;
  for (int i = 0; i < count; ++i) {
    const hvdft_rejoin_state& each = nodes[i];
    states.push_back({each.lost != 0, each.log_length, each.op, each.done_over});
  }
  hvdft::Rejoin verdict = hvdft::rejoin(states);
  *out = {verdict.needed, verdict.possible, verdict.log_from, verdict.results_from, verdict.op};
}

hvdft_rejoining* hvdft_rejoin_open(const char* dir, const char* job) {
  auto node = Node::open(dir, job, Node::kAgent);
  if (node && hvdft::check_log(*node) != HVDFT_OK) return nullptr;
  return node ? new hvdft_rejoining{std::move(node)} : nullptr;
}

void hvdft_rejoin_close(hvdft_rejoining* node) { delete node; }

void hvdft_rejoin_lose(hvdft_rejoining* node) { node->header().lost.store(1); }

void hvdft_rejoin_local_ranks(const hvdft_rejoining* node, int* first, int* count) {
  *first = node->node->first_local();
  *count = node->node->end_local() - node->node->first_local();
}

void hvdft_rejoin_look(const hvdft_rejoining* node, hvdft_rejoin_state* out) {
  const NodeHeader& h = node->header();
  *out = {h.lost.load(),      h.log_length.load(), h.truncated.load(), h.pair_log.received.at().op,
          h.done_over.load(), h.term.load(),       h.mark.load(),      h.event_count.load()};
}

int64_t hvdft_rejoin_ranges(const hvdft_rejoining* node, uint64_t complete, uint64_t* out,
                            int64_t capacity) {
  auto ranges = hvdft::copied_ranges(*node->node, complete);
  auto count = static_cast<int64_t>(ranges.size());
  for (int64_t i = 0; i < std::min(count, capacity); ++i) {
    out[2 * i] = ranges[static_cast<size_t>(i)].from;
    out[2 * i + 1] = ranges[static_cast<size_t>(i)].bytes();
  }
  return count;
}

void* hvdft_rejoin_at(hvdft_rejoining* node, uint64_t offset) {
  uint64_t heap = node->node->heap_offset();
  if (offset >= heap) return node->node->heap() + (offset - heap);
  return reinterpret_cast<char*>(&node->header()) + offset;
}

uint64_t hvdft_rejoin_head_bytes(void) { return sizeof(NodeHeader); }

int hvdft_rejoin_make_room(hvdft_rejoining* node, const void* their_head) {
  HeadCopy theirs(their_head);
  uint64_t loops = hvdft::RankBlock::kBytesAtFirst + (*theirs).loops_backed.load();
  auto latest = static_cast<int>((loops - offsetof(hvdft::RankBlock, loops)) / sizeof(hvdft::Loop));
  for (int r = 0; r < node->node->size(); ++r) {
    if (int code = hvdft::grow_loops(*node->node, r, latest - 1); code != HVDFT_OK) return code;
  }
  uint64_t bytes = (*theirs).backed.load();
  if (bytes <= node->header().backed.load()) return HVDFT_OK;
  return hvdft::grow_heap(*node->node, bytes, "the log of the job that this host joins");
}

int hvdft_rejoin_adopt(hvdft_rejoining* node, const void* their_head, uint64_t generation,
                       int64_t ahead_ns) {
  return hvdft::adopt_copy(*node->node, *HeadCopy(their_head), generation, ahead_ns);
}

int hvdft_rejoin_renewal(hvdft_rejoining* node, int rank, int leaving) {
  uint64_t returns = node->node->rank(rank).returns.load();
  return static_cast<int>(
      hvdft::renewal(hvdft::has_part(*node->node, rank), returns, leaving != 0));
}

void hvdft_rejoin_renew(hvdft_rejoining* node, int rank, int renewal) {
  hvdft::renew(*node->node, rank, static_cast<hvdft::Renewal>(renewal));
}

void hvdft_rejoin_note(hvdft_rejoining* node, uint64_t op) {
  node->header().done_over.store(op + 1);
}

int64_t hvdft_rejoin_result(hvdft_rejoining* node, uint64_t op, void** data) {
  const Record* record = node->node->record(op);
  if (record == nullptr) {
    return fail(HVDFT_EINVAL, "op %lu is not in the log of this host; start the job again", op);
  }
  *data = node->node->heap() + record->result_offset;
  return static_cast<int64_t>(record->op.result_bytes);
}

int hvdft_rejoin_slot_of(hvdft_rejoining* node, int rank, int number, int slot,
                         hvdft_rejoin_slot* out, const void** data) {
  const hvdft::Loop& loop = node->node->rank(rank).loop(number);
  uint64_t published = loop.published.load();
  *out = {loop.begin.load(),
          loop.ended.load(),
          published != 0 && (published & 1) == static_cast<uint64_t>(slot),
          loop.slots[slot].load(),
          loop.positions[slot],
          loop.bytes[slot],
          loop.stripes[slot]};
  *data = nullptr;
  if (out->word == 0 || out->bytes == 0) return HVDFT_OK;
  auto file = node->file(rank, false);
  if (!file) return HVDFT_ESYS;
  if (int code = file->check_slot(out->bytes, out->stripe); code != HVDFT_OK) return code;
  *data = node->map(*file, number, slot, out->bytes, false);
  return *data != nullptr ? HVDFT_OK : HVDFT_ESYS;
}

int hvdft_rejoin_slot_room(hvdft_rejoining* node, int rank, int loop, int slot, uint64_t bytes,
                           void** room) {
  auto file = node->file(rank, true);
  if (!file) return HVDFT_ESYS;
  int code = hvdft::grow_slot(*node->node, *file, {rank, loop, slot}, bytes);
  if (code != HVDFT_OK) return code;
  *room = node->map(*file, loop, slot, bytes, true);
  return *room != nullptr ? HVDFT_OK : HVDFT_ESYS;
}

void hvdft_rejoin_slot_publish(hvdft_rejoining* node, int rank, int number, int slot,
                               const hvdft_rejoin_slot* snapshot) {
  if (hvdft::grow_loops(*node->node, rank, number) != HVDFT_OK) {
    return node->node->stop(rank, 1, hvdft_error());
  }
  hvdft::Loop& loop = node->node->rank(rank).loops[number];
  loop.begin.store(snapshot->begin);
  loop.ended.store(static_cast<uint32_t>(snapshot->ended));
  if (snapshot->word == 0) return;
  loop.positions[slot] = snapshot->position;
  loop.bytes[slot] = snapshot->bytes;
  loop.stripes[slot] = snapshot->stripe;
  uint64_t cut = hvdft::cut_of(snapshot->word);
  hvdft::note_contents(*node->node, {rank, number, slot},
                       {cut, snapshot->position, snapshot->bytes, snapshot->stripe,
                        static_cast<uint32_t>(snapshot->word)});
  loop.slots[slot].store(snapshot->word);
  loop.published.store((snapshot->position + 1) << 1 | static_cast<uint64_t>(slot));
  loop.published_cut.store(cut);
}

void hvdft_rejoin_resume_at(hvdft_rejoining* node, const hvdft_rejoin_resume* resume) {
  NodeHeader& h = node->header();
  if (h.lost.load() != 0) {
    hvdft::begin_at(*node->node, resume->op);
    if (node->node->is_local(0)) {  // the log is kept here from now on
      h.term.store(resume->term);
      h.mark.store(resume->mark);
    }
  }
  h.pair_log.sent.publish({resume->op, 0});
  h.pair_log.gathered.publish({resume->op, 0});
  h.pair_log.received.publish({resume->op, 0});
  h.lost.store(0);
}

void hvdft_rejoin_heard(hvdft_rejoining* node, int first_rank, uint64_t events) {
  node->node->rank(first_rank).events_heard.store(events);
}
