// When a rank came to its latest ops: what is read is of one op, though its worker goes on.
#include "protocol/op_times.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

void one_after_the_other() {
  OpTimes times{};
  OpMoments at{};
  CHECK(!times.read(7, &at));
  times.begin(7, 100, 110);
  CHECK(times.read(7, &at) && at.op == 7 && at.handed == 100 && at.begun == 110);
  CHECK(at.contributed == 0 && at.done == 0);
  times.contributed(7, 120);
  times.done(7, 130);
  CHECK(times.read(7, &at) && at.contributed == 120 && at.done == 130);
  times.begin(7 + kOpTimes, 210, 205);  // handed over while it began
  CHECK(times.read(7, &at) && at.op == 7 + kOpTimes && at.handed == 205 && at.begun == 205);
  times.contributed(7, 220);  // of an op whose entry is gone
  times.done(7, 230);
  CHECK(times.read(7, &at) && at.contributed == 0 && at.done == 0);
}

// Each op is told of when it begins, and when it ends.
void told_once() {
  OpTimes times{};
  ToldOps told;
  auto news = [&] {
    std::vector<std::pair<uint64_t, bool>> found;
    told.each_new(times, [&](const OpMoments& at) { found.emplace_back(at.op, at.done != 0); });
    return found;
  };
  using Found = std::vector<std::pair<uint64_t, bool>>;
  CHECK(news().empty());
  times.begin(0, 0, 5);
  times.begin(1, 0, 6);
  times.done(1, 9);
  CHECK((news() == Found{{0, false}, {1, true}}));
  CHECK(news().empty());
  times.contributed(0, 10);
  CHECK(news().empty());
  times.done(0, 11);
  CHECK((news() == Found{{0, true}}));
  times.begin(0, 0, 12);  // a restarted rank replays it
  CHECK((news() == Found{{0, false}}));
  times.begin(kOpTimes, 0, 13);
  CHECK((news() == Found{{kOpTimes, false}}));
  times.forget();
  CHECK(news().empty());
}

// What is told goes on in the order in which ops begin, though they begin meanwhile: as soon as one
// is told of, all before it have been.
void told_in_order_while_written() {
  static OpTimes times{};
  constexpr uint64_t kOps = 100000;
  std::atomic<uint64_t> taken{0};  // the writer stays within the entries that are told of
  std::thread worker([&] {
    for (uint64_t op = 0; op < kOps; ++op) {
      while (op >= taken + kOpTimes) std::this_thread::yield();
      times.begin(op, 0, op + 1);
    }
  });
  ToldOps told;
  std::vector<bool> found(kOps);
  while (taken < kOps) {
    uint64_t most = taken;
    told.each_new(times, [&](const OpMoments& at) {
      found[at.op] = true;
      if (at.op >= most) most = at.op + 1;
    });
    for (uint64_t op = taken; op < most; ++op) CHECK(found[op]);
    taken = most;
  }
  worker.join();
}

void copied() {
  OpTimes times{};
  OpMoments at{};
  times.copy({7, 100, 110, 120, 130});
  CHECK(times.read(7, &at) && at.op == 7 && at.handed == 100 && at.begun == 110);
  CHECK(at.contributed == 120 && at.done == 130);
  times.copy({7, 200, 210, 0, 0});
  CHECK(times.read(7, &at) && at.begun == 210 && at.contributed == 0 && at.done == 0);
}

// Every moment of an op tells which op's it is, so a mixture would be seen.
void read_while_written() {
  static OpTimes times{};
  std::atomic<bool> over{false};
  std::thread worker([&] {
    for (uint64_t op = 0; op < 400000; ++op) {
      times.begin(op, 10 * op, 10 * op + 1);
      times.contributed(op, 10 * op + 2);
      times.done(op, 10 * op + 3);
    }
    over = true;
  });
  uint64_t seen = 0;
  while (!over) {
    OpMoments at{};
    for (uint64_t place = 0; place < kOpTimes; ++place) {
      if (!times.read(place, &at)) continue;
      ++seen;
      CHECK(at.op % kOpTimes == place);
      CHECK(at.handed == 10 * at.op && at.begun == 10 * at.op + 1);
      CHECK(at.contributed == 0 || at.contributed == 10 * at.op + 2);
      CHECK(at.done == 0 || at.done == 10 * at.op + 3);
    }
  }
  worker.join();
  OpMoments at{};
  CHECK(times.read(399999 % kOpTimes, &at) && at.op == 399999 && at.done == 3999993);
}

}  // namespace

int main() {
  one_after_the_other();
  told_once();
  told_in_order_while_written();
  copied();
  read_while_written();
}
