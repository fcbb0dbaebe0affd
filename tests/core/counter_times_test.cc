// When counters are sent: as often as ever between few nodes, so seldom between many that bytes
// stay bounded, and never so seldom that a rank that goes on is taken for stuck.
#include "replication/counter_times.h"

#include <algorithm>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

constexpr uint64_t kMs = 1000000;

void intervals() {
  for (uint64_t nodes : {2, 4, 8}) CHECK(counters_interval_ns(nodes) == 20 * kMs);
  uint64_t before = 0;
  for (uint64_t nodes = 2; nodes < 5000; ++nodes) {
    uint64_t interval = counters_interval_ns(nodes);
    CHECK(interval >= before && interval <= 250 * kMs);
    before = interval;
  }
  CHECK(counters_interval_ns(16) == 40 * kMs);
}

// Each end once in an interval, whenever it looks, and all of them at times of their own.
void turns() {
  constexpr uint64_t kNodes = 64, kEnd = 4000 * kMs;
  uint64_t interval = counters_interval_ns(kNodes);
  std::vector<uint64_t> times;
  for (uint64_t turn = 0; turn < kNodes; ++turn) {
    uint64_t count = 0, at = 1000 * kMs + turn * 77777;
    while ((at = next_counters_ns(at, kNodes, turn, kNodes)) < kEnd) {
      if (count++ == 0) times.push_back(at % interval);
      CHECK(at % interval == times.back());
      at += turn;  // it looks a little later
    }
    CHECK(count == 3000 * kMs / interval || count == 3000 * kMs / interval + 1);
    CHECK(next_counters_ns(at, kNodes, turn, kNodes) > at);
  }
  std::sort(times.begin(), times.end());
  for (size_t i = 1; i < times.size(); ++i) CHECK(times[i] - times[i - 1] == interval / kNodes);
}

}  // namespace

int main() {
  intervals();
  turns();
}
