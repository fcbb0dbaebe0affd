// How a rank spends its time: computing, waiting for other ranks, exchanging data.
//
// A round ends when the last tensor that the script has handed over is executed. Until it handed
// that one over, the rank computed, whatever other ops were under way meanwhile. From then on it is
// blocked: while an op is under way it exchanges data, and otherwise it waits for ranks that have
// not announced their tensors yet. So no clock of another rank is needed to say who is slow: in
// synchronous training all rounds take equally long, and the slowest rank is the one that waits
// least.
//
// Pure: the caller reads the clock, in nanoseconds, at most three times per op.
#ifndef HVD_FT_RANK_TIMES_H
#define HVD_FT_RANK_TIMES_H

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hvdft {

// Sums over all rounds, by what the time was spent for.
struct TimeSums {
  uint64_t rounds, compute_ns, wait_ns, exchange_ns;
};

class RankTimes {
 public:
  // The script has handed tensors over. Any thread.
  void pended(uint64_t now) { pended_.store(now, std::memory_order_relaxed); }
  // The script was blocked in a receive, which is no computing. Any thread.
  void received(uint64_t ns) { receiving_.fetch_add(ns, std::memory_order_relaxed); }

  // The rest is for the thread that executes ops.

  // An op begins, and no other one is under way.
  void begun(uint64_t now) { begun_ = now; }
  // It has ended, and with it all that were under way.
  void ended(uint64_t now) {
    uint64_t pended = pended_.load(std::memory_order_relaxed);
    if (pended != blocked_) exchanged_ = 0;  // before that the rank computed
    blocked_ = pended;
    uint64_t from = std::max(begun_, pended);
    if (now > from) exchanged_ += now - from;
    ended_ = now;
  }
  // All tensors are executed: the round ends when the latest op did. Returns what it adds.
  TimeSums finish() {
    uint64_t from = free_, received = receiving_.exchange(0, std::memory_order_relaxed);
    free_ = ended_;
    if (from == 0 || ended_ <= from) return {};
    uint64_t blocked = std::clamp(blocked_, from, ended_), compute = blocked - from;
    uint64_t exchange = std::min(exchanged_, ended_ - blocked);
    received = std::min(received, compute);
    return {1, compute - received, ended_ - blocked - exchange + received, exchange};
  }

 private:
  std::atomic<uint64_t> pended_{0}, receiving_{0};
  uint64_t begun_ = 0, ended_ = 0;
  uint64_t blocked_ = 0;    // since when: the latest tensor was handed over then
  uint64_t exchanged_ = 0;  // since then
  uint64_t free_ = 0;       // when the latest round ended; 0: none has
};

}  // namespace hvdft

#endif  // HVD_FT_RANK_TIMES_H
