#include "arena/records.h"

#include <cstddef>

#include "arena/arena_file.h"
#include "base/crc32c.h"
#include "base/error.h"

namespace hvdft {

namespace {

int damaged(const Node& node, const char* what, uint64_t id) {
  return fail(HVDFT_EINVAL,
              "%s/node.arena is damaged: the op log's %s of op %lu is not as written; %s",
              node.dir().c_str(), what, id, kStartAgain);
}

}  // namespace

uint64_t checksum_of(const Record& record, const void* tail) {
  return crc32c(tail, record.op.tail_bytes(), crc32c(&record, offsetof(Record, checksum)));
}

// More than any setting allows; what is cut by them is counted in 64 bits.
constexpr uint64_t kMostSegment = uint64_t{1} << 32;

bool is_possible(const Node& node, const OpHead& op, uint64_t room) {
  uint64_t left = room;
  for (uint64_t part : {op.blocks * sizeof(uint64_t), op.response_bytes, op.signature_bytes}) {
    if (part > left) return false;
    left -= part;
  }
  auto is_segment = [](uint64_t bytes) { return bytes > 0 && bytes <= kMostSegment; };
  bool has_roster = op.kind != HVDFT_ROSTER || (op.root > 0 && op.root <= kRosters);
  return op.blocks <= static_cast<uint64_t>(node.size()) && op.result_bytes <= node.limit() &&
         is_segment(op.node_segment) && is_segment(op.ring_segment) && has_roster;
}

uint64_t room_of(const Node& node, const Record& record) {
  auto offset = static_cast<uint64_t>(reinterpret_cast<const char*>(&record) - node.heap());
  return node.heap_bytes() - offset - sizeof record;
}

int check_record(const Node& node, const Record& record) {
  bool whole = is_possible(node, record.op, room_of(node, record)) &&
               record.checksum == checksum_of(record, &record + 1);
  return whole ? HVDFT_OK : damaged(node, "record", record.id);
}

int check_log(const Node& node) {
  const NodeHeader& h = node.header();
  uint64_t kept = h.kept.load(), from = h.decided_before.load(), length = h.log_length.load();
  if (kept > kKeptEntries || from > length || length - from > kIndexEntries) {
    return damaged(node, "length at the end", length);
  }
  for (uint64_t i = 0, least = 0; i < kept; ++i) {
    const Record* record = node.record_at(node.kept()[i].load());
    if (record == nullptr || record->id < least) return damaged(node, "entry in the kept index", i);
    if (int code = check_record(node, *record); code != HVDFT_OK) return code;
    least = record->id + 1;
  }
  bool begun = false;  // ops leave the index in the order of their ids
  for (uint64_t id = from; id < length; ++id) {
    uint64_t entry = node.index()[id % kIndexEntries].load();
    if (entry == 0 && !begun) continue;
    begun = true;
    const Record* record = node.record_at(entry);
    if (record == nullptr || record->id != id) return damaged(node, "entry", id);
    if (int code = check_record(node, *record); code != HVDFT_OK) return code;
  }
  return HVDFT_OK;
}

}  // namespace hvdft
