#include "mpi/probe.h"

#include <sched.h>

#include <cstring>
#include <thread>

#include "base/doorbell.h"

namespace hvdft {

namespace {

// What a message is filled with: it differs from member to member, thread to thread and message to
// message, so that one in the place of another shows.
char mark(int member, uint64_t thread, uint64_t message) {
  return static_cast<char>(1 + 97 * static_cast<uint64_t>(member) + 13 * thread + message);
}

template <typename Condition>
void yield_until(Condition condition) {
  while (!condition()) sched_yield();
}

}  // namespace

// Where threads wait for each other: their clocks start when all have exchanged a window, which
// gives memory to their buffers and makes MPI's connections.
struct Probe::Start {
  std::atomic<uint64_t> ready{0};
  std::atomic<bool> go{false};
};

Probe::Probe(int communicator, int threads, bool split)
    : threads_(static_cast<uint64_t>(threads)), control_(communicator, 0) {
  if (control_.members() != 2) {
    throw RingError("the probe takes two processes, not " + std::to_string(control_.members()) +
                    "; start it with -np 2");
  }
  for (int thread = 0; thread < (split ? threads : 1); ++thread) {
    endpoints_.push_back(std::make_unique<Endpoint>(communicator, split ? thread + 1 : 0));
  }
}

Probe::Done Probe::exchange(uint64_t thread, uint64_t bytes, uint64_t windows, Start& start) {
  Endpoint& endpoint = *endpoints_[thread % endpoints_.size()];
  uint64_t count = probe_window(bytes);
  std::vector<char> out(count * bytes), in(count * bytes);
  for (uint64_t i = 0; i < count; ++i) {
    std::memset(&out[i * bytes], mark(control_.member(), thread, i), bytes);
  }
  auto window = [&] {
    endpoint.exchange(out.data(), in.data(), bytes, static_cast<int>(count), peer(),
                      static_cast<int>(thread));
  };
  Done done;
  bool ready = false;
  try {
    window();
    ready = true;
    ++start.ready;
    yield_until([&] { return start.go.load(); });
    done.begin_ns = now_ns();
    for (uint64_t i = 0; i < windows; ++i) window();
  } catch (const RingError& error) {
    done.error = error.what();
    if (!ready) ++start.ready;
  }
  done.end_ns = now_ns();
  for (uint64_t i = 0; i < in.size(); ++i) {
    done.wrong += in[i] == mark(peer(), thread, i / bytes) ? 0 : 1;
  }
  return done;
}

Probe::Result Probe::run(uint64_t bytes, uint64_t windows) {
  Start start;
  std::vector<Done> done(threads_);
  std::vector<std::thread> threads;
  threads.reserve(threads_);
  for (uint64_t thread = 0; thread < threads_; ++thread) {
    threads.emplace_back([&, thread] { done[thread] = exchange(thread, bytes, windows, start); });
  }
  auto join_all = [&] {
    start.go = true;
    for (auto& thread : threads) thread.join();
  };
  yield_until([&] { return start.ready.load() == threads_; });
  try {
    char mine = 0, others = 0;
    control_.exchange(&mine, &others, 1, 1, peer(), 0);  // the other member is ready too
  } catch (...) {
    join_all();
    throw;
  }
  join_all();
  uint64_t begin_ns = UINT64_MAX, end_ns = 0, wrong = 0;
  for (const Done& each : done) {
    if (!each.error.empty()) throw RingError(each.error);
    begin_ns = std::min(begin_ns, each.begin_ns);
    end_ns = std::max(end_ns, each.end_ns);
    wrong += each.wrong;
  }
  return {end_ns - begin_ns, wrong};
}

}  // namespace hvdft
