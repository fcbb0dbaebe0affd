#include "leader.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "bell.h"

namespace hvdft {

namespace {

// MPI's endpoint 0 is the main thread's, where the agents meet and part.
constexpr int kFirstRingEndpoint = 1, kMirrorEndpoint = 4;

// MPI can only be asked, and others want the CPU: so between two questions there is a nap, the
// longer the longer nothing has moved. What happens on this node rings a bell that ends it.
constexpr uint64_t kYieldNs = 50000, kLongestNapNs = 1000000, kLongestIdleNapNs = 100000000;
constexpr uint64_t kLastNs = 500000000;

// Naps at a bell; who rings it sees by `asleep` whether anybody does.
struct Napper {
  std::atomic<uint32_t>& bell;
  std::atomic<uint64_t>& asleep;

  void nap(uint32_t ticket, uint64_t idle_ns, bool asks_mpi) {
    if (idle_ns < kYieldNs) return static_cast<void>(sched_yield());
    uint64_t longest = asks_mpi ? kLongestNapNs : kLongestIdleNapNs;
    asleep.fetch_add(1);
    nap_at_bell(bell, ticket, std::min(idle_ns / 2, longest));
    asleep.fetch_sub(1);
  }
};

}  // namespace

Leader::Leader(std::unique_ptr<Arenas> arenas, int communicator, const std::vector<int>& firsts)
    : arenas_(std::move(arenas)), member_{*arenas_, firsts.size() - 1} {
  Node& node = arenas_->node();
  if (!node.is_local(0)) store_ = std::make_unique<LogStore>(node);
  make_endpoints(communicator);
  int me = star_->member(), nodes = star_->members();
  for (int peer = 0; peer < nodes; ++peer) {
    if (peer == me || (me != 0 && peer != 0)) continue;
    auto at = static_cast<size_t>(peer);
    links_.push_back(std::make_unique<MirrorLink>(node, store_.get(), *star_, peer, firsts[at],
                                                  firsts[at + 1]));
  }
  sender_ = std::make_unique<NodeSender>(member_, *out_);
  receiver_ = std::make_unique<NodeReceiver>(member_, *in_);
  threads_.emplace_back([this] { guarded([this] { mirror(); }); });
  threads_.emplace_back([this] { guarded([this] { drive(*sender_); }); });
  threads_.emplace_back([this] { guarded([this] { drive(*receiver_); }); });
}

void Leader::make_endpoints(int communicator) {
  auto add = [&](int thread_id) {
    endpoints_.push_back(std::make_unique<Endpoint>(communicator, thread_id));
    return endpoints_.back().get();
  };
  star_ = add(kMirrorEndpoint);
  int members = star_->members(), member = star_->member();
  for (int i = 0; i < edge_colours(members); ++i) add(kFirstRingEndpoint + i);
  auto of_edge = [&](int edge) {
    return endpoints_[static_cast<size_t>(1 + colour_of_edge(edge, members))].get();
  };
  out_ = of_edge(member);
  in_ = of_edge((member + members - 1) % members);
}

bool Leader::close(uint64_t timeout_ns) {
  leaving_ = true;
  auto& bell = arenas_->node().header().mirror_bell;
  ring(bell);
  uint64_t end = now_ns() + timeout_ns;
  while (!all_said_ && now_ns() < end) nap_at_bell(bell, bell.load(), kLongestNapNs);
  ending_ = true;
  ring(bell);
  ring(arenas_->node().header().ring_bell);
  for (auto& thread : threads_) thread.join();
  return all_said_ && !sender_->waits_for_mpi() && !receiver_->waits_for_mpi();
}

template <typename Act>
void Leader::guarded(Act act) {
  try {
    act();
  } catch (const RingError& error) {
    // As when MPI finds an error that it does not report but dies of.
    std::fprintf(stderr, "hvdft: %s; this agent ends\n", error.what());
    kill(getpid(), SIGKILL);
  }
}

void Leader::mirror() {
  NodeHeader& h = arenas_->node().header();
  Napper napper{h.mirror_bell, h.mirror_asleep};
  uint64_t idle_since = 0;
  while (!ending_) {
    uint32_t ticket = napper.bell.load();
    uint64_t now = now_ns();
    if (mirror_step(now)) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    napper.nap(ticket, now - idle_since, !all_said_);
  }
}

// When the job is over the nodes take leave of rank 0's, and it of them: so all have heard all.
bool Leader::mirror_step(uint64_t now) {
  bool moved = false;
  for (auto& link : links_) moved |= link->step(now);
  auto all = [&](bool (MirrorLink::*is)() const) {
    return std::all_of(links_.begin(), links_.end(), [&](auto& link) { return (*link.*is)(); });
  };
  if (leaving_ && (store_ || all(&MirrorLink::peer_said_bye))) {
    for (auto& link : links_) link->say_bye(now);
    all_said_ = all(&MirrorLink::closed);
  }
  return moved;
}

template <typename Half>
void Leader::drive(Half& half) {
  NodeHeader& h = arenas_->node().header();
  Napper napper{h.ring_bell, h.ring_asleep};
  for (uint64_t begun = now_ns(); !half.connect() && !ending_;) {
    napper.nap(napper.bell.load(), now_ns() - begun, true);
  }
  uint64_t idle_since = 0;
  // At the end the last messages have arrived, but MPI has to be asked about them.
  while (!ending_ || (half.waits_for_mpi() && now_ns() - idle_since < kLastNs)) {
    uint32_t ticket = napper.bell.load();
    uint64_t now = now_ns();
    if (h.stop.load(std::memory_order_acquire) == 0 && half.step()) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    if (!half.waits_for_mpi()) half.poke();  // or the neighbour may wait for ever
    napper.nap(ticket, now - idle_since, half.waits_for_mpi());
  }
}

}  // namespace hvdft
