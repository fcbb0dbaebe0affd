// What the core reads that a dying process, a full disk or damaged memory may have left: the
// arenas of a job, its message logs, and the mirror's streams of other hosts. Every reader gets
// the same damage every time, and answers with an error, or with what is there: it neither
// crashes, nor hangs, nor reads or writes outside (as `make sanitize` sees).
//
// damaged_input_test [SECONDS [SEED]]: other damage, for so long.
#include <chrono>
#include <functional>

#include "arena/memory.h"
#include "arena/message_file.h"
#include "arena/node_arenas.h"
#include "arena/records.h"
#include "arena/rosters.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "damaged.h"
#include "hvd_ft_checkpoints.h"
#include "hvd_ft_logs.h"
#include "hvd_ft_rejoin.h"
#include "mirror_sides.h"
#include "op_rules.h"
#include "oplog/log_writer.h"
#include "protocol/roster.h"
#include "protocol/shared_snapshot.h"
#include "replication/node_copy.h"

using namespace hvdft;

namespace {

constexpr int kRanks = 3;  // as in mirror_sides.h: two on the first node, one on the second

void send(const Node& node, int source, int dest, const char* text) {
  auto file = PairFile::open(node, source, dest, true);
  CHECK(file != nullptr);
  MessageHead head{};
  head.bytes = std::strlen(text);
  head.checksum = crc32c(text, head.bytes);
  std::strcpy(head.form, "uint8 [5]");
  CHECK(file->room(head.bytes, &head.offset) == HVDFT_OK);
  CHECK(file->write(head.offset, text, head.bytes) == HVDFT_OK);
  file->publish(head);
  CHECK(file->grow_loops(file->header().sender, 1) == HVDFT_OK);
  file->header().sender.loops[0].begin.store(1);
  file->header().sender.changes.fetch_add(1);
  node.sends_to(source)[0].fetch_or(uint64_t{1} << dest);
  node.receives_from(dest)[0].fetch_or(uint64_t{1} << source);
}

void append(Side& side) {
  char tail[48] = {1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3};
  std::strcpy(tail + 24, "respsig");
  for (uint64_t bytes : {3, 70000, 3, 3, 0}) {
    OpHead op{HVDFT_CONCAT, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 3};
    CHECK(side.store->append(op, tail) == HVDFT_OK);
  }
  CHECK(side.store->append({HVDFT_FIRST_NOTE, 0, 0, 0, 0, 4, 4, 0}, "respsig") == HVDFT_OK);
  CHECK(side.store->append({HVDFT_ROSTER, 0, 0, 1, 0, 4, 4, 0}, "respsig") == HVDFT_OK);
  side.store->publish();
}

constexpr uint64_t kOps = 7;

// The first ops are not in the log any more.
void begin_log(Side& side) {
  CHECK(side.store->keep(0) == HVDFT_OK);
  side.store->drop(1);
  side.store->decided(2);
}

// A rank's snapshots, announcement, fingerprints and events.
void fill_rank(Node& node, int rank) {
  RankBlock& block = node.rank(rank);
  block.state = HVDFT_RUNNING;
  block.contributed = position(2, 0);
  block.loops_done = loops_begun(0);
  block.left_at = block.left_ns = block.since_ns = 7;
  Loop& loop = block.loops[0];
  loop.begin = 1;
  loop.slots[1] = uint64_t{7} << 32 | 9;
  loop.positions[1] = 2;
  loop.bytes[1] = 5000;
  loop.stripes[1] = 4096;
  loop.published = uint64_t{3} << 1 | 1;
  std::strcpy(node.mail(rank), "announced");
  block.mail_bytes = 9;
  block.mail_sequence = 2;
  publish_fingerprints(node.fingerprints(rank), cut_key(0, 9), "ninth!", 6);
  node.push_event({7, HVDFT_EV_FAILED, static_cast<uint32_t>(rank), 0, 0, 9});
}

void fill(Side& side, bool with_log = false) {
  Node& node = *side.node;
  for (int r = node.first_local(); r < node.end_local(); ++r) {
    CHECK(RankFile::create(side.dir, "mirror", r, node.limit()) == HVDFT_OK);
    auto file = RankFile::open(side.dir, "mirror", r, true);
    CHECK(grow_slot(node, *file, {r, 0, 1}, 5000) == HVDFT_OK);
    fill_rank(node, r);
  }
  hvdft_divergence found{30, 20, 1, {1}, "dense/kernel:0"};
  node.put_divergence(0, found);
  node.push_event({7, HVDFT_EV_DIVERGED, static_cast<uint32_t>(node.first_local()), 0, 0, 0});
  if (side.store->length() == 0 && (node.is_local(0) || with_log)) append(side);
  node.header().rosters[0].mark = pack_mark(0, 6);
  node.header().oldest[0] = cut_key(0, 3);
}

// ---------------------------------------------------------------- an arena and its readers

// As `hvdft log show`, the display and the report look at a job.
void observe(const std::string& dir) {
  hvdft_observer* observer = hvdft_observer_open(dir.c_str());
  if (observer == nullptr) return;
  char text[256];
  for (uint64_t id = 0; id < 8; ++id) hvdft_observer_op(observer, id, text, sizeof text);
  hvdft_event events[4];
  hvdft_observer_events(observer, 0, events, 4);
  hvdft_observer_report(observer, 0, events, 4);
  hvdft_divergence divergence;
  hvdft_observer_divergence(observer, 0, &divergence);
  for (uint64_t n = 0; n < 2; ++n) hvdft_observer_note(observer, HVDFT_FIRST_NOTE, n);
  for (int r = 0; r < kRanks; ++r) {
    hvdft_status status;
    hvdft_snapshots snapshots;
    hvdft_watch watch;
    hvdft_memory memory;
    hvdft_ring_end end;
    hvdft_observer_status(observer, r, &status);
    hvdft_observer_snapshots(observer, r, &snapshots);
    hvdft_observer_watch(observer, r, &watch);
    hvdft_observer_left(observer, r);
    for (int way : {0, 1}) {
      hvdft_observer_memory(observer, r, way, &memory);
      hvdft_observer_ring_end(observer, r, way, &end);
    }
    for (int peer = 0; peer < kRanks; ++peer) {
      hvdft_pair pair;
      hvdft_observer_pair(observer, r, peer, &pair);
    }
  }
  hvdft_observer_close(observer);
}

// As a checkpoint writer takes what a job has left.
void take(const std::string& dir, int first, int end) {
  hvdft_checkpointer* writer = hvdft_checkpointer_open(dir.c_str(), "mirror");
  if (writer == nullptr) return;
  std::vector<char> room;
  for (int r = first; r < end; ++r) {
    int loops = hvdft_checkpointer_loops(writer, r);
    for (int loop = 0; loop < std::min(loops, 3); ++loop) {
      for (int slot : {0, 1}) {
        hvdft_snapshot snapshot;
        if (hvdft_checkpointer_slot(writer, r, loop, slot, &snapshot) == 1) {
          room.resize(snapshot.bytes);
          hvdft_checkpointer_copy(writer, r, loop, slot, &snapshot, room.data());
        }
        for (int peer = 0; peer < kRanks; ++peer) {
          hvdft_checkpointer_messages(writer, r, peer, 1, loop, slot);
        }
      }
    }
    hvdft_checkpointer_present(writer, r, 6);
  }
  uint64_t from = 0;
  hvdft_event event;
  hvdft_checkpointer_next(writer, &from, &event);
  hvdft_checkpointer_ended_well(writer);
  hvdft_checkpointer_close(writer);
}

// As the agents of the next generation go on with it, and a worker that is started again.
void go_on(const std::string& dir, int first, const MirrorEdge& edge) {
  hvdft_rejoining* node = hvdft_rejoin_open(dir.c_str(), "mirror");
  if (node == nullptr) return;  // its log is damaged
  hvdft_rejoin_state state;
  hvdft_rejoin_look(node, &state);
  std::vector<uint64_t> ranges(64);
  int64_t count = hvdft_rejoin_ranges(node, 3, ranges.data(), 32);
  uint64_t end = node_offsets(kRanks).heap + align_up(kLimit, kPage);  // it is less
  for (int64_t i = 0; i < std::min(count, int64_t{32}); ++i) {
    CHECK(ranges[2 * i] + ranges[2 * i + 1] <= end);
  }
  for (int slot : {0, 1}) {
    hvdft_rejoin_slot out;
    const void* data;
    hvdft_rejoin_slot_of(node, first, 0, slot, &out, &data);
  }
  hvdft_rejoin_close(node);
  auto opened = Node::open(dir, "mirror", Node::kLeader);
  CHECK(opened != nullptr);
  LogStore store(*opened);
  for (uint64_t id = store.gone(); id < store.length(); ++id) {
    if (const Record* record = opened->record(id)) check_record(*opened, *record);
  }
  for (int r = 0; r < kRanks; ++r) {
    loops_of(*opened, r);
    is_present(*opened, r, store.length());
    latest_return(*opened, r);
  }
  MirrorNews news(*opened);
  MirrorSender sender(*opened, news, edge);
  std::string out;
  sender.resume({0, store.length(), store.gone(), opened->header().event_count.load()});
  news.look();
  sender.collect(now += 1000000000, &out);
}

void read_messages(const Node& node, int source, int dest) {
  auto file = PairFile::open(node, source, dest, false);
  if (!file) return;
  for (uint64_t number = 0; number < std::min<uint64_t>(file->sent(), 4); ++number) {
    if (!file->see(number).there) {
      file->why_not_there(number);
      continue;
    }
    std::string data(file->message(number).bytes, '\0');
    if (file->read(file->message(number).offset, data.data(), data.size()) == HVDFT_OK) {
      file->check_data(number, data.data());
    }
  }
  file->header().sender.fate(0);
}

// A part of a file, as it was, to be damaged and mended.
struct Part {
  char* data;
  uint64_t bytes;
  std::string sound;
  Part(void* at, uint64_t size)
      : data(static_cast<char*>(at)), bytes(size), sound(data, static_cast<size_t>(size)) {}
  void mend() const { std::memcpy(data, sound.data(), bytes); }
};

class DamagedJob {
 public:
  // Of the first node, or of the second.
  DamagedJob(int first, int locals, const MirrorEdge& edge)
      : side_(first, locals, edge.peer, edge.end), edge_(edge), first_(first) {
    fill(side_, true);
    begin_log(side_);
    for (const char* text : {"first", "second"}) send(node(), first, 1 - first / 2, text);
    pair_ = PairFile::open(node(), first, 1 - first / 2, true);
    add_header(node().header());
    for (int r = 0; r < kRanks; ++r) add_rank(node().rank(r));
    NodeHeader& h = node().header();
    NodeOffsets at = node_offsets(kRanks);
    parts_.emplace_back(reinterpret_cast<char*>(&h) + at.peers, at.events - at.peers);
    parts_.emplace_back(node().event_slots(), 8 * sizeof(Event));
    parts_.emplace_back(node().divergences(), 2 * sizeof(Divergence));
    for (uint64_t id = 0; id < side_.store->length(); ++id) {
      auto* record = const_cast<Record*>(node().record(id));
      if (record != nullptr) parts_.emplace_back(record, record->bytes());
    }
    parts_.emplace_back(&node().index()[0], 8 * sizeof(uint64_t));
    parts_.emplace_back(&node().kept()[0], 8 * sizeof(uint64_t));
    parts_.emplace_back(node().fingerprints(first), 64);
    PairHeader& pair = pair_->header();
    add(&pair.decided_before, &pair.sender);
    add(&pair.sender, &pair.sender.loops[2]);
    add(&pair.receiver, &pair.receiver.loops[2]);
    parts_.emplace_back(&pair_->message(0), 3 * sizeof(MessageHead));
  }

