// A run of the simulator: a seeded scheduler lets some member act at each tick of a virtual clock,
// faults strike, and a launcher restarts the dead and tells all members the new generation, each at
// another time.
#ifndef HVD_FT_TESTS_RING_SIM_WORLD_H
#define HVD_FT_TESTS_RING_SIM_WORLD_H

#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ring_sim_member.h"

namespace ring_sim {

class World {
 public:
  World(const Case& made, const std::vector<std::string>* reference, bool trace = false)
      : case_(made),
        trace_(trace),
        random_(made.seed),
        checker_(case_, reference),
        wires_(made.members),
        pending_(made.faults) {
    for (uint64_t m = 0; m < made.members; ++m) {
      members_.emplace_back(m, case_, wires_, checker_, random_);
      members_.back().start();
    }
    for (uint64_t hand = 0; hand < members_.size() * kHands; ++hand) {
      lazy_.push_back(random_.below(3) == 0 ? 1 + random_.below(30) : 1);
    }
    new_generation();
  }

  // Runs to the end. Throws Violation.
  void run() {
    while (true) {
      perform_due();
      strike_by_number();
      if (act()) continue;
      if (timers_.empty()) break;
      clock_ = std::max(clock_, timers_.begin()->first);  // nothing happens until then
    }
    forget();
    for (Member& member : members_) {
      if (!member.done(generation_)) throw Violation("hang: nobody can go on");
    }
    for (uint64_t m = 0; m < members_.size(); ++m) {
      for (uint64_t op = 0; op < case_.ops.size(); ++op) {
        checker_.is_result(m, op, members_[m].result(op));
      }
    }
  }

  uint64_t actions() const { return actions_; }
  uint64_t struck() const { return struck_; }
  const std::string& result(uint64_t op) const { return members_[0].result(op); }

 private:
  static constexpr uint64_t kLate = 1 << 20;  // ticks; long after everybody waits
  static constexpr uint64_t kMostActions = 1 << 18;
  static constexpr uint64_t kStruck = UINT64_MAX;

  struct Timer {
    int member;           // kEverybody: a failure was noticed that needs a new generation
    uint64_t generation;  // which the member hears of
  };

  // One action of some hand that can do one; false if none can. Lazy hands act when others cannot,
  // or seldom.
  bool act() { return act(true) || act(false); }

  bool act(bool may_be_lazy) {
    uint64_t hands = lazy_.size(), first = random_.below(hands);
    for (uint64_t i = 0; i < hands; ++i) {
      uint64_t hand = (first + i) % hands, m = hand / kHands;
      if (may_be_lazy && random_.below(lazy_[hand]) > 0) continue;
      auto next = members_[m].next(static_cast<Hand>(hand % kHands));
      if (!next) continue;
      if (strike_by_name(m, *next)) return true;
      if (trace_) say(m, *next);
      members_[m].perform(static_cast<Hand>(hand % kHands), next->action);
      if (next->action == Action::kNoteReceived) forget();
      ++clock_;
      if (++actions_ > kMostActions) throw Violation("hang: it never ends");
      return true;
    }
    return false;
  }

  void forget() {
    for (Member& member : members_) member.forget();
  }

  void strike_by_number() {
    while (!pending_.empty() && pending_[0].before >= 0 &&
           static_cast<uint64_t>(pending_[0].before) <= actions_) {
      strike();
    }
  }

  bool strike_by_name(uint64_t m, const Next& next) {
    if (pending_.empty() || pending_[0].before >= 0) return false;
    const Fault& fault = pending_[0];
    bool who = fault.actor == kEverybody || static_cast<uint64_t>(fault.actor) == m;
    if (!who || fault.action != next.action) return false;
    if (fault.at && !(*fault.at == next.at)) return false;
    strike();
    return true;
  }

