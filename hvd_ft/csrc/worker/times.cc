// How this worker's rank spends its time: see protocol/rank_times.h.
#include "hvd_ft_times.h"

#include "base/doorbell.h"
#include "worker/worker.h"

namespace hvdft {

// Only this worker writes these words, and an earlier incarnation of its rank.
void end_round(Worker& worker) {
  RankBlock& block = worker.block();
  auto add = [](Shared<uint64_t>& sum, uint64_t more) {
    sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  };
  if (!worker.begun.empty()) {  // ops of other ranks are still under way
    uint64_t now = now_ns();
    worker.times.ended(now);
    worker.times.begun(now);
  }
  TimeSums found = worker.times.finish();
  add(block.rounds, found.rounds);
  add(block.compute_ns, found.compute_ns);
  add(block.wait_ns, found.wait_ns);
  add(block.moving_ns, found.copy_ns);
  add(block.network_ns, found.network_ns);
}

Blocked::~Blocked() {
  if (since_ != 0) times_.received(now_ns() - since_);
}

}  // namespace hvdft

void hvdft_worker_script_waits(void) { hvdft::the_worker()->times.script_waits(hvdft::now_ns()); }
void hvdft_worker_script_goes_on(void) {
  hvdft::the_worker()->times.script_goes_on(hvdft::now_ns());
}

void hvdft_worker_times(hvdft_times* out) {
  const hvdft::RankBlock& block = hvdft::the_worker()->block();
  *out = {block.rounds.load(), block.compute_ns.load(), block.wait_ns.load(),
          block.moving_ns.load(), block.network_ns.load()};
}
