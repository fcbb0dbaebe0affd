#include "replication/mirror_messages.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hvdft {

namespace {

constexpr uint64_t kPieceBytes = 48 << 10;

// `rank` of these frames is the source.
struct PieceFrame {
  uint64_t dest, number, from;
  uint64_t bytes;  // of the whole message
  int32_t tag;
  uint32_t checksum;
  char form[kFormBytes];
};
struct MarkFrame {
  uint64_t dest, sender, loop;
  LoopMarks marks;
};
struct ReceivedFrame {
  uint64_t dest, count;
};

}  // namespace

// ---------------------------------------------------------------- sending

template <typename Act>
void MessageMirrorSender::for_each_peer(int rank, bool sends, Act act) {
  const Shared<uint64_t>* peers = sends ? node_.sends_to(rank) : node_.receives_from(rank);
  for (uint64_t word = 0; word < peer_words(node_.size()); ++word) {
    for (uint64_t bits = peers[word].load(); bits != 0; bits &= bits - 1) {
      int peer = static_cast<int>(word) * 64 + __builtin_ctzll(bits);
      if (peer < node_.size() && beyond_(peer)) act(peer);
    }
  }
}

MessageMirrorSender::Pair& MessageMirrorSender::pair(int source, int dest) {
  Pair& pair = pairs_[{source, dest}];
  if (!pair.file) {
    pair.file = PairFile::open(node_, source, dest, true);
    // Messages before `decided_before` were received on the other side in an earlier generation.
    if (pair.file) pair.number = pair.file->header().decided_before.load();
    if (!pair.file) node_.stop(source, 1, hvdft_error());
  }
  return pair;
}

void MessageMirrorSender::collect(std::string* out) {
  for (int r : news_.with_messages()) {
    if (!mine_(r)) continue;
    for_each_peer(r, true, [&](int dest) {
      collect_marks(r, dest, true, out);
      collect_piece(r, dest, out);
    });
    for_each_peer(r, false, [&](int source) { collect_marks(source, r, false, out); });
  }
}

bool MessageMirrorSender::owes(int rank) {
  bool any = false;
  for_each_peer(rank, true, [&](int dest) {
    Pair& p = pair(rank, dest);
    any = any || (p.file && p.number < p.file->sent());
  });
  return any;
}

void MessageMirrorSender::collect_marks(int source, int dest, bool sender, std::string* out) {
  Pair& p = pair(source, dest);
  if (!p.file) return;
  const PairHeader& header = p.file->header();
  const PairEnd& end = sender ? header.sender : header.receiver;
  uint64_t& seen = p.changes[sender ? 0 : 1];
  uint64_t changes = end.changes.load();
  for (uint64_t loop = 0; changes != seen; ++loop) {
    LoopMarks now = end.marks(static_cast<int>(loop));
    if (now.begin == 0) {
      seen = changes;
      break;
    }
    if (loop == p.marks.size()) p.marks.emplace_back();
    LoopMarks& before = p.marks[loop];
    if (now.begin == before.begin && now.past == before.past) continue;
    before = now;
    MarkFrame frame{static_cast<uint64_t>(dest), sender, loop, now};
    put_frame(out, FrameKind::kPairMark, source, frame);
  }
  uint64_t count = header.receiver.count.load(std::memory_order_acquire);
  if (sender || count == p.count) return;
  p.count = count;
  put_frame(out, FrameKind::kReceived, source, ReceivedFrame{static_cast<uint64_t>(dest), count});
}

void MessageMirrorSender::collect_piece(int source, int dest, std::string* out) {
  Pair& p = pair(source, dest);
  if (!p.file || p.number == p.file->sent()) return;
  const MessageHead& head = p.file->message(p.number);
  uint64_t bytes = std::min(head.bytes - p.from, kPieceBytes - std::min(kPieceBytes, out->size()));
  if (bytes == 0 && head.bytes > 0) return;
  PieceFrame frame{
      static_cast<uint64_t>(dest), p.number, p.from, head.bytes, head.tag, head.checksum, {}};
  std::memcpy(frame.form, head.form, kFormBytes);
  std::string data(bytes, '\0');
  if (p.file->read(head.offset + p.from, data.data(), bytes) != HVDFT_OK) {
    return node_.stop(source, 1, hvdft_error());
  }
  put_frame(out, FrameKind::kPiece, source, &frame, sizeof frame, data.data(), bytes);
  p.from += bytes;
  if (p.from == head.bytes) {
    ++p.number;
    p.from = 0;
  }
}

