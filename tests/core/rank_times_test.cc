// How a rank's time is divided into computing, waiting, copies and network, by calls with times.
#include "protocol/rank_times.h"

#include <atomic>
#include <thread>

#include "check.h"

using namespace hvdft;

namespace {

bool is(const TimeSums& found, uint64_t rounds, uint64_t compute, uint64_t wait, uint64_t copy,
        uint64_t network = 0) {
  return found.rounds == rounds && found.compute_ns == compute && found.wait_ns == wait &&
         found.copy_ns == copy && found.network_ns == network;
}

void run(RankTimes& times, uint64_t from, uint64_t to) {
  times.begun(from);
  times.ended(to);
}

// The time before the first round has no beginning.
void first(RankTimes& times) {
  times.pended(50);
  run(times, 60, 100);
  CHECK(is(times.finish(), 0, 0, 0, 0));
}

void rounds() {
  RankTimes times;
  first(times);
  times.pended(140);
  run(times, 150, 155);
  CHECK(is(times.finish(), 1, 40, 10, 5));
  times.pended(255);  // the slow rank waits least
  run(times, 256, 261);
  CHECK(is(times.finish(), 1, 100, 1, 5));
}

// While gradients are made, those made before are summed: that blocks nobody.
void overlap() {
  RankTimes times;
  first(times);
  times.pended(120);
  run(times, 130, 150);
  times.pended(145);  // while the first op was under way
  times.pended(170);
  run(times, 175, 180);  // the second …
  run(times, 185, 200);  // … and the third
  CHECK(is(times.finish(), 1, 70, 10, 20));

  times.pended(210);
  times.begun(215);
  times.pended(220);  // in the middle of the op, which blocks from here
  times.ended(230);
  CHECK(is(times.finish(), 1, 20, 0, 10));
}

// The ops of a fused step: several under way at once are one stretch.
void several() {
  RankTimes times;
  first(times);
  times.pended(110);
  times.begun(120);
  times.ended(140);
  times.begun(150);
  times.ended(160);
  CHECK(is(times.finish(), 1, 10, 20, 30));
}

void network() {
  RankTimes times;
  first(times);
  times.pended(110);
  times.begun(120);
  times.network(true, 125);
  CHECK(times.waits_for_network());
  times.network(false, 135);
  CHECK(!times.waits_for_network());
  times.network(true, 137);  // the next segments
  times.network(false, 138);
  times.ended(140);
  CHECK(is(times.finish(), 1, 10, 10, 9, 11));

  times.begun(145);
  times.network(true, 146);
  times.pended(150);  // until here the script computed, though an op waited for other nodes
  times.network(false, 160);
  times.ended(165);
  CHECK(is(times.finish(), 1, 10, 0, 5, 10));

  times.begun(170);
  times.network(true, 171);
  times.network(false, 175);
  times.pended(176);  // all of it was beside the computing
  times.ended(180);
  CHECK(is(times.finish(), 1, 11, 0, 4, 0));

  times.pended(190);  // a second wait of a round, not the first one's again
  times.begun(190);
  times.network(true, 191);
  times.network(false, 193);
  times.ended(195);
  CHECK(is(times.finish(), 1, 10, 0, 3, 2));
}

// A script that hands tensors over early, computes on, and says when it waits for the results.
void script_that_says() {
  RankTimes times;
  times.script_waits(40);
  first(times);
  times.script_goes_on(101);
  times.pended(110);
  times.begun(120);
  times.ended(140);  // beside the computing
  times.pended(141);
  times.script_waits(160);
  times.begun(165);
  times.network(true, 170);
  times.network(false, 178);
  times.ended(180);
  CHECK(is(times.finish(), 1, 59, 6, 7, 8));  // 1 ns of the first wait was left
  times.script_goes_on(185);

  times.pended(190);  // all of it is beside the computing
  run(times, 195, 250);
  CHECK(is(times.finish(), 1, 65, 5, 0));

  times.script_waits(260);  // for one of two results
  times.pended(261);
  run(times, 262, 270);
  times.script_goes_on(272);
  times.script_waits(280);  // for the other
  run(times, 285, 290);
  CHECK(is(times.finish(), 1, 18, 9, 13));
  times.script_goes_on(291);

  times.script_waits(300);  // two threads: one goes on
  times.script_waits(302);
  times.script_goes_on(310);
  run(times, 315, 320);
  CHECK(is(times.finish(), 1, 9, 16, 5));
  times.script_goes_on(330);
  run(times, 340, 350);
  CHECK(is(times.finish(), 1, 20, 10, 0));

  times.script_waits(360);
  times.begun(362);
  times.network(true, 364);
  times.script_goes_on(368);  // while an op is under way
  times.network(false, 369);
  times.ended(370);
  CHECK(is(times.finish(), 1, 12, 2, 2, 4));

  run(times, 380, 390);
  times.script_waits(400);  // after the round's end, and before that is noticed
  CHECK(is(times.finish(), 1, 20, 0, 0));
  times.script_goes_on(410);
  run(times, 415, 420);
  CHECK(is(times.finish(), 1, 20, 10, 0));
  CHECK(is(times.finish(), 0, 0, 0, 0));
}

// The script waits and goes on while another thread executes: no moment counts twice, or is lost.
void script_and_ops_at_once() {
  RankTimes times;
  std::atomic<uint64_t> clock{1};
  std::atomic<bool> over{false};
  uint64_t begin = clock++;
  times.begun(begin);
  times.ended(begin);
  times.finish();
  std::thread script([&] {
    while (!over) {
      times.pended(clock++);
      times.script_waits(clock++);
      times.script_goes_on(clock++);
    }
  });
  uint64_t sum = 0, end = begin;
  for (int n = 0; n < 100000; ++n) {
    times.begun(clock++);
    times.network(true, clock++);
    times.network(false, clock++);
    end = clock++;
    times.ended(end);
    TimeSums found = times.finish();
    sum += found.compute_ns + found.wait_ns + found.copy_ns + found.network_ns;
    CHECK(sum == end - begin);
  }
  over = true;
  script.join();
}

void receives() {
  RankTimes times;
  first(times);
  times.received(30);
  times.pended(150);
  run(times, 150, 160);
  CHECK(is(times.finish(), 1, 20, 30, 10));
  times.received(1000);  // of several threads, never more than the round's
  times.pended(170);
  run(times, 170, 171);
  CHECK(is(times.finish(), 1, 0, 10, 1));
}

// Another thread hands a tensor over while the round ends: nothing is counted twice, or below 0.
void raced() {
  RankTimes times;
  first(times);
  times.pended(110);
  times.begun(120);
  times.ended(130);
  times.pended(131);
  CHECK(is(times.finish(), 1, 10, 10, 10));
  run(times, 140, 150);
  CHECK(is(times.finish(), 1, 1, 9, 10));

  times.begun(160);
  times.pended(175);
  times.ended(170);  // read its clock before
  CHECK(is(times.finish(), 1, 20, 0, 0));
  CHECK(is(times.finish(), 0, 0, 0, 0));  // nothing was done since
}

}  // namespace

int main() {
  rounds();
  overlap();
  several();
  network();
  script_that_says();
  script_and_ops_at_once();
  receives();
  raced();
}
