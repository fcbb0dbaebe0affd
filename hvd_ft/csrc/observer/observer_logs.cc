// Reads the logs of pairs and the op log, which are written at the same time.
#include <algorithm>
#include <cstring>
#include <string>

#include "hvd_ft_logs.h"
#include "arena/message_file.h"
#include "arena/records.h"
#include "observer/observer.h"

using namespace hvdft;

namespace {

// Finds an op's entry in the log and copies it; nullptr if it is not there, or was truncated
// meanwhile.
const Record* copy_record(const Node& node, uint64_t id, Record* out) {
  if (id >= node.header().log_length.load(std::memory_order_acquire)) return nullptr;
  const Record* record = node.record(id);
  if (record == nullptr) return nullptr;
  std::memcpy(out, record, sizeof *out);
  std::atomic_thread_fence(std::memory_order_acquire);
  bool whole = out->id == id && is_possible(node, out->op, room_of(node, *record));
  return whole && node.record(id) == record ? record : nullptr;
}

}  // namespace

int hvdft_observer_ring_end(hvdft_observer* observer, int rank, int sent, hvdft_ring_end* out) {
  const Node& node = *observer->node;
  if (!node.several()) return 0;
  EdgePosition at;
  if (rank == node.first_local()) {
    const PairLog& log = node.header().pair_log;
    at = sent ? log.latest_sent() : log.received.at();
  } else {
    const RankBlock& block = node.rank(rank);
    uint64_t word = (sent ? block.ring_sent : block.ring_received).load();
    if (word == 0) return 0;
    at = unpack(word - 1);
  }
  *out = {at.op, at.position, 0, 0, 0, 0};
  Record record;
  if (copy_record(node, at.op, &record) == nullptr) return 1;
  RingPlan plan = node.plan(record);
  if (at.position >= plan.positions()) {  // the sender may not know
    *out = {at.op + 1, 0, 0, 0, 0, 0};
    return 1;
  }
  RingStep step = plan.step_at(at.position);
  out->known = 1;
  out->phase = static_cast<int32_t>(step.phase);
  out->step = step.step;
  out->segment = step.segment;
  return 1;
}

void hvdft_observer_traffic(hvdft_observer* observer, hvdft_traffic* out) {
  const NodeHeader& h = observer->node->header();
  *out = {h.sent_messages.load(), h.sent_bytes.load(), h.data_messages.load(),
          h.data_bytes.load(),    h.naps.load(),       h.looks.load()};
}

void hvdft_observer_announced(hvdft_observer* observer, hvdft_announced* out) {
  const NodeHeader& h = observer->node->header();
  *out = {h.announcements.load(), h.announced_bytes.load()};
}

int hvdft_observer_pair(hvdft_observer* observer, int source, int dest, hvdft_pair* out) {
  const Node& node = *observer->node;
  bool sends = node.has_peer(node.sends_to(source), dest);
  bool receives = node.has_peer(node.receives_from(dest), source);
  if (!sends && !receives) return 0;
  auto file = PairFile::open(node, source, dest, false);
  if (!file) return HVDFT_ESYS;
  const PairHeader& header = file->header();
  uint64_t received = header.receiver.count.load(std::memory_order_acquire);
  *out = {file->sent(), received, header.decided_before.load(), file->memory_bytes()};
  return 1;
}

int64_t hvdft_observer_note(hvdft_observer* observer, uint32_t kind, uint64_t number) {
  uint64_t entry = observer->node->note(kind, number);
  return entry == 0 ? int64_t{HVDFT_AGAIN} : static_cast<int64_t>(entry - 1);
}

int hvdft_observer_op(hvdft_observer* observer, uint64_t id, char* out, int capacity) {
  const Node& node = *observer->node;
  Record record;
  const Record* at = copy_record(node, id, &record);
  if (at == nullptr) return 0;
  const char* tail = reinterpret_cast<const char*>(at + 1);
  uint64_t blocks = record.op.blocks * sizeof(uint64_t);
  auto room = static_cast<uint64_t>(capacity) - 1;
  uint64_t length = std::min(std::max(record.op.signature_bytes, uint64_t{1}) - 1, room);
  std::string signature(tail + blocks + record.op.response_bytes, length);
  if (copy_record(node, id, &record) == nullptr) return 0;
  std::strcpy(out, signature.c_str());
  return 1;
}

int hvdft_observer_op_progress(hvdft_observer* observer, uint64_t id, hvdft_op_progress* out) {
  const Node& node = *observer->node;
  Record record;
  if (copy_record(node, id, &record) == nullptr) return 0;
  const NodeHeader& h = node.header();
  uint64_t final_segments = h.final_segments.load();
  uint64_t done = 0;
  for (uint64_t number = record.first_segment; number < record.end_segment(); ++number) {
    uint64_t claim = h.claims[number % kClaims].word.load();
    done += node.several() ? final_segments > number : reduced(claim, number);
  }
  *out = {record.op.result_bytes, record.segments(), done, record.op.gathered};
  return 1;
}

void hvdft_observer_rank_progress(hvdft_observer* observer, int rank, hvdft_rank_progress* out) {
  const RankBlock& block = observer->node->rank(rank);
  uint64_t at = block.contributed.load();
  *out = {op_of(at), segment_of(at), block.mail_sequence.load(), block.mail_taken.load()};
}

int hvdft_observer_first_local(hvdft_observer* observer) { return observer->node->first_local(); }
int hvdft_observer_locals(hvdft_observer* observer) {
  return observer->node->end_local() - observer->node->first_local();
}