  void try_one(Damage* draw) {
    for (uint64_t left = 1 + draw->below(3); left > 0; --left) {
      const Part& part = parts_[draw->below(parts_.size())];
      draw->damage(part.data, part.bytes);
    }
    // A process waits a second for each event that has been counted and is not there.
    node().header().event_count.store(events_);
    node().header().report_count.store(reported_);
    observe(side_.dir);
    take(side_.dir, node().first_local(), node().end_local());
    read_messages(node(), first_, 1 - first_ / 2);
    go_on(side_.dir, first_, edge_);
    for (const Part& part : parts_) part.mend();
  }

 private:
  // Those that are short are damaged as often as the long ones: so each word has its turn. But for
  // the files' headers, of which damage_test.cc flips each bit.
  void add(void* from, void* to) {
    parts_.emplace_back(from,
                        static_cast<uint64_t>(static_cast<char*>(to) - static_cast<char*>(from)));
  }
  void add_header(NodeHeader& h) {
    add(&h.generation, &h.claims);
    add(&h.claims[0], &h.claims[2]);
    add(&h.term, &h.rosters);
    add(&h.rosters[0], &h.rosters[0].present[1]);
    for (auto& notes : h.notes) add(&notes[0], &notes[3]);
    add(&h.leave_requests[1].answered, &h + 1);
  }
  void add_rank(RankBlock& block) {
    add(&block, block.last_words);
    add(&block.stops[1], block.stops[1].text + 4);
    add(&block.snapshot_count, &block.loops);
    add(&block.loops[0], &block.loops[2]);
  }

