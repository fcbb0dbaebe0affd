#include "replication/mirror.h"

#include <algorithm>
#include <utility>

#include "arena/arena_file.h"
#include "arena/memory.h"
#include "arena/rosters.h"
#include "base/error.h"
#include "replication/counter_times.h"

namespace hvdft {

MirrorSender::MirrorSender(const Node& node, MirrorNews& news, const MirrorEdge& edge)
    : node_(node),
      news_(news),
      edge_(edge),
      to_buddy_(!edge.down || (node.is_local(0) && edge.peer == node.end_local())),
      passing_(news.passing(edge.down)),
      sent_(static_cast<size_t>(node.size())),
      parts_(node),
      messages_(
          node, news, [this](int rank) { return tells_of(rank); },
          [this](int rank) { return is_beyond(rank); }) {}

void MirrorSender::resume(const HelloFrame& theirs) {
  log_length_ = theirs.log_length;
  decided_before_ = theirs.gone;
  events_ = theirs.events;
  uint64_t kept = node_.header().kept.load(std::memory_order_acquire);
  while (kept_ < kept && kept_id(kept_) < decided_before_) ++kept_;
}

uint64_t MirrorSender::kept_id(uint64_t number) const {
  return get<uint64_t>(node_.heap() + node_.kept()[number].load() - 1);
}

// Upwards: what others tell of theirs passes as it is.
bool MirrorSender::tells_of(int rank) const {
  return edge_.down ? !is_beyond(rank) : node_.is_local(rank);
}

bool MirrorSender::is_beyond(int rank) const {
  if (edge_.down) return rank >= edge_.peer && rank < edge_.end;
  return rank < node_.first_local() || rank >= edge_.mine_end;
}

void MirrorSender::collect_passing(size_t most, std::string* out) {
  if (out->size() > most) return;
  out->append(passing_);
  passing_.clear();
}

void MirrorSender::collect(uint64_t now_ns, std::string* out) {
  bool idle = out->empty();
  std::string news;
  uint64_t term = node_.header().term.load(std::memory_order_seq_cst);
  uint64_t decided_before = node_.header().decided_before.load(std::memory_order_seq_cst);
  if (edge_.down) {
    collect_log(decided_before, &news);
    collect_answers(&news);
    if (term != term_) put_frame(&news, FrameKind::kTerm, 0, term_ = term);
    collect_oldest(&news);
    collect_passing(SIZE_MAX, &news);
  } else {
    collect_passing(MirrorNews::kMostWaiting, out);
  }
  bool counters = is_time_for_counters(now_ns);
  std::string rest;  // of ranks: goes behind their fingerprints, which are read later
  collect_ranks(counters, &rest);
  for (int r = node_.first_local(); r < node_.end_local(); ++r) {
    if (to_buddy_) collect_loops(r, idle, &rest);
    if (waits_for(r)) collect_cuts(r, &rest);
    if (!edge_.down || waits_for(r)) collect_fingerprints(r, &news);
  }
  if (!edge_.down) collect_mails(&rest);
  news.append(rest);
  if (!edge_.down && counters) {
    collect_memory(&news);
    collect_ops(&news);
  }
  if (!edge_.down && node_.first_local() == edge_.zero_end) collect_held(&news);
  collect_events(&news);
  collect_stop(&news);
  if (idle) messages_.collect(&news);
  if (news.empty()) return;
  put_frame(out, FrameKind::kNow, node_.first_local(), now_ns);
  out->append(news);
}

void MirrorSender::bye(std::string* out) {
  collect_passing(SIZE_MAX, out);
  if (!edge_.down) {  // the report has the last figures
    collect_memory(out);
    collect_ops(out);
  }
  put_frame(out, FrameKind::kBye, 0, nullptr, 0);
}

bool MirrorSender::is_time_for_counters(uint64_t now_ns) {
  if (now_ns < counters_at_ns_) return false;
  auto turn = static_cast<uint64_t>(edge_.down ? edge_.peer : node_.first_local());
  counters_at_ns_ = next_counters_ns(now_ns, node_.file().nodes, turn, node_.file().size);
  return true;
}

void MirrorSender::collect_ranks(bool counters, std::string* out) {
  auto is_due = [&](int rank) {
    Sent& sent = sent_[static_cast<size_t>(rank)];
    if (!tells_of(rank) || sent.due) return;
    sent.due = true;
    due_.push_back(rank);
  };
  seen_urgent_ = news_.urgent_changes().each_since(seen_urgent_, is_due);
  if (counters) seen_all_ = news_.changes().each_since(seen_all_, is_due);
  std::string changes;
  size_t left = 0;
  for (int rank : due_) {
    bool told = collect_rank(rank, &changes);
    sent_[static_cast<size_t>(rank)].due = !told;
    if (!told) due_[left++] = rank;
  }
  due_.resize(left);
  if (changes.empty()) return;
  put_frame(out, FrameKind::kFacts, node_.first_local(), changes.data(), changes.size());
}

// Whether the other end has been told everything.
bool MirrorSender::collect_rank(int rank, std::string* changes) {
  Sent& sent = sent_[static_cast<size_t>(rank)];
  RankFacts facts = facts_of(node_, rank);
  // A rank that is done must not appear to owe messages that it has sent.
  if (facts.state == HVDFT_DONE && messages_.owes(rank)) return false;
  put_changes(rank, sent.facts, facts, changes);
  sent.facts = facts;
  return true;
}

template <typename Tell>
void MirrorSender::each_open_loop(const RankBlock& block, LoopsSeen* seen, Tell tell) {
  uint64_t changes = block.loop_changes.load(std::memory_order_seq_cst);
  if (std::exchange(seen->changes, changes) != changes) seen->from = 0;
  bool all_told = true;
  for (int number = seen->from;; ++number) {
    const Loop& loop = block.loop(number);
    if (loop.begin.load(std::memory_order_acquire) == 0) return;
    bool ended = loop.ended.load(std::memory_order_seq_cst) != 0;  // before what it tells
    all_told = tell(loop, static_cast<uint64_t>(number)) && ended && all_told;
    if (all_told) seen->from = number + 1;
  }
}

void MirrorSender::collect_loops(int rank, bool may_send_parts, std::string* out) {
  Sent& sent = sent_[static_cast<size_t>(rank)];
  each_open_loop(node_.rank(rank), &sent.seen, [&](const Loop& loop, uint64_t i) {
    LoopFrame frame{i, loop.begin.load(std::memory_order_acquire), 0,
                    loop.ended.load(std::memory_order_seq_cst)};
    // The part goes before what tells that it is published.
    frame.published = parts_.collect(rank, static_cast<int>(i), may_send_parts, out);
    bool told = frame.published == loop.published.load(std::memory_order_acquire);
    LoopSent& before = sent.loop(i);
    if (frame.begin == before.begin && frame.published == before.published &&
        frame.ended == before.ended) {
      return told;
    }
    before.begin = frame.begin;
    before.published = frame.published;
    before.ended = frame.ended;
    put_frame(out, FrameKind::kLoop, rank, frame);
    return told;
  });
}

// Ranks of the other end compare their variables with one rank elsewhere: with rank 0, and those
// of its node with the first one of the next node. Rank 0's worker compares those of all.
bool MirrorSender::waits_for(int rank) const {
  if (edge_.down) return rank == 0;
  uint64_t length = node_.header().log_length.load(std::memory_order_acquire);
  return rank == first_present_outside(node_, roster_at(node_, length), 0, edge_.zero_end);
}

void MirrorSender::collect_cuts(int rank, std::string* out) {
  Sent& sent = sent_[static_cast<size_t>(rank)];
  each_open_loop(node_.rank(rank), &sent.seen_cuts, [&](const Loop& loop, uint64_t i) {
    CutsFrame cuts{i, loop.given_up.load(std::memory_order_seq_cst),
                   loop.passed_cut.load(std::memory_order_seq_cst),
                   loop.ended.load(std::memory_order_seq_cst)};
    CutsFrame& before = sent.loop(i).cuts;
    if (std::memcmp(&cuts, &before, sizeof cuts) != 0) {
      put_frame(out, FrameKind::kCuts, rank, before = cuts);
    }
    return true;
  });
}

// Of rank 0's node, whose ranks' parts are here.
void MirrorSender::collect_held(std::string* out) {
  for (int r = 0; r < edge_.zero_end; ++r) {
    Sent& sent = sent_[static_cast<size_t>(r)];
    each_open_loop(node_.rank(r), &sent.seen_held, [&](const Loop& loop, uint64_t i) {
      uint64_t published = loop.published.load(std::memory_order_acquire);
      uint64_t& held = sent.loop(i).held;
      if (published != held) put_frame(out, FrameKind::kHeld, r, LoopWord{i, held = published});
      return true;
    });
  }
}

void MirrorSender::collect_oldest(std::string* out) {
  for (uint64_t i = 0; i < kOldest; ++i) {
    uint64_t oldest = node_.header().oldest[i].load(std::memory_order_seq_cst);
    if (oldest == oldest_[i]) continue;
    put_frame(out, FrameKind::kOldest, 0, LoopWord{i, oldest_[i] = oldest});
  }
}

// Ranks of a node mostly announce the same at the same time: then it goes once for all of them.
void MirrorSender::collect_mails(std::string* out) {
  struct Mail {
    uint64_t term;
    std::string bytes;
    std::vector<MailRun> of;
  };
  std::vector<Mail> mails;
  for (int r = node_.first_local(); r < node_.end_local(); ++r) {
    uint64_t term, sequence;
    std::string bytes;
    if (!read_mail(r, &term, &sequence, &bytes)) continue;
    sent_[static_cast<size_t>(r)].mail = sequence;
    auto same = std::find_if(mails.begin(), mails.end(), [&](const Mail& mail) {
      return mail.term == term && mail.bytes == bytes;
    });
    if (same == mails.end()) same = mails.insert(mails.end(), {term, std::move(bytes), {}});
    auto rank = static_cast<uint64_t>(r);
    bool goes_on = !same->of.empty() && same->of.back().sequence == sequence &&
                   same->of.back().first + same->of.back().ranks == rank;
    if (!goes_on) same->of.push_back({rank, 0, sequence});
    ++same->of.back().ranks;
  }
  for (const Mail& mail : mails) {
    MailHead head{mail.term, mail.of.size()};
    std::string payload(reinterpret_cast<const char*>(&head), sizeof head);
    payload.append(reinterpret_cast<const char*>(mail.of.data()), mail.of.size() * sizeof(MailRun));
    put_frame(out, FrameKind::kMail, node_.first_local(), payload.data(), payload.size(),
              mail.bytes.data(), mail.bytes.size());
  }
}

// What a rank has announced, as a whole, if it is new.
bool MirrorSender::read_mail(int rank, uint64_t* term, uint64_t* sequence,
                             std::string* bytes) const {
  const RankBlock& block = node_.rank(rank);
  *sequence = block.mail_sequence.load(std::memory_order_seq_cst);
  if (*sequence % 2 == 1 || *sequence == sent_[static_cast<size_t>(rank)].mail) return false;
  *term = block.mail_term.load(std::memory_order_relaxed);
  uint64_t size = block.mail_bytes.load(std::memory_order_relaxed);
  if (size > kMailBytes) return false;  // it is being rewritten
  bytes->resize(size);
  copy_torn(bytes->data(), node_.mail(rank), size);
  // Its owner may have overwritten it meanwhile.
  std::atomic_thread_fence(std::memory_order_acquire);
  return block.mail_sequence.load(std::memory_order_seq_cst) == *sequence;
}

void MirrorSender::collect_fingerprints(int rank, std::string* out) {
  Sent& sent = sent_[static_cast<size_t>(rank)];
  const Fingerprints* both = node_.fingerprints(rank);
  int older = both[0].cut.load() > both[1].cut.load() ? 1 : 0;
  for (int at : {older, 1 - older}) {
    uint64_t cut = both[at].cut.load(std::memory_order_seq_cst);
    if (cut <= sent.fingerprints) continue;
    std::string data(std::min(both[at].bytes, sizeof both[at].data), '\0');
    copy_torn(data.data(), both[at].data, data.size());
    std::atomic_thread_fence(std::memory_order_acquire);
    if (both[at].cut.load(std::memory_order_seq_cst) != cut) continue;
    put_frame(out, FrameKind::kFingerprints, rank, &cut, sizeof cut, data.data(), data.size());
    sent.fingerprints = cut;
  }
}

void MirrorSender::collect_log(uint64_t decided_before, std::string* out) {
  uint64_t length = node_.header().log_length.load(std::memory_order_acquire);
  // Marks go before the ops that follow them; those before `length` are known by now.
  uint64_t mark = node_.header().mark.load(std::memory_order_seq_cst);
  if (mark != mark_) put_frame(out, FrameKind::kMark, 0, mark_ = mark);
  collect_rosters(out);
  for (; log_length_ < length; ++log_length_) {
    // It is not truncated before the other node's ranks have snapshots after it.
    const Record* record = node_.record(log_length_);
    if (record == nullptr) {
      fail(HVDFT_EINVAL, "op %lu, which the host of rank %d lacks, is not in the log; %s",
           log_length_, edge_.peer, kStartAgain);
      return node_.stop(node_.first_local(), 1, hvdft_error());
    }
    put_frame(out, FrameKind::kRecord, 0, &record->op, sizeof record->op, record + 1,
              record->op.tail_bytes());
  }
  if (decided_before != decided_before_) collect_decided(decided_before, out);
}

// With the first one that is not announced: it may have been, and can never begin.
void MirrorSender::collect_rosters(std::string* out) {
  for (uint64_t number = 0; number < kRosters; ++number) {
    const Roster& roster = node_.header().rosters[number];
    uint64_t mark = roster.mark.load(std::memory_order_seq_cst);
    if (mark != roster_marks_[number]) {
      RosterFrame frame{number, roster_marks_[number] = mark, {}};
      for (int i = 0; i < kMaxRanks / 64; ++i) frame.present[i] = roster.present[i].load();
      put_frame(out, FrameKind::kRoster, 0, frame);
    }
    if (mark == 0) return;
  }
}

void MirrorSender::collect_decided(uint64_t decided_before, std::string* out) {
  std::vector<uint64_t> words{decided_before};
  uint64_t kept = node_.header().kept.load(std::memory_order_acquire);
  for (; kept_ < kept; ++kept_) {
    uint64_t id = kept_id(kept_);
    if (id >= decided_before) break;
    words.push_back(id);
  }
  put_frame(out, FrameKind::kDecided, 0, words.data(), words.size() * sizeof(uint64_t));
  decided_before_ = decided_before;
}

void MirrorSender::collect_answers(std::string* out) {
  auto news = [](uint64_t now, uint64_t* sent) {
    return std::exchange(*sent, now) == now ? std::nullopt : std::optional(now);
  };
  put_runs(out, FrameKind::kJoined, edge_.peer, edge_.end, [&](int r) {
    uint64_t entered = node_.rank(r).entered.load(std::memory_order_acquire);
    return news(entered, &sent_[static_cast<size_t>(r)].entered);
  });
  put_runs(out, FrameKind::kTaken, edge_.peer, edge_.end, [&](int r) {
    uint64_t taken = node_.rank(r).mail_taken.load(std::memory_order_seq_cst);
    auto word = news(taken, &sent_[static_cast<size_t>(r)].mail_taken);
    if (word && taken == node_.rank(r).mail_sequence.load()) shrink_mail(node_, r);
    return word;
  });
}

void MirrorSender::collect_events(std::string* out) {
  hvdft_event events[64];
  int count;
  while ((count = node_.events().read(events_, events, 64)) > 0) {
    for (int i = 0; i < count; ++i, ++events_) {
      int rank = static_cast<int>(events[i].rank);
      if (events[i].type == HVDFT_EV_LOST || !tells_of(rank)) continue;
      if (edge_.down && !is_for_all(events[i])) continue;  // they are in the report
      EventFrame frame{events_, events[i]};
      hvdft_divergence found;
      bool known = events[i].type == HVDFT_EV_DIVERGED &&
                   node_.read_divergence(events[i].detail, &found) == HVDFT_OK;
      put_frame(out, FrameKind::kEvent, node_.first_local(), &frame, sizeof frame, &found,
                known ? sizeof found : 0);
    }
  }
}

void MirrorSender::collect_memory(std::string* out) {
  hvdft_memory memory[2] = {memory_now(node_), memory_most(node_)};
  if (std::memcmp(memory, memory_, sizeof memory) == 0) return;
  std::memcpy(memory_, memory, sizeof memory);
  put_frame(out, FrameKind::kMemory, node_.first_local(), memory, sizeof memory);
}

void MirrorSender::collect_ops(std::string* out) {
  if (node_.header().traces_ops.load() == 0) return;
  for (int r = node_.first_local(); r < node_.end_local(); ++r) collect_ops(r, false, out);
  collect_ops(node_.first_local(), true, out);
}

void MirrorSender::collect_ops(int rank, bool of_ring, std::string* out) {
  OpsHead head{static_cast<uint64_t>(rank), of_ring ? 1u : 0u};
  std::string payload(reinterpret_cast<const char*>(&head), sizeof head);
  const RankBlock& block = node_.rank(rank);
  (of_ring ? told_ring_ : told_ops_)[rank].each_new(
      of_ring ? block.ring_times : block.op_times,
      [&](const OpMoments& at) { payload.append(reinterpret_cast<const char*>(&at), sizeof at); });
  if (payload.size() == sizeof head) return;
  put_frame(out, FrameKind::kOps, node_.first_local(), payload.data(), payload.size());
}

void MirrorSender::collect_stop(std::string* out) {
  const StopText* why = stop_ ? nullptr : node_.stopped();
  if (why == nullptr) return;
  stop_ = true;
  put_frame(out, FrameKind::kStop, static_cast<int>(why->rank), &why->code, sizeof why->code,
            why->text, strnlen(why->text, sizeof why->text - 1) + 1);
}

}  // namespace hvdft