  void strike() {
    Fault fault = pending_[0];
    rejoined_ = kStruck;
    pending_.erase(pending_.begin());
    ++struck_;
    if (trace_) std::printf("%6lu %s\n", actions_, fault.kills ? "killed" : "suspected");
    for (uint64_t m = 0; fault.kills && m < members_.size(); ++m) {
      if (fault.member != kEverybody && static_cast<uint64_t>(fault.member) != m) continue;
      kill(m, fault);
      if (!fault.loses) continue;
      lose(m);
    }
    after(fault.late ? kLate : random_.below(20), {kEverybody, 0});
  }

  void lose(uint64_t m) {
    for (uint64_t kind = 0; kind < wires_.kinds(); ++kind) wires_.from(kind, m).read_all();
    members_[m].lose();
  }

  void kill(uint64_t m, const Fault& fault) {
    members_[m].die();
    for (uint64_t kind = 0; kind < wires_.kinds(); ++kind) {
      wires_.from(kind, m).cut([&](size_t size) {
        return fault.arrives == Fault::kAll    ? size
               : fault.arrives == Fault::kNone ? 0
                                               : random_.below(size + 1);
      });
    }
  }

  void after(uint64_t ticks, Timer timer) { timers_.emplace(clock_ + ticks, timer); }

  void perform_due() {
    while (!timers_.empty() && timers_.begin()->first <= clock_) {
      Timer timer = timers_.begin()->second;
      timers_.erase(timers_.begin());
      if (timer.member == kEverybody) {
        new_generation();
        continue;
      }
      auto m = static_cast<size_t>(timer.member);
      if (rejoin_.needed) {
        if (timer.generation == generation_) rejoin(m);
        continue;
      }
      if (members_[m].state().lost) continue;  // before that was noticed; it has to rejoin first
      if (!members_[m].alive()) members_[m].start();
      if (timer.generation == generation_) members_[m].awaits(generation_);
    }
  }

  // A step of a member, which may be killed after each; edges are made when all have done theirs.
  void rejoin(size_t m) {
    strike_by_number();
    if (rejoined_ == kStruck || (rejoined_ >> m & 1) != 0) return;
    Next next{Action::kRejoin, {members_[m].state().op, 0}};
    if (strike_by_name(m, next)) return;
    if (trace_) say(m, next);
    ++actions_;
    ++clock_;
    if (!members_[m].rejoin(rejoin_, members_)) {
      return after(random_.below(10), {static_cast<int>(m), generation_});
    }
    rejoined_ |= uint64_t{1} << m;
    if (rejoined_ + 1 != uint64_t{1} << members_.size()) return;
    rejoin_.needed = false;
    tell_all();
  }

  // Everyone hears of it, soon, but not at once.
  void new_generation() {
    ++generation_;
    if (trace_) std::printf("%6lu generation %lu\n", actions_, generation_);
    std::vector<hvdft::RejoinState> states;
    for (const Member& member : members_) states.push_back(member.state());
    rejoin_ = hvdft::rejoin(states);
    rejoined_ = 0;
    if (!rejoin_.possible) throw Violation("lost: no arena is left");
    for (size_t m = 0; rejoin_.needed && m < members_.size(); ++m) {
      if (members_[m].alive()) kill(m, {});
      if (states[m].lost) lose(m);  // what it has taken so far does not count
    }
    tell_all();
  }

  void tell_all() {
    for (size_t m = 0; m < members_.size(); ++m) {
      after(random_.below(30), {static_cast<int>(m), generation_});
    }
  }

  void say(uint64_t m, const Next& next) const {
    std::printf("%6lu member %lu %s op %lu position %lu\n", actions_, m,
                kActionNames[static_cast<size_t>(next.action)], next.at.op, next.at.position);
  }

  const Case case_;
  const bool trace_;
  Random random_;
  Checker checker_;
  Wires wires_;
  std::deque<Member> members_;
  std::vector<uint64_t> lazy_;  // acts once of so many times
  std::vector<Fault> pending_;
  std::multimap<uint64_t, Timer> timers_;
  hvdft::Rejoin rejoin_;
  uint64_t rejoined_ = 0;  // members, a bit each; or kStruck: the next generation begins anew
  uint64_t clock_ = 0, actions_ = 0, generation_ = 0, struck_ = 0;
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_WORLD_H