  Node& node() { return *side_.node; }
  Side side_;
  const MirrorEdge edge_;
  const int first_;
  std::unique_ptr<PairFile> pair_;
  std::vector<Part> parts_;
  uint64_t events_ = side_.header().event_count, reported_ = side_.header().report_count;
};

// ---------------------------------------------------------------- the mirror's streams

std::vector<std::string> streams() {
  Side zero(0, 2, 2, 3), one(2, 1, 0, 2);
  renew(zero, one);
  fill(zero);
  fill(one);
  send(*zero.node, 0, 2, "to another host");
  zero.header().term = 2;
  std::vector<std::string> found(2);
  for (int i = 0; i < 8; ++i) {
    zero.collect(now += 1000000000, &found[0]);
    one.collect(now += 1000000000, &found[1]);
    zero.node->rank(2).mail_taken = 2;
    zero.node->rank(2).entered = 5;
  }
  begin_log(zero);
  zero.collect(now += 1000000000, &found[0]);
  one.node->stop(2, 1, "why");
  one.collect(now += 1000000000, &found[1]);
  CHECK(found[0].size() > 1000 && found[1].size() > 1000);
  one.feed(found[0]);
  one.receiver->settle();
  one.renew();
  CHECK(one.header().log_length == kOps && one.node->record(1) == nullptr);
  std::string hellos[2];
  zero.receiver->say_hello(&hellos[0], {{2, 1}});
  one.receiver->say_hello(&hellos[1]);
  return {hellos[0] + found[0], hellos[1] + found[1]};
}

class DamagedJobs {
 public:
  void try_one(Damage* draw) { (draw->below(2) == 0 ? zero_ : one_).try_one(draw); }

