#include <cstring>

#include "bell.h"
#include "error.h"
#include "log_keeper.h"

namespace hvdft {

LogKeeper::~LogKeeper() {
  if (!thread_.joinable()) return;
  closing_ = true;
  ring(node_.header().keeper_bell);
  thread_.join();
}

void LogKeeper::start() {
  thread_ = std::thread([this] { run(); });
}

void LogKeeper::run() {
  auto& bell = node_.header().keeper_bell;
  while (!closing_) {
    uint32_t ticket = bell.load(std::memory_order_seq_cst);
    bool joins = answer_joins();
    bool proposal = answer_proposal();
    bool cuts = cut();
    publish_room();
    if (joins || proposal || cuts || yield_for_bell(bell, ticket)) continue;
    wait_bell(bell, ticket, -1);
  }
}

bool LogKeeper::answer_joins() {
  bool any = false;
  for (int r = 0; r < node_.size(); ++r) {
    RankBlock& block = node_.rank(r);
    uint64_t request = block.join_request.load(std::memory_order_acquire);
    if (request == seen_[r]) continue;
    seen_[r] = request;
    // A rank that does not know the whole log sees that by itself and asks again.
    if (!sequencer_.join(request & ((1ull << 40) - 1))) continue;
    block.joined.store(request, std::memory_order_release);
    node_.header().term.store(sequencer_.term(), std::memory_order_release);
    any = true;
  }
  if (any) node_.ring_workers();
  return any;
}

bool LogKeeper::answer_proposal() {
  NodeHeader& h = node_.header();
  uint64_t number = h.proposed.load(std::memory_order_acquire);
  if (number == h.answered.load(std::memory_order_relaxed)) return false;
  bool accepted = h.proposal_term == sequencer_.term();
  if (accepted && append(h.proposal_count) != HVDFT_OK) {
    node_.stop(0, 1, hvdft_error());
    return false;
  }
  if (accepted) sequencer_.propose(h.proposal_term, h.proposal_count);
  h.log_length.store(sequencer_.log_length(), std::memory_order_release);
  h.answered.store(number, std::memory_order_release);
  node_.ring_workers();
  return true;
}

int LogKeeper::append(uint64_t count) {
  const char* at = node_.proposal();
  for (uint64_t i = 0; i < count; ++i) {
    OpHead op;
    std::memcpy(&op, at, sizeof op);
    at += sizeof op;
    int code = append_one(sequencer_.log_length() + i, op, at);
    if (code != HVDFT_OK) return code;
    at += align_up(op.tail_bytes(), 8);
  }
  return HVDFT_OK;
}

// Memory for `bytes` of the heap at *place.
int LogKeeper::grown(uint64_t offset, uint64_t bytes, const char* what, uint64_t* place) {
  *place = offset;
  if (offset == Heap::kFull) {
    return node_.grow(node_.fd(), 0, 0, node_.limit() + bytes, what);  // says what is in use
  }
  uint64_t end = offset + bytes;
  if (end <= backed_) return HVDFT_OK;
  // In steps, so that small ops do not each ask the kernel; but never the limit's last bytes.
  uint64_t target = align_up(end, kPage);
  uint64_t roomy = align_up(end, 1 << 20);
  uint64_t heap = node_.heap_offset();
  if (node_.grow(node_.fd(), heap, backed_, roomy, what) == HVDFT_OK) {
    backed_ = roomy;
    return HVDFT_OK;
  }
  int code = node_.grow(node_.fd(), heap, backed_, target, what);
  if (code == HVDFT_OK) backed_ = target;
  return code;
}

int LogKeeper::append_one(uint64_t id, const OpHead& op, const char* tail) {
  auto& index = node_.index()[id % kIndexEntries];
  if (index.load(std::memory_order_relaxed) != 0 && node_.record(id - kIndexEntries) != nullptr) {
    return fail(HVDFT_ENOSPACE, "the op log is full: %lu ops since the last snapshot; take "
                "snapshots (FaultTolerance callback or state.commit())", kIndexEntries);
  }
  Record record{id, segments_, 0, op};
  int code = grown(heap_.allocate(op.result_bytes), op.result_bytes, "the result of the next op",
                   &record.result_offset);
  if (code != HVDFT_OK) return code;
  uint64_t offset;
  code = grown(heap_.allocate(record.bytes()), record.bytes(), "the op log", &offset);
  if (code != HVDFT_OK) return code;
  std::memcpy(node_.heap() + offset, &record, sizeof record);
  std::memcpy(node_.heap() + offset + sizeof record, tail, op.tail_bytes());
  index.store(offset + 1, std::memory_order_release);
  segments_ = record.end_segment();
  return HVDFT_OK;
}

bool LogKeeper::cut() {
  // Workers publish snapshots far more often than they matter: look only when one moved.
  std::vector<uint64_t> positions;
  for (int r = 0; r < node_.size(); ++r) {
    for (Loop& loop : node_.rank(r).loops) {
      uint64_t begin = loop.begin.load(std::memory_order_acquire);
      if (begin == 0) break;
      positions.push_back(begin);
      positions.push_back(loop.published.load(std::memory_order_acquire) >> 1);
    }
    positions.push_back(0);
  }
  if (positions == positions_) return false;
  positions_ = positions;

  std::vector<std::vector<LoopPlace>> places;
  size_t at = 0;
  for (int r = 0; r < node_.size(); ++r) {
    std::vector<LoopPlace> loops(kMaxLoops);
    for (size_t loop = 0; positions[at] != 0; at += 2, ++loop) {
      uint64_t published = positions[at + 1];
      loops[loop] = {true, published != 0, positions[at] - 1, published != 0 ? published - 1 : 0};
    }
    ++at;
    places.push_back(std::move(loops));
  }
  Sequencer::Cut cut = sequencer_.cut(places);
  NodeHeader& h = node_.header();
  for (uint64_t id : cut.keep) {
    uint64_t kept = h.kept.load(std::memory_order_relaxed);
    if (kept == kKeptEntries) {
      node_.stop(0, 1, "the op log is full: more than 65536 collectives outside of training "
                 "loops; put them into a loop with snapshots");
      return false;
    }
    uint64_t entry = node_.index()[id % kIndexEntries].load();
    kept_bytes_ += heap_bytes(entry - 1);
    node_.kept()[kept].store(entry);
    h.kept.store(kept + 1, std::memory_order_release);
    node_.index()[id % kIndexEntries].store(0, std::memory_order_release);
  }
  for (uint64_t id : cut.drop) drop(id);
  return !cut.drop.empty();
}

// What the record at `offset` and its result take.
uint64_t LogKeeper::heap_bytes(uint64_t offset) const {
  Record record;
  std::memcpy(&record, node_.heap() + offset, sizeof record);
  return Heap::rounded(record.op.result_bytes) + Heap::rounded(record.bytes());
}

void LogKeeper::publish_room() {
  NodeHeader& h = node_.header();
  uint64_t others = h.used_bytes.load() - backed_ + kept_bytes_;
  h.log_bytes.store(heap_.allocated() - kept_bytes_);
  h.log_room.store(node_.limit() > others ? node_.limit() - others : 0);
}

void LogKeeper::drop(uint64_t id) {
  auto& index = node_.index()[id % kIndexEntries];
  uint64_t offset = index.load(std::memory_order_relaxed) - 1;
  Record record;
  std::memcpy(&record, node_.heap() + offset, sizeof record);
  index.store(0, std::memory_order_release);
  heap_.release(record.result_offset, record.op.result_bytes);
  heap_.release(offset, record.bytes());
  node_.header().cut.fetch_add(1, std::memory_order_release);
}

}  // namespace hvdft