// ---------------------------------------------------------------- receiving

// Each of them begins with the dest.
std::pair<int, int> ends_of(const FrameHead& frame, const char* payload) {
  return {static_cast<int>(frame.rank), static_cast<int>(get<uint64_t>(payload))};
}

// The end on the other side is known from now on, here and to the nodes beyond.
MessageMirrorReceiver::Pair* MessageMirrorReceiver::pair(int source, int dest, bool sender) {
  Pair& pair = pairs_[{source, dest}];
  if (!pair.file) pair.file = PairFile::open(node_, source, dest, true);
  if (!pair.file) return nullptr;
  int rank = sender ? source : dest, peer = sender ? dest : source;
  Shared<uint64_t>* peers = sender ? node_.sends_to(rank) : node_.receives_from(rank);
  peers[peer / 64].fetch_or(uint64_t{1} << peer % 64);
  news_.note_peer(rank);
  return &pair;
}

bool MessageMirrorReceiver::is_possible(FrameKind kind, const char* payload, uint64_t bytes) const {
  if (kind == FrameKind::kReceived) return bytes == sizeof(ReceivedFrame);
  if (kind == FrameKind::kPairMark) {
    return bytes == sizeof(MarkFrame) &&
           get<MarkFrame>(payload).loop < static_cast<uint64_t>(kMaxLoops);
  }
  if (bytes < sizeof(PieceFrame)) return false;
  auto piece = get<PieceFrame>(payload);
  return piece.bytes <= node_.limit() && piece.from <= piece.bytes &&
         bytes - sizeof piece <= piece.bytes - piece.from;
}

int MessageMirrorReceiver::apply_piece(int source, const char* payload, uint64_t bytes) {
  auto frame = get<PieceFrame>(payload);
  Pair* p = pair(source, static_cast<int>(frame.dest), true);
  if (p == nullptr) return HVDFT_ESYS;
  const PairFile& file = *p->file;
  if (frame.number < file.sent()) return HVDFT_OK;  // from an earlier generation
  if (frame.from == 0) {
    file.settle();
    int code = file.room(frame.bytes, &p->offset);
    if (code != HVDFT_OK) return code;
  }
  uint64_t piece = bytes - sizeof frame;
  int code = file.write(p->offset + frame.from, payload + sizeof frame, piece);
  if (code != HVDFT_OK || frame.from + piece < frame.bytes) return code;
  MessageHead head{};
  head.offset = p->offset;
  head.bytes = frame.bytes;
  head.tag = frame.tag;
  head.checksum = frame.checksum;
  std::memcpy(head.form, frame.form, kFormBytes);
  file.publish(head);
  return HVDFT_OK;
}

int MessageMirrorReceiver::apply_mark(int source, const char* payload) {
  auto frame = get<MarkFrame>(payload);
  Pair* p = pair(source, static_cast<int>(frame.dest), frame.sender != 0);
  if (p == nullptr) return HVDFT_ESYS;
  PairHeader& header = p->file->header();
  PairEnd& end = frame.sender != 0 ? header.sender : header.receiver;
  auto number = static_cast<int>(frame.loop);
  if (int code = p->file->grow_loops(end, number); code != HVDFT_OK) return code;
  auto& loop = end.loops[number];
  loop.past.store(frame.marks.past, std::memory_order_release);
  loop.begin.store(frame.marks.begin, std::memory_order_release);
  end.changes.fetch_add(1);
  // On the node of the source its worker drops them.
  if (!node_.is_local(source)) p->file->settle();
  return HVDFT_OK;
}

int MessageMirrorReceiver::apply_received(int source, const char* payload) {
  auto frame = get<ReceivedFrame>(payload);
  Pair* p = pair(source, static_cast<int>(frame.dest), false);
  if (p == nullptr) return HVDFT_ESYS;
  p->file->header().receiver.count.store(frame.count, std::memory_order_release);
  return HVDFT_OK;
}

}  // namespace hvdft