 private:
  DamagedJob zero_{0, 2, {true, true, 2, 3, 2, 2}}, one_{2, 1, {false, false, 0, 2, 3, 2}};
};

// A frame's head, or what its payload begins with, is something else.
void damage_a_frame(std::string* stream, Damage* draw) {
  std::vector<size_t> heads;
  for (size_t at = 0; at < stream->size();) {
    heads.push_back(at);
    at += sizeof(FrameHead) + get<FrameHead>(stream->data() + at).bytes;
  }
  size_t at = heads[draw->below(heads.size())];
  draw->damage(stream->data() + at, std::min<size_t>(96, stream->size() - at));
}

class DamagedStreams {
 public:
  void try_one(Damage* draw) {
    if (tried_++ % 64 == 0) begin();
    bool down = draw->below(2) == 0;
    Side& to = down ? *one_ : *zero_;
    to.renew();
    std::string stream = sound_[down ? 0 : 1];
    if (draw->below(4) == 0) {
      stream = draw->damaged(stream);
    } else {
      damage_a_frame(&stream, draw);
    }
    to.feed(stream);
    to.receiver->settle();
    if (to.receiver->hello()) to.sender->resume(*to.receiver->hello());
    std::string answer;
    to.collect(now += 1000000000, &answer);
  }

