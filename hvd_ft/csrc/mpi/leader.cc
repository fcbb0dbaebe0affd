#include "mpi/leader.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/doorbell.h"
#include "mpi/nap.h"

namespace hvdft {

namespace {

// MPI's endpoint 0 belongs to the main thread, for the agents' rendezvous.
constexpr int kFirstRingEndpoint = 1, kMirrorEndpoint = 1 + HVDFT_EDGE_COLOURS;
constexpr int kGatherEndpoint = kMirrorEndpoint + 1;
constexpr int kMoreRingEndpoints = kGatherEndpoint + 1;  // of connections but the first
static_assert(kMoreRingEndpoints == HVDFT_OTHER_ENDPOINTS + HVDFT_EDGE_COLOURS);
static_assert(edge_colours(3) == HVDFT_EDGE_COLOURS, "of an odd ring, which has the most");

// MPI has to be polled, and others need the CPU: so between two polls there is a nap (nap.h), which
// a doorbell ends when something changes on this node.
constexpr uint64_t kLeavingNapNs = 1000000, kLastNs = 500000000;

}  // namespace

Leader::Leader(std::unique_ptr<Arenas> arenas, int communicator, const std::vector<int>& firsts,
               const hvdft_leader_options& options, const hvdft_op_rules& rules)
    : options_(options), arenas_(std::move(arenas)), member_{*arenas_, firsts.size() - 1} {
  Node& node = arenas_->node();
  // With fewer endpoints there are still as many communicators, so that messages are not confused.
  auto add = [&](int number) -> Endpoint& {
    bool own = options.threads == 3 || (options.threads == 2 && number == kMirrorEndpoint);
    int thread_id = own ? number : kFirstRingEndpoint;
    return *endpoints_.emplace_back(std::make_unique<Endpoint>(communicator, thread_id));
  };
  std::vector<LeaderPart*> parts;
  if (node.is_local(0)) {
    parts.push_back(&log_writer_.emplace(node, rules));
  } else {
    store_.emplace(node);
  }
  Endpoint& mirror = add(kMirrorEndpoint);
  int members = mirror.members(), member = mirror.member();
  MirrorTree tree(members, static_cast<int>(options.nodes_below));
  mirror_edges_ = mirror_edges(tree, member, firsts);
  parts.push_back(
      &mirror_.emplace(node, store_ ? &*store_ : nullptr, mirror, firsts, mirror_edges_));
  int colours = edge_colours(members), connections = static_cast<int>(options.connections);
  for (int i = 0; i < connections * colours; ++i) {
    add(i < colours ? kFirstRingEndpoint + i : kMoreRingEndpoints + i - colours);
  }
  Edge out = edge(member), in = edge((member + members - 1) % members);
  out_ = out.endpoints();
  in_ = in.endpoints();
  gather_ = &add(kGatherEndpoint);
  sender_.emplace(member_, out);
  receiver_.emplace(member_, in, *gather_);
  if (options.threads == 1) {
    parts.insert(parts.end(), {&*sender_, &*receiver_});
    start("hvdft-leader", kMirrorRole | kRingRole, parts);
    return;
  }
  start("hvdft-mirror", kMirrorRole, parts);
  if (options.threads == 2) {
    start("hvdft-ring", kRingRole, {&*sender_, &*receiver_});
  } else {
    start("hvdft-send", kRingRole, {&*sender_});
    start("hvdft-receive", kRingRole, {&*receiver_});
  }
}

Edge Leader::edge(int number) const {
  int members = endpoints_[0]->members(), colours = edge_colours(members);
  std::vector<Endpoint*> endpoints;
  for (int i = 0; i < static_cast<int>(options_.connections); ++i) {
    int at = 1 + i * colours + colour_of_edge(number, members);
    endpoints.push_back(endpoints_[static_cast<size_t>(at)].get());
  }
  return Edge(endpoints, options_.transfers);
}

bool Leader::close(uint64_t timeout_ns) {
  mirror_->leave();
  auto& doorbell = arenas_->node().header().leader_doorbell;
  notify(doorbell);
  uint64_t end = now_ns() + timeout_ns;
  while (!mirror_->all_said() && now_ns() < end)
    wait_doorbell_ns(doorbell, doorbell.load(), kLeavingNapNs);
  ending_ = true;
  notify(doorbell);
  for (auto& thread : threads_) thread.join();
  return mirror_->all_said() && !sender_->under_way() && !receiver_->under_way();
}

std::vector<Leader::Link> Leader::links() const {
  std::vector<Link> links;
  const Endpoint& mirror = *endpoints_[0];
  int me = mirror.member(), members = mirror.members();
  // The counts of all connections together.
  auto add = [&](const std::vector<Endpoint*>& endpoints, int peer, int kind) {
    Link link{peer, kind, 0, 0, 0};
    // Arrivals first: they never exceed what was posted.
    for (auto* endpoint : endpoints) link.arrived += endpoint->counts(peer).arrived;
    for (auto* endpoint : endpoints) {
      link.begun += endpoint->counts(peer).begun;
      link.posted += endpoint->counts(peer).posted;
    }
    links.push_back(link);
  };
  for (const MirrorEdge& edge : mirror_edges_) {
    add({endpoints_[0].get()}, edge.node, HVDFT_LINK_MIRROR);
  }
  add(out_, (me + 1) % members, HVDFT_LINK_SUCCESSOR);
  add(in_, (me + members - 1) % members, HVDFT_LINK_PREDECESSOR);
  for (int peer : gather_peers(me, members)) add({gather_}, peer, HVDFT_LINK_GATHER);
  return links;
}

void Leader::start(const char* name, uint32_t roles, const std::vector<LeaderPart*>& parts) {
  threads_.emplace_back([this, name, roles, parts] {
    pthread_setname_np(pthread_self(), name);  // hvdft check --numa shows it
    try {
      work(roles, parts);
    } catch (const RingError& error) {
      // Dies, as when MPI hits an error that it does not report.
      std::fprintf(stderr, "hvdft: %s; this agent ends\n", error.what());
      kill(getpid(), SIGKILL);
    }
  });
}

void Leader::work(uint32_t roles, const std::vector<LeaderPart*>& parts) {
  auto& doorbell = arenas_->node().header().leader_doorbell;
  auto waits = [&] {
    return std::any_of(parts.begin(), parts.end(),
                       [](auto* part) { return part->waits_for_mpi(); });
  };
  uint64_t idle_since = 0, last_ns = 0;
  // At the end the last messages have arrived, but MPI has to be polled for them.
  while (!ending_ || (waits() && now_ns() - last_ns < kLastNs)) {
    uint32_t ticket = doorbell.load();
    uint64_t now = now_ns();
    if (!ending_) last_ns = now;
    bool moved = false;
    for (auto* part : parts) moved |= part->step(now);
    if (moved) {
      idle_since = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    uint64_t idle_ns = now - idle_since;
    if (idle_ns < options_.yield_ns) {
      sched_yield();
    } else {
      nap(roles, ticket, nap_ns(idle_ns, waits(), std::min(options_.busy_nap_ns, kIdleNs)));
    }
  }
}

void Leader::nap(uint32_t roles, uint32_t ticket, uint64_t longest_ns) {
  NodeHeader& h = arenas_->node().header();
  count_traffic();
  if (roles & kMirrorRole) h.mirror_asleep.fetch_add(1);
  if (roles & kRingRole) h.ring_asleep.fetch_add(1);
  wait_doorbell_ns(h.leader_doorbell, ticket, longest_ns, roles);
  if (roles & kMirrorRole) h.mirror_asleep.fetch_sub(1);
  if (roles & kRingRole) h.ring_asleep.fetch_sub(1);
}

// For measurements: see experiments/scale.
void Leader::count_traffic() {
  NodeHeader& h = arenas_->node().header();
  uint64_t messages = 0, bytes = 0;
  for (auto& endpoint : endpoints_) {
    messages += endpoint->sent_messages().load(std::memory_order_relaxed);
    bytes += endpoint->sent_bytes().load(std::memory_order_relaxed);
  }
  const Endpoint& mirror = *endpoints_[0];
  h.sent_messages.store(messages, std::memory_order_relaxed);
  h.sent_bytes.store(bytes, std::memory_order_relaxed);
  h.data_messages.store(messages - mirror.sent_messages(), std::memory_order_relaxed);
  h.data_bytes.store(bytes - mirror.sent_bytes(), std::memory_order_relaxed);
  h.naps.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hvdft
