// When a rank came to its latest ops: what is read is of one op, though its worker goes on.
#include "protocol/op_times.h"

#include <atomic>
#include <thread>

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
  read_while_written();
}