 private:
  void begin() {
    zero_ = std::make_unique<Side>(0, 2, 2, 3);
    one_ = std::make_unique<Side>(2, 1, 0, 2);
    zero_->header().generation = one_->header().generation = 1;  // as of the streams
    fill(*zero_);
    begin_log(*zero_);
  }
  const std::vector<std::string> sound_ = streams();
  std::unique_ptr<Side> zero_, one_;
  uint64_t tried_ = 0;
};

// ---------------------------------------------------------------- a proposal

// Of rank 0's worker, whose script may have written into it.
class DamagedProposal {
 public:
  void try_one(Damage* draw) {
    if (tried_++ % 64 == 0) side_ = std::make_unique<Side>(0, 2, 2, 3);
    Node& node = *side_->node;
    NodeHeader& h = node.header();
    std::string proposal;
    for (uint64_t bytes : {3, 70000, 0}) {
      OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
      proposal.append(reinterpret_cast<const char*>(&op), sizeof op);
      proposal.append("respsig", 8);
    }
    draw->damage(proposal.data(), proposal.size());
    std::memcpy(node.proposal(), proposal.data(), proposal.size());
    LogWriter writer(node, kOpRules);
    writer.open();
    h.proposal_term = h.term;
    h.proposal_count = draw->below(8) == 0 ? UINT32_MAX : 3;
    h.proposed.fetch_add(1);
    writer.step();
    for (uint64_t id = 0; id < h.log_length; ++id) {
      if (const Record* record = node.record(id)) CHECK(check_record(node, *record) == HVDFT_OK);
    }
  }

 private:
  std::unique_ptr<Side> side_;
  uint64_t tried_ = 0;
};

// A damaged stream stops the job with a line that names the host, and nothing more is believed.
void a_stream_that_is_none_is_named() {
  Side zero(0, 2, 2, 3), one(2, 1, 0, 2);
  std::string stream;
  put_frame(&stream, FrameKind::kTerm, kRanks, uint64_t{5});
  put_frame(&stream, FrameKind::kTerm, 0, uint64_t{6});
  one.feed(stream);
  const StopText* why = one.node->stopped();
  CHECK(why != nullptr && one.header().term == 0);
  CHECK(std::strstr(why->text, "the host of rank 0 has sent what is no frame of the mirror"));
}

void a_message_log_with_too_many_messages_is_not_opened() {
  Side zero(0, 2, 2, 3);
  send(*zero.node, 0, 1, "first");
  auto file = PairFile::open(*zero.node, 0, 1, true);
  for (uint64_t count : {uint64_t{33}, uint64_t{1} << 40}) {
    file->header().sender.count = count;
    CHECK(PairFile::open(*zero.node, 0, 1, false) == nullptr);
    CHECK(std::strstr(hvdft_error(), "messages-0-1.log is damaged: it has room for 32 messages"));
  }
  file->header().sender.count = 32;
  CHECK(PairFile::open(*zero.node, 0, 1, false) != nullptr);
}

// `more`: whether to go on after so many inputs.
template <typename Job>
void try_many(const char* name, uint64_t seed, const std::function<bool(uint64_t)>& more) {
  Job job;
  Damage draw(seed);
  for (uint64_t number = 0; more(number); ++number) {
    begin_input(name, number);
    job.try_one(&draw);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  catch_crashes();
  a_stream_that_is_none_is_named();
  a_message_log_with_too_many_messages_is_not_opened();
  Clock::time_point until;
  auto more = [&](uint64_t number) { return seconds > 0 ? Clock::now() < until : number < 2000; };
  auto third =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds / 3));
  until = Clock::now() + third;
  try_many<DamagedJobs>("arenas", seed, more);
  until = Clock::now() + third;
  try_many<DamagedStreams>("streams", seed, more);
  until = Clock::now() + third;
  try_many<DamagedProposal>("proposals", seed, more);
  return 0;
}
