// Every interleaving of a few ranks that negotiate, one of them dying anywhere.
//
// The worker's rule (hvd_ft.h: read the term, then the log, and only then announce) is tried
// against the sequencer in small steps. An announcement does not say which op it is for, as in
// Horovod, whose tensors have the same names in every step; here it carries the op in secret, and
// when an op is agreed, every announcement counted for it must have been meant for it.
//
// When the coordinator agrees on the tensor for the second time, the log numbers it. A rank that
// has read that may announce it by its number from then on, and the coordinator counts both.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "horovod/agree/ft_counts.h"
#include "protocol/sequencer.h"

namespace {

constexpr int kRanks = 3;
constexpr char kOp = 'o', kNumbers = 'n';  // in the log: the tensor's op; what numbers it

enum class Rule { kTermThenLog, kLogThenTerm, kNeverANewTerm };

struct Mail {
  bool there = false, by_number = false;
  uint64_t term = 0, op = 0;
};

struct Worker {
  int incarnation = 0;
  int at = 0;  // which of its steps comes next
  bool alive = true, entered = false, announced = false;
  uint64_t next = 0, seen_term = 0, seen_length = 0, term = 0;
  uint64_t ops = 0;    // executed
  bool knows = false;  // the tensor's number
};

// A rank's request to enter, by its incarnation; and whether it has ever entered.
struct Entry {
  bool asked = false, granted = false;
  int incarnation = 0;
  uint64_t log_length = 0;
};

// Lies there until rank 0's agent, which outlives every worker, has read it.
struct Proposal {
  bool there = false;
  uint64_t term = 0;
  std::vector<uint64_t> meant;
  bool numbers = false;  // and has the tensor numbered
};

struct World {
  World() { counts.Start(kRanks); }

  hvdft::Sequencer sequencer;
  Proposal proposal;
  Worker workers[kRanks];
  Mail mail[kRanks];
  Entry entries[kRanks];
  std::string log;
  // The coordinator's: the ranks that it has counted, by number and by name, and the ops that these
  // meant; how often it has agreed on the tensor.
  horovod::common::FtCounts counts;
  std::set<int> named;
  std::vector<uint64_t> counted;
  bool complete = false;
  int agreed = 0, deaths = 1;

  std::string key() const {
    std::string k;
    auto add = [&](uint64_t value) { k += static_cast<char>(value); };
    add(sequencer.term());
    add(sequencer.log_length());
    add(static_cast<uint64_t>(deaths));
    add(static_cast<uint64_t>(agreed));
    k += log;
    add(complete);
    for (int r : named) add(static_cast<uint64_t>(r));
    add(254);
    if (counts.Has(0)) counts.EachRank(0, [&](int r) { add(static_cast<uint64_t>(r)); });
    add(254);
    for (const Worker& w : workers) {
      for (uint64_t v :
           {static_cast<uint64_t>(w.at), w.next, w.ops, uint64_t{w.knows}, w.seen_term,
            w.seen_length, w.term, uint64_t{w.alive}, uint64_t{w.entered}, uint64_t{w.announced}}) {
        add(v);
      }
    }
    for (const Mail& m : mail) {
      for (uint64_t v : {uint64_t{m.there}, uint64_t{m.by_number}, m.term, m.op}) add(v);
    }
    for (int r = 0; r < kRanks; ++r) {
      const Entry& e = entries[r];
      for (uint64_t v : {static_cast<uint64_t>(workers[r].incarnation), uint64_t{e.asked},
                         uint64_t{e.granted}, static_cast<uint64_t>(e.incarnation), e.log_length}) {
        add(v);
      }
    }
    for (uint64_t op : counted) add(op);
    add(255);
    add(proposal.there);
    add(proposal.term);
    add(proposal.numbers);
    for (uint64_t op : proposal.meant) add(op);
    return k;
  }
};

class Explorer {
 public:
  Explorer(Rule rule, uint64_t ops) : rule_(rule), ops_(ops) {}
  // Tries everything from `world` on; false if an op was agreed with an announcement that was
  // meant for another one.
  bool explore(const World& world) {
    if (!seen_.insert(world.key()).second) return true;
    bool done = true;
    World answered = world;
    if (!answer(answered) || !explore(answered)) return false;
    World admitted = world;
    admit(admitted);
    if (!explore(admitted)) return false;
    for (int r = 0; r < kRanks; ++r) {
      done = done && world.workers[r].ops == ops_;
      for (bool numbers : {true, false}) {  // though it knows the number it may use the name
        World after = world;
        if (!step(after, r, numbers) || !explore(after)) return false;
      }
      if (world.deaths > 0) {
        World dead = world;
        dead.workers[r] = Worker{};
        dead.workers[r].incarnation = world.workers[r].incarnation + 1;
        if (r == 0) start_term(dead);
        if (r == 0) dead.agreed = 0;
        --dead.deaths;
        if (!explore(dead)) return false;
      }
    }
    finished_ += done;
    return true;
  }
  uint64_t states() const { return seen_.size(); }
  uint64_t finished() const { return finished_; }
  uint64_t by_number() const { return by_number_; }
  uint64_t mixed() const { return mixed_; }

