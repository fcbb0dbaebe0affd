// How a rank spends its time: computing, waiting for other ranks, copying, waiting for the network.
//
// A round ends when the last tensor that the script has handed over is executed. Until it handed
// that one over, the rank computed, whatever other ops were under way meanwhile. From then on it is
// blocked: while an op is under way data is copied and summed on its node, or, when nothing is left
// to do there, other nodes' parts are missing (the network); and otherwise it waits for ranks that
// have not announced their tensors yet. So no clock of another rank is needed to say who is slow:
// in synchronous training all rounds take equally long, and the slowest rank is the one that waits
// least.
//
// A script that hands tensors over and computes on is not blocked. One that says when it waits for
// results, and when it goes on, is blocked between these two only (script_waits, script_goes_on);
// one that never does is taken to be blocked from its last hand-over on.
//
// Pure: the caller reads the clock, in nanoseconds, at most three times per op, and twice more for
// each wait for other nodes.
#ifndef HVD_FT_RANK_TIMES_H
#define HVD_FT_RANK_TIMES_H

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hvdft {

// Sums over all rounds, by what the time was spent for.
struct TimeSums {
  uint64_t rounds, compute_ns, wait_ns, copy_ns, network_ns;
};

class RankTimes {
 public:
  // The script has handed tensors over. Any thread.
  void pended(uint64_t now) { pended_.store(now, std::memory_order_relaxed); }
  uint64_t latest_pended() const { return pended_.load(std::memory_order_relaxed); }
  // The script was blocked in a receive, which is no computing. Any thread.
  void received(uint64_t ns) { receiving_.fetch_add(ns, std::memory_order_relaxed); }

  // A thread of the script waits for results from now on, and no longer: in pairs, of any threads.
  // The script is blocked while any of them waits.
  void script_waits(uint64_t now) {
    says_.store(true, std::memory_order_relaxed);
    if (waiting_.fetch_add(1) == 0) waits_.fetch_sub(static_cast<int64_t>(now));
  }
  void script_goes_on(uint64_t now) {
    if (waiting_.fetch_sub(1) == 1) waits_.fetch_add(static_cast<int64_t>(now));
  }

  // The rest is for the thread that executes ops.

  // An op begins, and no other one is under way.
  void begun(uint64_t now) { begun_ = {now, waited(now)}; }
  // It has ended, and with it all that were under way.
  void ended(uint64_t now) {
    add_blocked(begun_, now, &exchanged_);
    ended_ = now;
  }
  // The ops under way wait for other nodes only, from now on; or no longer.
  void network(bool waits, uint64_t now) {
    if (!waits) add_blocked(network_from_, now, &network_);
    network_from_ = waits ? Moment{now, waited(now)} : Moment{};
  }
  bool waits_for_network() const { return network_from_.at != 0; }
  // All tensors are executed: the round ends when the latest op did. Returns what it adds.
  TimeSums finish() {
    uint64_t from = free_, received = receiving_.exchange(0, std::memory_order_relaxed);
    free_ = ended_;
    bool says = says_.load(std::memory_order_relaxed);
    uint64_t blocked = ended_ - std::clamp(blocked_, from, ended_);
    if (says) blocked = std::min(waited_anew(), ended_ - from);
    uint64_t exchange = std::min(exchanged_, blocked), network = std::min(network_, exchange);
    if (says) exchanged_ = network_ = 0;
    if (from == 0 || ended_ <= from) return {};
    uint64_t compute = ended_ - from - blocked;
    received = std::min(received, compute);
    uint64_t wait = blocked - exchange + received;
    return {1, compute - received, wait, exchange - network, network};
  }

 private:
  // A time, and for how long the script had waited by then, as far as it says.
  struct Moment {
    uint64_t at = 0, waited = 0;
  };

  // Adds the part of a stretch in which the script is blocked.
  void add_blocked(const Moment& from, uint64_t to, uint64_t* sum) {
    if (says_.load(std::memory_order_relaxed)) {
      uint64_t until = waited(to);
      if (until > from.waited) *sum += until - from.waited;
      return;
    }
    uint64_t latest = latest_pended();
    // Before the latest hand-over the rank computed.
    if (latest != blocked_) exchanged_ = network_ = 0;
    blocked_ = latest;
    uint64_t begin = std::max(from.at, latest);
    if (to > begin) *sum += to - begin;
  }
  // For how long the script has waited until now, as far as it says.
  uint64_t waited(uint64_t now) const {
    int64_t waits = waits_.load();
    if (waits < 0) waits += static_cast<int64_t>(now);
    return static_cast<uint64_t>(std::max<int64_t>(waits, 0));
  }
  // The part of this until the latest op ended that no round has counted.
  uint64_t waited_anew() {
    uint64_t before = counted_;
    counted_ = std::max(before, waited(ended_));
    return counted_ - before;
  }

  std::atomic<uint64_t> pended_{0}, receiving_{0};
  Moment begun_;
  uint64_t ended_ = 0;
  uint64_t blocked_ = 0;    // since when: the latest tensor was handed over then
  uint64_t exchanged_ = 0;  // since then: while an op was under way, …
  uint64_t network_ = 0;    // … and of that, while only other nodes' parts were missing
  Moment network_from_;

  // Of scripts that say when they wait. `waits_` is the length of all waits that are over, less
  // the time at which the present one began: negative during a wait, as a clock shows more than
  // a process has waited. Begins and ends are added in any order, so no lock is needed.
  std::atomic<bool> says_{false};
  std::atomic<int> waiting_{0};  // threads
  std::atomic<int64_t> waits_{0};
  uint64_t counted_ = 0;  // of waits, by rounds
  uint64_t free_ = 0;     // when the latest round ended; 0: none has
};

}  // namespace hvdft

#endif  // HVD_FT_RANK_TIMES_H
