#include "oplog/log_store.h"

#include <cstring>

#include "arena/memory.h"
#include "arena/records.h"
#include "base/error.h"
#include "protocol/node_order.h"

namespace hvdft {

namespace {

// Of several nodes: the memory of this node's partial result, and of those that are gathered.
uint64_t partial_bytes(const Record& record, const RingPlan& plan) {
  return plan.gathered() ? plan.gather().bytes() : record.heap_bytes();
}

}  // namespace

LogStore::LogStore(Node& node) : node_(node), heap_(node.limit()) {
  NodeHeader& h = node_.header();
  length_ = h.log_length.load();
  find_gone();
  // A killed predecessor may not have notified of the last ops.
  h.truncated.store(gone_ - h.kept.load());
  h.decided_before.store(gone_);
  // An entry that was being appended and is not published is unknown to every other process.
  for (uint64_t id = length_; node_.record(id) != nullptr; ++id) {
    node_.index()[id % kIndexEntries].store(0);
  }
  for (Roster& roster : h.rosters) {
    if (roster.since.load() > length_) roster.since.store(0);
  }
  find_notes();
  const Record* last = length_ > 0 ? node_.record(length_ - 1) : nullptr;
  segments_ = last != nullptr ? last->end_segment() : h.dropped_segments.load();
  inputs_ = last != nullptr ? last->end_input() : h.dropped_inputs.load();

  std::vector<std::pair<uint64_t, uint64_t>> taken;
  auto take = [&](uint64_t entry) {
    auto* record = reinterpret_cast<const Record*>(node_.heap() + entry - 1);
    for (auto& range : ranges_of(*record, entry - 1)) taken.push_back(range);
  };
  for (uint64_t i = 0; i < h.kept.load(); ++i) {
    take(node_.kept()[i].load());
    kept_bytes_ += heap_bytes(node_.kept()[i].load() - 1);
  }
  for (uint64_t id = gone_; id < length_; ++id) take(node_.index()[id % kIndexEntries].load());
  heap_.occupy(std::move(taken));
}

// Ops leave in the order of their ids; a kept op is entered in the kept index before it leaves.
void LogStore::find_gone() {
  NodeHeader& h = node_.header();
  uint64_t kept = h.kept.load();
  uint64_t last_kept = 0;  // entry
  if (kept > 0) last_kept = node_.kept()[kept - 1].load();
  for (gone_ = h.decided_before.load(); gone_ < length_; ++gone_) {
    auto& entry = node_.index()[gone_ % kIndexEntries];
    if (entry.load() != 0 && entry.load() == last_kept) entry.store(0);
    if (entry.load() != 0) return;
  }
}

// As with rosters, one that is not published is unknown to every other process.
void LogStore::find_notes() {
  for (uint32_t kind = 0; kind < kNoteKinds; ++kind) {
    for (auto& entry : node_.header().notes[kind]) {
      if (entry.load() > length_) entry.store(0);
      if (entry.load() != 0) ++notes_[kind];
    }
  }
}

int LogStore::enter_note(uint32_t kind, uint64_t id) {
  uint64_t& count = notes_[note_kind(kind)];
  if (count == HVDFT_NOTES) {
    return fail(HVDFT_EINVAL,
                "op %lu is a note of kind %u, but %d of these are all that there may "
                "be; this is a bug",
                id, kind, HVDFT_NOTES);
  }
  node_.header().notes[note_kind(kind)][count++].store(id + 1);
  return HVDFT_OK;
}

std::vector<std::pair<uint64_t, uint64_t>> LogStore::ranges_of(const Record& record,
                                                               uint64_t offset) const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges = {{offset, record.bytes()},
                                                       {record.result_offset, record.heap_bytes()}};
  if (record.partial_offset != record.result_offset) {
    ranges.emplace_back(record.partial_offset, partial_bytes(record, node_.plan(record)));
  }
  return ranges;
}

// Memory for `bytes` of the heap at *offset.
int LogStore::give(uint64_t bytes, const char* what, uint64_t* offset) {
  *offset = heap_.allocate(bytes);
  if (*offset == Heap::kFull) {
    return no_room(node_, bytes, what);
  }
  uint64_t end = *offset + bytes;
  NodeHeader& h = node_.header();
  if (end <= h.backed.load(std::memory_order_relaxed)) return HVDFT_OK;
  // In steps, so that not every small op makes a system call; but never up to the limit's last
  // bytes.
  uint64_t target = align_up(end, kPage);
  uint64_t roomy = align_up(end, 1 << 20);
  if (grow_heap(node_, roomy, what) == HVDFT_OK) return HVDFT_OK;
  return target > h.backed.load() ? grow_heap(node_, target, what) : HVDFT_OK;
}

