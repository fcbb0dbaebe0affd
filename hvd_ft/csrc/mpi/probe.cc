#include "mpi/probe.h"

#include <cstring>
#include <thread>

#include "base/doorbell.h"
#include "mpi/backoff.h"
#include "mpi/nap.h"

namespace hvdft {

namespace {

// What a message is filled with: it differs from member to member, thread to thread and message to
// message, so that one in the place of another shows.
char mark(int member, uint64_t thread, uint64_t message) {
  return static_cast<char>(1 + 97 * static_cast<uint64_t>(member) + 13 * thread + message);
}

// MPI may still hold messages that are complete here, and only calls on their endpoint send them.
// So as long as the other member may lack one, nobody waits without such calls. There is no limit
// here, as MPI's blocking calls have none: the launcher ends a probe that takes too long.
template <typename Condition>
void poke_until(Endpoint* endpoint, Condition condition) {
  for (Backoff backoff(UINT64_MAX, kYieldNs); !condition(); backoff.pause()) {
    if (endpoint != nullptr) endpoint->poke();
  }
}

}  // namespace

// Where threads wait for each other: their clocks start when all have exchanged a window, which
// gives memory to their buffers and makes MPI's connections; they end when both members are done.
struct Probe::Phases {
  std::atomic<uint64_t> ready{0}, done{0};
  std::atomic<bool> go{false}, over{false};
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

Probe::Done Probe::exchange(uint64_t thread, uint64_t bytes, uint64_t windows, Phases& phases) {
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
  // The one that threads share is the caller's too, who pokes it.
  Endpoint* own = endpoint.number() != control_.number() ? &endpoint : nullptr;
  Done done;
  bool ready = false;
  try {
    window();
    ready = true;
    ++phases.ready;
    poke_until(own, [&] { return phases.go.load(); });
    done.begin_ns = now_ns();
    for (uint64_t i = 0; i < windows; ++i) window();
  } catch (const RingError& error) {
    done.error = error.what();
    if (!ready) ++phases.ready;
  }
  done.end_ns = now_ns();
  ++phases.done;
  poke_until(own, [&] { return phases.over.load(); });
  for (uint64_t i = 0; i < in.size(); ++i) {
    done.wrong += in[i] == mark(peer(), thread, i / bytes) ? 0 : 1;
  }
  return done;
}

Probe::Result Probe::run(uint64_t bytes, uint64_t windows) {
  Phases phases;
  std::vector<Done> done(threads_);
  std::vector<std::thread> threads;
  threads.reserve(threads_);
  for (uint64_t thread = 0; thread < threads_; ++thread) {
    threads.emplace_back([&, thread] { done[thread] = exchange(thread, bytes, windows, phases); });
  }
  auto end_threads = [&] {
    phases.go = phases.over = true;
    for (auto& thread : threads) thread.join();
  };
  // The other member's threads are as far.
  auto meet = [&] {
    char mine = 0, others = 0;
    control_.exchange(&mine, &others, 1, 1, peer(), 0);
  };
  try {
    poke_until(&control_, [&] { return phases.ready.load() == threads_; });
    meet();
    phases.go = true;
    poke_until(&control_, [&] { return phases.done.load() == threads_; });
    meet();
  } catch (...) {
    end_threads();
    throw;
  }
  end_threads();
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
