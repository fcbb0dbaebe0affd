// The probe's threads, on wires in the place of MPI that hold messages back as MPI does: a message
// that is complete for its sender leaves with one of the next calls on its endpoint.
#include "mpi/probe.h"

#include <sched.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "../check.h"
#include "base/doorbell.h"
#include "on_wires.h"

using namespace hvdft;

namespace {

constexpr int kCalls = 50;                      // so many have to be made before a message leaves
constexpr uint64_t kSilentNs = 20'000'000'000;  // if nothing moves for so long, nothing will

struct Message {
  int tag;
  std::string data;
};
std::mutex mutex;
// By the number of an endpoint, and the member that sends.
std::map<std::pair<int, int>, std::deque<Message>> held, wires;
std::map<std::pair<int, int>, int> calls;  // since messages left
uint64_t moved_ns = 0;
bool damaged = false;

// A call on an endpoint.
void call(int number, int member) {
  if (++calls[{number, member}] < kCalls) return;
  calls[{number, member}] = 0;
  auto& mine = held[{number, member}];
  if (!mine.empty()) moved_ns = now_ns();
  for (Message& message : mine) wires[{number, member}].push_back(std::move(message));
  mine.clear();
}

// Takes the first message with a tag.
bool take(std::deque<Message>& wire, int tag, std::string* data) {
  for (auto message = wire.begin(); message != wire.end(); ++message) {
    if (message->tag != tag) continue;
    *data = std::move(message->data);
    wire.erase(message);
    return true;
  }
  return false;
}

}  // namespace

const int members_on_wires = 2;

namespace hvdft {

void Endpoint::poke() {
  std::lock_guard lock(mutex);
  call(thread_id_, member_);
}

void Endpoint::exchange(const char* from, char* to, uint64_t bytes, int count, int peer, int tag) {
  {
    std::lock_guard lock(mutex);
    call(thread_id_, member_);
    for (int i = 0; i < count; ++i) {
      held[{thread_id_, member_}].push_back(
          {tag, {from + static_cast<uint64_t>(i) * bytes, bytes}});
    }
  }
  for (int taken = 0; taken < count;) {
    std::string data;
    {
      std::lock_guard lock(mutex);
      if (!take(wires[{thread_id_, peer}], tag, &data)) {
        call(thread_id_, member_);
        CHECK(now_ns() < moved_ns + kSilentNs);
      }
    }
    if (data.empty()) {
      sched_yield();
      continue;
    }
    if (damaged && taken == 0) data[0] ^= 1;
    std::memcpy(to + static_cast<uint64_t>(taken++) * bytes, data.data(), bytes);
  }
}

}  // namespace hvdft

namespace {

// Runs all sizes one after the other, as a process of `hvdft probe` does. What its last call leaves
// behind is sent by the program's own calls, which are on the first endpoint too.
void run_member(int member, int threads, bool split) {
  Probe probe(member, threads, split);
  for (uint64_t bytes : {8, 512, 64 << 10}) {
    for (uint64_t windows : {1, 3}) {
      auto [ns, wrong] = probe.run(bytes, windows);
      CHECK(ns > 0);
      CHECK((wrong > 0) == damaged);
    }
  }
  std::lock_guard lock(mutex);
  for (int i = 0; i < kCalls; ++i) call(0, member);
}

void check(int threads, bool split) {
  moved_ns = now_ns();
  std::thread other([&] { run_member(1, threads, split); });
  run_member(0, threads, split);
  other.join();
  held.clear(), wires.clear();
}

}  // namespace

int main() {
  for (int threads : {1, 2, 4}) {
    for (bool split : {false, true}) check(threads, split);
  }
  damaged = true;
  check(2, true);
  std::puts("ok");
}