int LogStore::append(const OpHead& op, const char* tail) {
  uint64_t id = length_;
  auto& index = node_.index()[id % kIndexEntries];
  if (index.load(std::memory_order_relaxed) != 0 && node_.record(id - kIndexEntries) != nullptr) {
    return fail(HVDFT_ENOSPACE,
                "the op log is full: %lu ops since the last snapshot; take "
                "snapshots (FaultTolerance callback or state.commit())",
                kIndexEntries);
  }
  Record record{id, segments_, input_begin(inputs_, op.result_bytes, op.node_segment), 0, 0, 0, 0,
                op, 0};
  RingPlan plan = node_.plan(record);
  NodeOrder order = node_.order(record, plan);
  record.first_given = order.first_given;
  record.first_taken = order.first_taken;
  const char* what = "the result of the next op";
  int code = give(record.heap_bytes(), what, &record.result_offset);
  if (code != HVDFT_OK) return code;
  record.partial_offset = record.result_offset;
  if (plan.members() > 1) {
    code = give(partial_bytes(record, plan), what, &record.partial_offset);
    if (code != HVDFT_OK) return code;
  }
  uint64_t offset;
  code = give(record.bytes(), "the op log", &offset);
  if (code != HVDFT_OK) return code;
  record.checksum = checksum_of(record, tail);
  std::memcpy(node_.heap() + offset, &record, sizeof record);
  std::memcpy(node_.heap() + offset + sizeof record, tail, op.tail_bytes());
  if (op.kind == HVDFT_ROSTER) node_.header().rosters[op.root - 1].since.store(id + 1);
  if (is_note(op.kind)) {
    if (code = enter_note(op.kind, id); code != HVDFT_OK) return code;
  }
  index.store(offset + 1, std::memory_order_release);
  segments_ = record.end_segment();
  inputs_ = record.end_input();
  ++length_;
  return HVDFT_OK;
}

void LogStore::publish() {
  note_log(node_, heap_.allocated() - kept_bytes_);
  node_.header().log_length.store(length_, std::memory_order_release);
  node_.notify_ring();
}

int LogStore::keep(uint64_t id) {
  NodeHeader& h = node_.header();
  uint64_t kept = h.kept.load(std::memory_order_relaxed);
  if (kept == kKeptEntries) {
    return fail(HVDFT_ENOSPACE,
                "the op log is full: more than 65536 collectives outside of "
                "training loops; put them into a loop with snapshots");
  }
  auto& index = node_.index()[id % kIndexEntries];
  uint64_t entry = index.load();
  kept_bytes_ += heap_bytes(entry - 1);
  // Readers look at the index first, so they find the entry at any moment.
  node_.kept()[kept].store(entry);
  h.kept.store(kept + 1);
  index.store(0);
  gone_ = id + 1;
  return HVDFT_OK;
}

// Bytes of the record at `offset` and of its data.
uint64_t LogStore::heap_bytes(uint64_t offset) const {
  Record record;
  std::memcpy(&record, node_.heap() + offset, sizeof record);
  uint64_t sum = 0;
  for (auto [offset, bytes] : ranges_of(record, offset)) sum += Heap::rounded(bytes);
  return sum;
}

void LogStore::publish_room() {
  NodeHeader& h = node_.header();
  uint64_t others = used_bytes(node_) - h.heap_claimed.load() + kept_bytes_;
  h.kept_bytes.store(kept_bytes_);
  h.log_bytes.store(heap_.allocated() - kept_bytes_);
  h.log_room.store(node_.limit() > others ? node_.limit() - others : 0);
}

void LogStore::drop(uint64_t id) {
  auto& index = node_.index()[id % kIndexEntries];
  uint64_t offset = index.load(std::memory_order_relaxed) - 1;
  Record record;
  std::memcpy(&record, node_.heap() + offset, sizeof record);
  node_.header().dropped_segments.store(record.end_segment());
  node_.header().dropped_inputs.store(record.end_input());
  index.store(0, std::memory_order_release);
  gone_ = id + 1;
  for (auto [offset, bytes] : ranges_of(record, offset)) heap_.release(offset, bytes);
  node_.header().truncated.fetch_add(1, std::memory_order_release);
}

void LogStore::decided(uint64_t id) {
  node_.header().decided_before.store(id, std::memory_order_release);
  node_.notify_mirror();
}

}  // namespace hvdft