 private:
  bool step(World& world, int r, bool numbers) {
    Worker& w = world.workers[r];
    if (w.ops == ops_) return true;
    bool reads_term = (w.at == 0) == (rule_ != Rule::kLogThenTerm);
    if (w.at < 2) {
      if (reads_term) {
        w.seen_term = world.sequencer.term();
      } else {
        w.seen_length = world.sequencer.log_length();
      }
      ++w.at;
      return true;
    }
    w.at = 0;
    if (w.seen_length > w.next) {
      bool op = world.log[w.next++] == kOp;
      if (op) w.announced = false;
      w.ops += op ? 1 : 0;
      w.knows |= !op;
      return true;
    }
    if (!w.entered) {
      world.entries[r] = {true, world.entries[r].granted, w.incarnation, w.seen_length};
      return true;
    }
    if (w.term != w.seen_term) {
      w.term = w.seen_term;
      w.announced = false;
      if (r == 0) start_term(world);
    }
    return r == 0 ? coordinate(world, w, numbers) : announce(world, w, r, numbers);
  }

  // What the log writer does: all that have asked meanwhile enter together. A worker that has asked
  // may be dead by now.
  void admit(World& world) const {
    bool again = false, any = false;
    for (int r = 0; r < kRanks; ++r) {
      Entry& entry = world.entries[r];
      bool may = entry.asked && world.sequencer.may_enter(entry.log_length);
      entry.asked = false;
      if (!may) continue;
      any = true;
      again |= entry.granted;
      entry.granted = true;
      if (entry.incarnation == world.workers[r].incarnation) world.workers[r].entered = true;
    }
    if (any) world.sequencer.enter(again && rule_ != Rule::kNeverANewTerm);
  }

  static bool announce(World& world, Worker& w, int r, bool numbers) {
    Mail& mail = world.mail[r];
    if (!w.announced && (!mail.there || mail.term != w.term)) {
      mail = {true, w.knows && numbers, w.term, w.ops};
      w.announced = true;
    }
    return true;
  }

  static void start_term(World& world) {
    world.counts.Start(kRanks);
    world.named.clear();
    world.counted.clear();
    world.complete = false;
  }

  // As FtController counts (ft_counting.cc); Horovod's message table is `named`.
  void count(World& world, int r, bool by_number, uint64_t op) {
    std::vector<horovod::common::FtCounts::Named> moved;
    auto may = [&] { return world.named.empty(); };
    world.counted.push_back(op);
    if (by_number) {
      // What another rank has read in the log the coordinator finds there too.
      CHECK(world.log.find(kNumbers) != std::string::npos);
      bool all = world.counts.Count(0, "t", r, may, moved);
      world.complete |= all;
      by_number_ += all;
    } else {
      world.counts.Move("t", moved);
      world.named.insert(r);
    }
    for (auto& each : moved) world.named.insert(each.rank);
    mixed_ += !by_number && !moved.empty();
    CHECK(world.named.empty() || !world.counts.Has(0));
    world.complete |= world.named.size() == kRanks;
  }

  bool coordinate(World& world, Worker& w, bool numbers) {
    if (!w.announced) count(world, 0, w.knows && numbers, w.ops);
    w.announced = true;
    for (int r = 1; r < kRanks; ++r) {
      Mail& mail = world.mail[r];
      if (!mail.there || mail.term != w.term) continue;
      count(world, r, mail.by_number, mail.op);
      mail.there = false;
    }
    if (!world.complete || world.proposal.there) return true;
    bool first = ++world.agreed > 1 && world.log.find(kNumbers) == std::string::npos;
    world.proposal = {true, w.term, {}, first};
    world.proposal.meant.swap(world.counted);
    start_term(world);
    return true;
  }

  bool answer(World& world) const {
    if (!world.proposal.there) return true;
    Proposal proposal;
    std::swap(proposal, world.proposal);
    auto op = static_cast<uint64_t>(std::count(world.log.begin(), world.log.end(), kOp));
    if (!world.sequencer.propose(proposal.term, proposal.numbers ? 2 : 1)) return true;
    if (proposal.numbers) world.log += kNumbers;
    world.log += kOp;
    CHECK(world.sequencer.log_length() == world.log.size());
    for (uint64_t m : proposal.meant) {
      if (m != op) return false;
    }
    return proposal.meant.size() == kRanks;
  }

  const Rule rule_;
  const uint64_t ops_;
  std::set<std::string> seen_;
  uint64_t finished_ = 0, by_number_ = 0, mixed_ = 0;
};

}  // namespace

int main(int argc, char**) {
  uint64_t ops = argc > 1 ? 3 : 4;
  Explorer right(Rule::kTermThenLog, ops);
  CHECK(right.explore(World{}));
  CHECK(right.finished() > 0 && right.by_number() > 0 && right.mixed() > 0);
  std::printf("term, then log: %lu states, all well\n", right.states());

  // The other way round a rank can miss an op that is just agreed, see the term that began
  // behind it, and announce in that one what the log has already.
  Explorer wrong(Rule::kLogThenTerm, ops);
  CHECK(!wrong.explore(World{}));
  std::printf("log, then term: wrong after %lu states\n", wrong.states());

  // Without a new term what a dead worker has announced counts beside what the next one does.
  Explorer mixed(Rule::kNeverANewTerm, ops);
  CHECK(!mixed.explore(World{}));
  std::printf("never a new term: wrong after %lu states\n", mixed.states());
}
