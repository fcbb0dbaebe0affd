// Frames of the mirror that could have been sent are applied; those beside them, which would be
// applied outside of the arena, of the log or of the frame, stop the job with a line that names the
// host.
#include <cstring>

#include "mirror_sides.h"
#include "replication/frame_check.h"

using namespace hvdft;

namespace {

constexpr uint64_t kRanks = 3, kOps = 3;  // as in mirror_sides.h; in the log

template <typename... Values>
std::string bytes_of(const Values&... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

// Whether a frame that comes down, or up, stops the job.
bool is_refused(bool down, FrameKind kind, uint64_t rank, const std::string& payload) {
  Side zero(0, 2, 2, 3), one(2, 1, 0, 2);
  Side& to = down ? one : zero;
  for (uint64_t id = 0; id < kOps; ++id) {
    CHECK(to.store->append({HVDFT_REDUCE, 0, 0, 0, 8, 0, 4, 0}, "sig") == HVDFT_OK);
  }
  to.store->publish();
  to.renew();
  std::string stream;
  put_frame(&stream, kind, static_cast<int>(rank), payload.data(), payload.size());
  to.feed(stream);
  to.receiver->settle();
  const StopText* why = to.node->stopped();
  if (why == nullptr || kind == FrameKind::kStop) return why != nullptr && why->code != 5;
  CHECK(std::strstr(why->text, " has sent what is no frame of the mirror (kind "));
  return true;
}

void down(FrameKind kind, const std::string& sound, const std::vector<std::string>& others) {
  CHECK(!is_refused(true, kind, 0, sound));
  CHECK(is_refused(true, kind, kRanks, sound));
  for (const std::string& other : others) CHECK(is_refused(true, kind, 0, other));
}

void up(FrameKind kind, const std::string& sound, const std::vector<std::string>& others) {
  CHECK(!is_refused(false, kind, 2, sound));
  CHECK(is_refused(false, kind, kRanks, sound));
  for (const std::string& other : others) CHECK(is_refused(false, kind, 2, other));
}

constexpr uint64_t kMost = UINT64_MAX, kLoops = kMaxLoops;

void of_words() {
  for (FrameKind kind : {FrameKind::kTerm, FrameKind::kMark, FrameKind::kNow}) {
    down(kind, bytes_of(uint64_t{1}), {"", "1234567", "123456789"});
  }
  down(FrameKind::kOldest, bytes_of(LoopWord{kOldest - 1, 1}),
       {bytes_of(LoopWord{kOldest, 1}), ""});
  RosterFrame roster{kRosters - 1, 1, {}}, other{kRosters, 1, {}};
  down(FrameKind::kRoster, bytes_of(roster), {bytes_of(other), ""});
  for (FrameKind kind : {FrameKind::kJoined, FrameKind::kTaken}) {
    auto run = [](uint64_t ranks) { return bytes_of(RankRun{ranks, 1}); };
    down(kind, run(kRanks), {run(kRanks + 1), run(kMost), ""});
  }
  HelloFrame hello{};
  down(FrameKind::kHello, bytes_of(hello, EventsHeard{2, 1}), {"", bytes_of(hello, uint64_t{1})});
  up(FrameKind::kStop, bytes_of(int32_t{5}, 'x', '\0'), {bytes_of(int32_t{1}, 'x'), "1234", ""});
}

void of_ranks() {
  auto loop = [](uint64_t number) { return bytes_of(LoopFrame{number, 1, 0, 0}); };
  up(FrameKind::kLoop, loop(0), {loop(kLoops), loop(kMost), ""});
  auto cuts = [](uint64_t number) { return bytes_of(CutsFrame{number, 1, 1, 0}); };
  down(FrameKind::kCuts, cuts(0), {cuts(kLoops), cuts(kMost), ""});
  auto held = [](uint64_t number) { return bytes_of(LoopWord{number, 1}); };
  up(FrameKind::kHeld, held(0), {held(kLoops), held(kMost), ""});
  auto facts = [](uint32_t rank, uint32_t changed) {
    return bytes_of(rank, changed, uint64_t{HVDFT_RUNNING});
  };
  up(FrameKind::kFacts, facts(2, 1),
     {facts(kRanks, 1), facts(UINT32_MAX, 1), facts(2, 3), facts(2, 1u << 31), "1234567"});
  auto mail = [](uint64_t runs, MailRun run) { return bytes_of(MailHead{1, runs}, run, 'x'); };
  std::string long_one = mail(1, {2, 1, 2}) + std::string(kMailBytes, 'x');
  up(FrameKind::kMail, mail(1, {2, 1, 2}),
     {mail(2, {2, 1, 2}), mail(uint64_t{1} << 61, {2, 1, 2}), mail(kMost, {2, 1, 2}),
      mail(1, {2, 2, 2}), mail(1, {kMost, 2, 2}), long_one, "1234567"});
  auto event = [](uint32_t rank) {
    return bytes_of(EventFrame{0, {1, HVDFT_EV_FAILED, rank, 0, 0, 9}});
  };
  up(FrameKind::kEvent, event(2), {event(kRanks), event(2) + "x", ""});
  auto ops = [](uint64_t rank) { return bytes_of(OpsHead{rank, 0}, OpMoments{}, OpMoments{}); };
  up(FrameKind::kOps, ops(2), {ops(kRanks), ops(kMost), ops(2) + "x", bytes_of(uint64_t{2}), ""});
  up(FrameKind::kMemory, std::string(2 * sizeof(hvdft_memory), '\0'),
     {std::string(sizeof(hvdft_memory), '\0')});
  auto prints = [](uint64_t bytes) { return bytes_of(cut_key(0, 9)) + std::string(bytes, 'x'); };
  uint64_t most = sizeof(Fingerprints::data);
  up(FrameKind::kFingerprints, prints(most), {prints(most + 1), "1234567"});
}

std::string record(const OpHead& op) { return bytes_of(op) + std::string("respsig", 8); }

void of_the_log() {
  OpHead op{HVDFT_REDUCE, 0, 0, 0, 8, 4, 4, 0};
  auto with = [&](auto OpHead::* field, uint64_t value) {
    OpHead other = op;
    other.*field = value;
    return record(other);
  };
  OpHead roster{HVDFT_ROSTER, 0, 0, 1, 0, 4, 4, 0}, before = roster, beyond = roster;
  before.root = 0;
  beyond.root = kRosters + 1;
  down(FrameKind::kRecord, record(op),
       {record(before), record(beyond), with(&OpHead::blocks, kRanks + 1),
        with(&OpHead::blocks, uint64_t{1} << 61), with(&OpHead::response_bytes, 5),
        with(&OpHead::signature_bytes, kMost), with(&OpHead::result_bytes, kMost),
        with(&OpHead::node_segment, 0), with(&OpHead::ring_segment, kMost),
        with(&OpHead::ring_segment, 0), "x"});
  CHECK(!is_refused(true, FrameKind::kRecord, 0, record(roster)));
  CHECK(is_refused(false, FrameKind::kRecord, 0, record(op)));  // nobody writes there
  auto decided = [](auto... ids) { return bytes_of(uint64_t{ids}...); };
  down(FrameKind::kDecided, decided(kOps, uint64_t{0}, uint64_t{2}),
       {decided(kOps + 1), decided(kMost), decided(kOps, uint64_t{1}, uint64_t{1}),
        decided(kOps, uint64_t{2}, uint64_t{1}), decided(uint64_t{2}, uint64_t{2}), "1234567", ""});
  CHECK(is_refused(false, FrameKind::kDecided, 0, decided(kOps)));
}

void of_parts_and_messages() {
  auto part = [](uint64_t loop, uint64_t bytes, uint64_t offset, uint64_t piece) {
    return bytes_of(PartHead{loop, uint64_t{7} << 32, 2, bytes, offset}) + std::string(piece, 'x');
  };
  up(FrameKind::kPart, part(0, 100, 0, 100),
     {part(kLoops, 100, 0, 100), part(0, 100, 1, 100), part(0, 100, 101, 0), part(0, 100, kMost, 0),
      part(0, kMost, 0, 100), "x"});
  // As in mirror_messages.cc.
  auto piece = [](uint64_t dest, uint64_t from, uint64_t bytes, uint64_t there) {
    return bytes_of(dest, uint64_t{0}, from, bytes, int32_t{0}, uint32_t{0}) +
           std::string(kFormBytes + 4 + there, '\0');
  };
  up(FrameKind::kPiece, piece(0, 0, 10, 10),
     {piece(kRanks, 0, 10, 10), piece(0, 1, 10, 10), piece(0, 11, 10, 0), piece(0, kMost, 10, 0),
      piece(0, 0, kMost, 10), bytes_of(uint64_t{0}), ""});
  auto mark = [](uint64_t dest, uint64_t loop) {
    return bytes_of(dest, uint64_t{1}, loop, LoopMarks{1, 0});
  };
  up(FrameKind::kPairMark, mark(0, 0),
     {mark(kRanks, 0), mark(0, kLoops), mark(0, kMost), bytes_of(uint64_t{0})});
  auto received = [](uint64_t dest) { return bytes_of(dest, uint64_t{0}); };
  up(FrameKind::kReceived, received(0), {received(kRanks), bytes_of(uint64_t{0})});
}

// One that is too long is not waited for; what no kind has is refused.
void of_no_kind() {
  for (FrameHead head : {FrameHead{FrameKind::kTerm, 0, kMostFrameBytes + 1},
                         FrameHead{static_cast<FrameKind>(77), 0, 0}}) {
    Side one(2, 1, 0, 2);
    one.feed(bytes_of(head));
    CHECK(one.node->stopped() != nullptr);
    std::string more;
    put_frame(&more, FrameKind::kTerm, 0, uint64_t{5});
    one.feed(more);
    CHECK(one.header().term == 0);
  }
}

}  // namespace

int main() {
  of_words();
  of_ranks();
  of_the_log();
  of_parts_and_messages();
  of_no_kind();
  return 0;
}
