// The C ABI of hvd_ft_rejoin.h.
#include "protocol/rejoin.h"

#include <algorithm>
#include <cstring>

#include "arena/memory.h"
#include "base/error.h"
#include "hvd_ft_rejoin.h"
#include "replication/node_copy.h"

using hvdft::fail;
using hvdft::Node;
using hvdft::NodeHeader;
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
  NodeHeader& header() const { return node->header(); }
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
  return node ? new hvdft_rejoining{std::move(node)} : nullptr;
}

void hvdft_rejoin_close(hvdft_rejoining* node) { delete node; }

void hvdft_rejoin_lose(hvdft_rejoining* node) { node->header().lost.store(1); }

void hvdft_rejoin_look(const hvdft_rejoining* node, hvdft_rejoin_state* out) {
  const NodeHeader& h = node->header();
  *out = {h.lost.load(), h.log_length.load(), h.pair_log.received.at().op, h.done_over.load(),
          h.term.load(), h.mark.load(),       h.event_count.load()};
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
  uint64_t bytes = (*HeadCopy(their_head)).backed.load();
  if (bytes <= node->header().backed.load()) return HVDFT_OK;
  return hvdft::grow_heap(*node->node, bytes, "the log of the job that this host joins");
}

int hvdft_rejoin_adopt(hvdft_rejoining* node, const void* their_head, uint64_t generation) {
  hvdft::adopt_copy(*node->node, *HeadCopy(their_head), generation);
  return HVDFT_OK;
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

int hvdft_rejoin_resume_at(hvdft_rejoining* node, const hvdft_rejoin_resume* resume) {
  NodeHeader& h = node->header();
  if (h.lost.load() != 0) {
    hvdft::begin_at(*node->node, resume->op);
    if (node->node->is_local(0)) {  // the log is kept here from now on
      h.term.store(resume->term);
      h.mark.store(resume->mark);
    }
  }
  h.pair_log.sent.publish({resume->op, 0});
  h.pair_log.received.publish({resume->op, 0});
  h.lost.store(0);
  return HVDFT_OK;
}

void hvdft_rejoin_heard(hvdft_rejoining* node, int first_rank, uint64_t events) {
  node->node->rank(first_rank).events_heard.store(events);
}
