#include <algorithm>
#include <utility>

#include "arena/memory.h"
#include "base/doorbell.h"
#include "base/error.h"
#include "replication/frame_check.h"
#include "replication/mirror.h"

namespace hvdft {

namespace {

template <typename Act>
void each_of_run(int first, const char* payload, Act act) {
  auto run = get<RankRun>(payload);
  for (int r = first; r < first + static_cast<int>(run.ranks); ++r) act(r, run.word);
}

bool is_of_messages(FrameKind kind) {
  return kind == FrameKind::kPiece || kind == FrameKind::kPairMark || kind == FrameKind::kReceived;
}

}  // namespace

void MirrorReceiver::feed(uint64_t now_ns, const char* data, uint64_t bytes) {
  if (refused_) return;
  now_ns_ = now_ns;
  rest_.append(data, bytes);
  uint64_t at = 0;
  while (rest_.size() - at >= sizeof(FrameHead)) {
    auto frame = get<FrameHead>(rest_.data() + at);
    if (frame.bytes > kMostFrameBytes) return refuse(frame);
    if (rest_.size() - at - sizeof frame < frame.bytes) break;
    const char* payload = rest_.data() + at + sizeof frame;
    if (!can_be(frame, payload)) return refuse(frame);
    if (pass_on(frame, payload)) apply(frame, payload);
    at += sizeof frame + frame.bytes;
  }
  rest_.erase(0, at);
  if (store_ != nullptr) store_->publish_room();
  ring_whom_it_concerns();
}

bool MirrorReceiver::can_be(const FrameHead& frame, const char* payload) const {
  uint64_t length = store_ != nullptr ? store_->length() : 0;
  return is_possible(node_, length, store_ != nullptr, frame, payload) &&
         (!is_of_messages(frame.kind) || messages_.is_possible(frame.kind, payload, frame.bytes));
}

// Where the next frame begins is unknown.
void MirrorReceiver::refuse(const FrameHead& frame) {
  refused_ = true;
  rest_.clear();
  fail(HVDFT_EINVAL,
       "the host of rank %d has sent what is no frame of the mirror (kind %u, of rank %u, %lu "
       "bytes); check that host's memory and network, and start the job again",
       edge_.peer, static_cast<uint32_t>(frame.kind), frame.rank, frame.bytes);
  check(HVDFT_EINVAL);
}

// Lets a frame pass through this node; returns whether it concerns this node, too.
bool MirrorReceiver::pass_on(const FrameHead& frame, const char* payload) {
  FrameKind kind = frame.kind;
  if (!edge_.down) {
    // Of rank 0, with which all compare their variables.
    if (kind == FrameKind::kFingerprints || kind == FrameKind::kCuts) {
      news_.pass_down(frame, payload);
    }
    return true;
  }
  if (!relays() || kind == FrameKind::kHello || kind == FrameKind::kBye ||
      kind == FrameKind::kStop) {
    return true;
  }
  if (is_of_messages(kind)) {
    auto [source, dest] = ends_of(frame, payload);
    auto below = [&](int r) { return r >= node_.first_local() && r < edge_.mine_end; };
    if (!below(source) || !below(dest)) news_.pass_up(frame, payload);
    return true;
  }
  news_.pass_up(frame, payload);
  return kind == FrameKind::kNow || kind == FrameKind::kFacts || kind == FrameKind::kEvent;
}

void MirrorReceiver::ring_whom_it_concerns() {
  if (log_writer_) node_.notify_log_writer();
  if (agents_) notify(node_.header().event_doorbell);
  if (snapshots_) notify(node_.header().snapshot_doorbell);
  if (workers_) {
    node_.notify_local_workers();
  } else if (coordinator_) {
    node_.notify_worker(0);
  }
  log_writer_ = workers_ = coordinator_ = agents_ = snapshots_ = false;
}

void MirrorReceiver::apply(const FrameHead& frame, const char* payload) {
  int rank = static_cast<int>(frame.rank);
  RankBlock& block = node_.rank(rank);
  switch (frame.kind) {
    case FrameKind::kHello:
      return apply_hello(payload, frame.bytes);
    case FrameKind::kNow: {
      auto differ = static_cast<int64_t>(now_ns_ - get<uint64_t>(payload));
      auto known = clocks_differ_ns_.emplace(rank, differ).first;
      known->second = std::min(known->second, differ);
      return block.clock_ahead_ns.store(known->second);
    }
    case FrameKind::kFacts:
      return apply_changes(rank, payload, frame.bytes);
    case FrameKind::kLoop: {
      auto frame = get<LoopFrame>(payload);
      if (!has_loop(rank, frame.loop)) return;
      Loop& loop = block.loops[frame.loop];
      bool changed = loop.ended.load() != 0;  // one that had ended
      // 0: its part is still to come, again if agents have died. Until then what is here counts.
      if (frame.published != 0) {
        uint64_t published = parts_.published_here(rank, frame.loop, frame.published);
        loop.published.store(published, std::memory_order_release);
      }
      loop.begin.store(frame.begin, std::memory_order_release);
      loop.ended.store(static_cast<uint32_t>(frame.ended), std::memory_order_seq_cst);
      if (changed) block.loop_changes.fetch_add(1);
      snapshots_ |= frame.ended != 0;
      log_writer_ = true;
      return;
    }
    case FrameKind::kMail:
      coordinator_ = true;
      return apply_mails(payload, frame.bytes);
    case FrameKind::kEvent:
      return apply_event(rank, payload, frame.bytes);
    case FrameKind::kStop:
      return node_.stop(rank, get<int32_t>(payload), payload + sizeof(int32_t));
    case FrameKind::kRecord:
      workers_ = true;
      snapshots_ |= get<OpHead>(payload).kind == HVDFT_ROSTER;  // ranks that return wait for it
      return apply_record(payload);
    case FrameKind::kDecided:
      decided_.emplace_back(payload, frame.bytes);
      if (!news_.any_below()) settle();
      return;
    case FrameKind::kJoined:
      return each_of_run(rank, payload, [&](int r, uint64_t request) {
        node_.rank(r).entered.store(request, std::memory_order_release);
        node_.notify_worker(r);
      });
    case FrameKind::kTaken:
      return each_of_run(rank, payload, [&](int r, uint64_t sequence) {
        node_.rank(r).mail_taken.store(sequence, std::memory_order_seq_cst);
        if (node_.rank(r).mail_awaited.exchange(0) != 0) node_.notify_worker(r);
      });
    case FrameKind::kTerm:
      workers_ = true;
      return node_.header().term.store(get<uint64_t>(payload), std::memory_order_release);
    case FrameKind::kMark:
      return node_.header().mark.store(get<uint64_t>(payload), std::memory_order_seq_cst);
    case FrameKind::kRoster: {
      auto roster = get<RosterFrame>(payload);
      Roster& ours = node_.header().rosters[roster.number];
      withdraw(ours.mark);  // it may take another one's place
      for (int i = 0; i < kMaxRanks / 64; ++i) ours.present[i].store(roster.present[i]);
      return ours.mark.store(roster.mark, std::memory_order_seq_cst);
    }
    case FrameKind::kFingerprints:
      snapshots_ = true;
      return apply_fingerprints(rank, payload, frame.bytes);
    case FrameKind::kMemory:
      return apply_memory(rank, payload);
    case FrameKind::kCuts: {
      auto cuts = get<CutsFrame>(payload);
      if (!has_loop(rank, cuts.loop)) return;
      Loop& loop = block.loops[cuts.loop];
      loop.given_up.store(cuts.given_up, std::memory_order_seq_cst);
      loop.passed_cut.store(cuts.passed, std::memory_order_seq_cst);
      loop.ended.store(static_cast<uint32_t>(cuts.ended), std::memory_order_seq_cst);
      snapshots_ = true;
      return;
    }
    case FrameKind::kPart:
      if (!has_loop(rank, get<PartHead>(payload).loop)) return;
      return parts_.apply(rank, payload, frame.bytes);
    case FrameKind::kHeld: {
      auto held = get<LoopWord>(payload);
      if (!has_loop(rank, held.loop)) return;
      log_writer_ = true;
      return block.loops[held.loop].held.store(held.word, std::memory_order_release);
    }
    case FrameKind::kOldest: {
      auto oldest = get<LoopWord>(payload);
      snapshots_ = true;
      return node_.header().oldest[oldest.loop].store(oldest.word, std::memory_order_seq_cst);
    }
    case FrameKind::kOps:
      return apply_ops(rank, payload, frame.bytes);
    case FrameKind::kBye:
      bye_ = true;
      return;
    case FrameKind::kPiece:
      return check(messages_.apply_piece(rank, payload, frame.bytes));
    case FrameKind::kPairMark:
      return check(messages_.apply_mark(rank, payload));
    case FrameKind::kReceived:
      return check(messages_.apply_received(rank, payload));
  }
}

void MirrorReceiver::say_hello(std::string* out, const std::vector<EventsHeard>& heard) const {
  const NodeHeader& h = node_.header();
  HelloFrame hello{h.generation.load(), h.log_length.load(), gone_,
                   node_.rank(edge_.peer).events_heard.load()};
  std::vector<EventsHeard> there;
  for (const EventsHeard& of : heard) {
    auto first = static_cast<int>(of.first);
    if (first == edge_.peer) hello.events = of.events;
    if (first >= edge_.peer && first < edge_.end) there.push_back(of);
  }
  put_frame(out, FrameKind::kHello, 0, &hello, sizeof hello, there.data(),
            there.size() * sizeof(EventsHeard));
}

void MirrorReceiver::apply_hello(const char* payload, uint64_t bytes) {
  auto theirs = get<HelloFrame>(payload);
  if (theirs.generation == node_.header().generation.load()) {
    hello_ = theirs;
    for (uint64_t at = sizeof theirs; at < bytes; at += sizeof(EventsHeard)) {
      heard_.push_back(get<EventsHeard>(payload + at));
    }
  } else {
    node_.stop(node_.first_local(), 1,
               "an agent of another generation speaks; start the job again");
  }
}

// If killed in between, the event is written twice: better than never. A node on the way may have
// heard what rank 0's node has not, and so is told again.
void MirrorReceiver::apply_event(int first, const char* payload, uint64_t bytes) {
  auto frame = get<EventFrame>(payload);
  auto& heard = node_.rank(first).events_heard;
  if (frame.number < heard.load()) return;
  if (bytes > sizeof frame) {
    node_.put_divergence(frame.event.detail, get<hvdft_divergence>(payload + sizeof frame));
  }
  frame.event.time_ns = local_time(first, frame.event.time_ns);
  node_.hear_event(frame.event);
  heard.store(frame.number + 1);
}

void MirrorReceiver::apply_changes(int first, const char* payload, uint64_t bytes) {
  for (const char* at = payload; at < payload + bytes;) {
    FactsChange change(at);
    RankFacts& facts = facts_[change.rank];
    RankFacts before = facts;
    change.apply(&facts);
    apply_facts(first, change.rank, before, facts);
    at = change.end();
  }
}

// `state` and `sessions` last: see mirror.h.
void MirrorReceiver::apply_facts(int first, int rank, const RankFacts& before, const RankFacts& f) {
  RankBlock& block = node_.rank(rank);
  bool is_urgent = urgent(before, f);
  if (is_urgent) workers_ = agents_ = true;
  // A rank that has left is not waited for any more.
  if (before.state != f.state && f.state == HVDFT_DONE) log_writer_ = snapshots_ = true;
  log_writer_ |= block.enter_request.load() != f.enter_request;
  log_writer_ |= block.mark_request.exchange(f.mark_request) != f.mark_request;
  log_writer_ |= block.returns.exchange(f.returns) != f.returns;
  // Ranks that return wait in a loop as long as it goes on.
  snapshots_ |= block.loops_done.exchange(f.loops_done) != f.loops_done;
  block.contributed.store(f.contributed, std::memory_order_seq_cst);
  // In this order: see is_passed_elsewhere().
  block.pending.store(static_cast<int64_t>(f.pending), std::memory_order_seq_cst);
  block.executed.store(f.executed, std::memory_order_seq_cst);
  block.step.store(f.step);
  block.asleep.store(f.asleep != 0 ? uint64_t{1} << 32 | block.worker_doorbell.load() : 0);
  block.since_ns.store(local_time(first, f.since_ns));
  block.left_ns.store(local_time(first, f.left_ns));
  block.left_at.store(f.left_at);
  block.pid.store(f.pid);
  block.snapshot_count.store(f.snapshot_count);
  block.snapshot_steps.store(f.snapshot_steps);
  block.training_ns.store(f.training_ns);
  block.stall_ns.store(f.stall_ns);
  block.copy_ns.store(f.copy_ns);
  block.step_bytes.store(f.step_bytes);
  block.ring_received.store(f.ring_received);
  block.ring_sent.store(f.ring_sent);
  block.rounds.store(f.rounds);
  block.compute_ns.store(f.compute_ns);
  block.wait_ns.store(f.wait_ns);
  block.moving_ns.store(f.moving_ns);
  block.network_ns.store(f.network_ns);
  block.orderly_exit.store(f.orderly_exit);
  block.incarnation.store(f.incarnation);
  block.enter_request.store(f.enter_request, std::memory_order_release);
  block.sessions.store(f.sessions, std::memory_order_release);
  block.state.store(f.state, std::memory_order_release);
  news_.note(rank, is_urgent);
}

void MirrorReceiver::apply_mails(const char* payload, uint64_t bytes) {
  auto head = get<MailHead>(payload);
  const char* of = payload + sizeof head;
  const char* data = of + head.runs * sizeof(MailRun);
  for (; of < data; of += sizeof(MailRun)) {
    auto run = get<MailRun>(of);
    for (uint64_t r = run.first; r < run.first + run.ranks; ++r) {
      apply_mail(static_cast<int>(r), run.sequence, head.term, data,
                 bytes - static_cast<uint64_t>(data - payload));
    }
  }
}

void MirrorReceiver::apply_mail(int rank, uint64_t sequence, uint64_t term, const char* data,
                                uint64_t bytes) {
  RankBlock& block = node_.rank(rank);
  if (int code = grow_mail(node_, rank, bytes); code != HVDFT_OK) return check(code);
  withdraw(block.mail_sequence, sequence - 1);
  block.mail_term.store(term, std::memory_order_relaxed);
  block.mail_bytes.store(bytes, std::memory_order_relaxed);
  write_torn(node_.mail(rank), data, bytes);
  block.mail_sequence.store(sequence, std::memory_order_seq_cst);
}

void MirrorReceiver::apply_fingerprints(int rank, const char* payload, uint64_t bytes) {
  if (int code = grow_fingerprints(node_, rank); code != HVDFT_OK) return check(code);
  publish_fingerprints(node_.fingerprints(rank), get<uint64_t>(payload), payload + sizeof(uint64_t),
                       bytes - sizeof(uint64_t));
}

void MirrorReceiver::apply_memory(int rank, const char* payload) {
  for (auto& memory : node_.rank(rank).memory) {
    for (auto& word : memory) {
      word.store(get<uint64_t>(payload));
      payload += sizeof(uint64_t);
    }
  }
}

void MirrorReceiver::apply_ops(int first, const char* payload, uint64_t bytes) {
  auto head = get<OpsHead>(payload);
  RankBlock& block = node_.rank(static_cast<int>(head.rank));
  OpTimes& times = head.of_ring != 0 ? block.ring_times : block.op_times;
  for (uint64_t at = sizeof head; at < bytes; at += sizeof(OpMoments)) {
    auto op = get<OpMoments>(payload + at);
    for (auto* moment : {&op.handed, &op.begun, &op.contributed, &op.done}) {
      *moment = local_time(first, *moment);
    }
    times.copy(op);
  }
}

void MirrorReceiver::apply_record(const char* payload) {
  check(store_->append(get<OpHead>(payload), payload + sizeof(OpHead)));
  store_->publish();
}

void MirrorReceiver::settle() {
  for (const std::string& frame : std::exchange(decided_, {})) {
    apply_decided(frame.data(), frame.size());
  }
}

void MirrorReceiver::apply_decided(const char* payload, uint64_t bytes) {
  auto end = get<uint64_t>(payload);
  uint64_t at = sizeof end;
  // Those that this node has kept already: one that replaces the other end may not know.
  while (at < bytes && get<uint64_t>(payload + at) < gone_) at += sizeof(uint64_t);
  for (; gone_ < end; ++gone_) {
    if (at < bytes && get<uint64_t>(payload + at) == gone_) {
      check(store_->keep(gone_));
      at += sizeof(uint64_t);
    } else {
      store_->drop(gone_);
    }
  }
  store_->decided(gone_);
}

bool MirrorReceiver::has_loop(int rank, uint64_t number) {
  int code = grow_loops(node_, rank, static_cast<int>(number));
  check(code);
  return code == HVDFT_OK;
}

void MirrorReceiver::check(int code) {
  if (code != HVDFT_OK) node_.stop(node_.first_local(), 1, hvdft_error());
}

// `theirs`: of the clock of the node with this first rank, which has told the time before.
uint64_t MirrorReceiver::local_time(int first, uint64_t theirs) const {
  auto known = clocks_differ_ns_.find(first);
  bool any = theirs != 0 && known != clocks_differ_ns_.end();
  return any ? theirs + static_cast<uint64_t>(known->second) : theirs;
}

}  // namespace hvdft
