// How long a leader's thread naps: short where something is under way, longer the longer it waits.
#include "mpi/nap.h"

#include "check.h"

using namespace hvdft;

namespace {

constexpr uint64_t kMs = 1000000, kSecond = 1000 * kMs;

// Looks at MPI from `from` to `to`, after the last thing that has moved.
int looks(uint64_t from, uint64_t to) {
  int count = 0;
  for (uint64_t at = 50000; at < to; at += nap_ns(at, true)) count += at >= from ? 1 : 0;
  return count;
}

}  // namespace

int main() {
  uint64_t before = 0;
  for (uint64_t idle = kMs / 10; idle < 100 * kSecond; idle += idle / 7) {
    uint64_t nap = nap_ns(idle, true);
    CHECK(nap >= before);
    // What comes is never late by more than a millisecond, or 0.4 % of the wait.
    CHECK(nap <= kMs || nap <= idle / 250);
    CHECK(nap <= idle / 8 && nap <= nap_ns(idle, false));
    before = nap;
  }
  CHECK(nap_ns(200 * kMs, true) == kMs);  // in a step of an ordinary training
  CHECK(nap_ns(200 * kMs, false) == 25 * kMs);
  // Another longest nap of ordinary waits; those in which nothing may come have their own.
  CHECK(nap_ns(200 * kMs, true, kMs / 10) == 200 * kMs / 256);
  CHECK(nap_ns(20 * kMs, true, kMs / 10) == kMs / 10);
  CHECK(nap_ns(20 * kMs, true, 100 * kMs) == 20 * kMs / 8);
  CHECK(nap_ns(20 * kMs, false, kMs / 10) == 20 * kMs / 8);
  CHECK(looks(0, kSecond) > 400);
  CHECK(looks(5 * kSecond, 6 * kSecond) < 60);
  CHECK(looks(30 * kSecond, 40 * kSecond) <= 101);  // an idle job
}
