#include "replication/frame_check.h"

#include "arena/records.h"
#include "replication/private_parts.h"
#include "replication/rank_facts.h"

namespace hvdft {

namespace {

bool are_ranks(const Node& node, uint64_t first, uint64_t count) {
  auto size = static_cast<uint64_t>(node.size());
  return first <= size && count <= size - first;
}

bool is_loop(uint64_t number) { return number < static_cast<uint64_t>(kMaxLoops); }

// Changes one behind the other, up to the end.
bool are_facts(const Node& node, const char* payload, uint64_t bytes) {
  const char* end = payload + bytes;
  for (const char* at = payload; at < end;) {
    if (!FactsChange::fits(at, static_cast<uint64_t>(end - at))) return false;
    FactsChange change(at);
    if (change.rank < 0 || change.rank >= node.size()) return false;
    at = change.end();
  }
  return true;
}

bool are_mails(const Node& node, const char* payload, uint64_t bytes) {
  if (bytes < sizeof(MailHead)) return false;
  uint64_t left = bytes - sizeof(MailHead), runs = get<MailHead>(payload).runs;
  if (runs > left / sizeof(MailRun)) return false;
  for (uint64_t i = 0; i < runs; ++i) {
    auto run = get<MailRun>(payload + sizeof(MailHead) + i * sizeof(MailRun));
    if (!are_ranks(node, run.first, run.ranks)) return false;
  }
  return left - runs * sizeof(MailRun) <= kMailBytes;
}

bool is_event(const Node& node, const char* payload, uint64_t bytes) {
  if (bytes != sizeof(EventFrame) && bytes != sizeof(EventFrame) + sizeof(hvdft_divergence)) {
    return false;
  }
  return are_ranks(node, get<EventFrame>(payload).event.rank, 1);
}

// Ops that are in the log, each kept one once.
bool is_decided(uint64_t log_length, const char* payload, uint64_t bytes) {
  if (bytes < sizeof(uint64_t) || bytes % sizeof(uint64_t) != 0) return false;
  auto end = get<uint64_t>(payload);
  for (uint64_t at = sizeof end, least = 0; at < bytes; at += sizeof end) {
    auto id = get<uint64_t>(payload + at);
    if (id < least || id >= end) return false;
    least = id + 1;
  }
  return end <= log_length;
}

bool is_part(const Node& node, const char* payload, uint64_t bytes) {
  if (bytes < sizeof(PartHead)) return false;
  auto head = get<PartHead>(payload);
  return is_loop(head.loop) && head.bytes <= node.limit() && head.offset <= head.bytes &&
         bytes - sizeof head <= head.bytes - head.offset;
}

bool are_ops(const Node& node, const char* payload, uint64_t bytes) {
  if (bytes < sizeof(OpsHead) || (bytes - sizeof(OpsHead)) % sizeof(OpMoments) != 0) return false;
  return are_ranks(node, get<OpsHead>(payload).rank, 1);
}

bool is_hello(uint64_t bytes) {
  return bytes >= sizeof(HelloFrame) && (bytes - sizeof(HelloFrame)) % sizeof(EventsHeard) == 0;
}

}  // namespace

bool is_possible(const Node& node, uint64_t log_length, bool has_log, const FrameHead& frame,
                 const char* payload) {
  uint64_t bytes = frame.bytes;
  if (!are_ranks(node, frame.rank, 1)) return false;
  switch (frame.kind) {
    case FrameKind::kHello:
      return is_hello(bytes);
    case FrameKind::kNow:
    case FrameKind::kTerm:
    case FrameKind::kMark:
      return bytes == sizeof(uint64_t);
    case FrameKind::kFacts:
      return are_facts(node, payload, bytes);
    case FrameKind::kLoop:
      return bytes == sizeof(LoopFrame) && is_loop(get<LoopFrame>(payload).loop);
    case FrameKind::kMail:
      return are_mails(node, payload, bytes);
    case FrameKind::kEvent:
      return is_event(node, payload, bytes);
    case FrameKind::kStop:  // with its zero
      return bytes > sizeof(int32_t) && payload[bytes - 1] == '\0';
    case FrameKind::kRecord:
      return has_log && bytes >= sizeof(OpHead) &&
             is_possible(node, get<OpHead>(payload), bytes - sizeof(OpHead));
    case FrameKind::kDecided:
      return has_log && is_decided(log_length, payload, bytes);
    case FrameKind::kJoined:
    case FrameKind::kTaken:
      return bytes == sizeof(RankRun) && are_ranks(node, frame.rank, get<RankRun>(payload).ranks);
    case FrameKind::kRoster:
      return bytes == sizeof(RosterFrame) && get<RosterFrame>(payload).number < kRosters;
    case FrameKind::kFingerprints:
      return bytes >= sizeof(uint64_t) && bytes - sizeof(uint64_t) <= sizeof(Fingerprints::data);
    case FrameKind::kMemory:
      return bytes == 2 * sizeof(hvdft_memory);
    case FrameKind::kCuts:
      return bytes == sizeof(CutsFrame) && is_loop(get<CutsFrame>(payload).loop);
    case FrameKind::kPart:
      return is_part(node, payload, bytes);
    case FrameKind::kHeld:
      return bytes == sizeof(LoopWord) && is_loop(get<LoopWord>(payload).loop);
    case FrameKind::kOldest:
      return bytes == sizeof(LoopWord) && get<LoopWord>(payload).loop < kOldest;
    case FrameKind::kOps:
      return are_ops(node, payload, bytes);
    case FrameKind::kBye:
      return true;
    case FrameKind::kPiece:
    case FrameKind::kPairMark:
    case FrameKind::kReceived:
      return bytes >= sizeof(uint64_t) && are_ranks(node, get<uint64_t>(payload), 1);
  }
  return false;
}

}  // namespace hvdft
