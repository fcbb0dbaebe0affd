#include "arena/records.h"

#include <cstddef>

#include "arena/arena_file.h"
#include "base/crc32c.h"
#include "base/error.h"

namespace hvdft {

namespace {

// The lengths of a damaged record may be anything.
bool fits(const Node& node, const Record& record) {
  uint64_t room = node.heap_bytes() - (reinterpret_cast<const char*>(&record) - node.heap());
  uint64_t left = room - sizeof record;
  for (uint64_t part :
       {record.op.blocks * sizeof(uint64_t), record.op.response_bytes, record.op.signature_bytes}) {
    if (part > left) return false;
    left -= part;
  }
  return record.op.blocks <= static_cast<uint64_t>(node.size());
}

int damaged(const Node& node, const char* what, uint64_t id) {
  return fail(HVDFT_EINVAL,
              "%s/node.arena is damaged: the op log's %s of op %lu is not as written; %s",
              node.dir().c_str(), what, id, kStartAgain);
}

}  // namespace

uint64_t checksum_of(const Record& record, const void* tail) {
  return crc32c(tail, record.op.tail_bytes(), crc32c(&record, offsetof(Record, checksum)));
}

int check_record(const Node& node, const Record& record) {
  bool whole = fits(node, record) && record.checksum == checksum_of(record, &record + 1);
  return whole ? HVDFT_OK : damaged(node, "record", record.id);
}

int check_log(const Node& node) {
  const NodeHeader& h = node.header();
  uint64_t kept = h.kept.load(), from = h.decided_before.load(), length = h.log_length.load();
  if (kept > kKeptEntries || from > length || length - from > kIndexEntries) {
    return damaged(node, "length at the end", length);
  }
  for (uint64_t i = 0; i < kept; ++i) {
    const Record* record = node.record_at(node.kept()[i].load());
    if (record == nullptr) return damaged(node, "entry in the kept index", i);
    if (int code = check_record(node, *record); code != HVDFT_OK) return code;
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
