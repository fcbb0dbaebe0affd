// The C ABI: arguments are checked, exceptions become codes.
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/error.h"
#include "hvd_ft_mpi.h"
#include "mpi/leader.h"
#include "mpi/member.h"
#include "mpi/probe.h"
#include "base/reduce.h"

using hvdft::fail;

struct hvdft_ring {
  hvdft::RingMember member;
};

struct hvdft_leader {
  hvdft::Leader leader;
};

struct hvdft_probe {
  hvdft::Probe probe;
};

namespace {

template <typename Action>
int guarded(Action action) {
  try {
    action();
    return HVDFT_OK;
  } catch (const std::bad_alloc&) {
    return fail(HVDFT_ENOSPACE,
                "the ring has no memory for its segments; give a smaller "
                "segment_bytes");
  } catch (const std::exception& error) {
    return fail(HVDFT_ESYS, "%s", error.what());
  }
}

int check_transfers(uint32_t transfers) {
  if (transfers >= 1 && transfers <= HVDFT_MOST_TRANSFERS) return HVDFT_OK;
  return fail(HVDFT_EINVAL, "a connection cannot have %u transfers under way: give 1 to %d",
              transfers, HVDFT_MOST_TRANSFERS);
}

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::strncpy(to, text.c_str(), N - 1);
  to[N - 1] = 0;
}

}  // namespace

void hvdft_ring_facts(hvdft_mpi_facts* out) {
  hvdft::MpiFacts facts = hvdft::mpi_facts();
  *out = {};
  out->running = facts.running;
  out->multithreaded = facts.multithreaded;
  out->endpoints = static_cast<uint32_t>(facts.endpoints);
  put(out->library, facts.library);
  put(out->file, facts.file);
}

int hvdft_ring_open(int communicator, const hvdft_ring_options* options, hvdft_ring** out) {
  int variant = static_cast<int>(options->variant);
  if (variant < HVDFT_RING_SERIAL || variant > HVDFT_RING_ONE_ENDPOINT) {
    return fail(HVDFT_EINVAL, "there is no variant %d of the ring", variant);
  }
  bool several = variant == HVDFT_RING_ENDPOINTS || variant == HVDFT_RING_ONE_ENDPOINT;
  if (options->rings < 1 || (options->rings > 1 && !several)) {
    return fail(HVDFT_EINVAL, "variant %d of the ring cannot have %u rings", variant,
                options->rings);
  }
  if (int code = check_transfers(options->transfers); code != HVDFT_OK) return code;
  return guarded([&] {
    *out = new hvdft_ring{{communicator,
                           {variant, static_cast<int>(options->rings), options->both_ways != 0,
                            options->segment_bytes, options->transfers, options->timeout_ns}}};
  });
}

// A failed ring has transfers under way, from and to its memory, so the memory has to stay.
void hvdft_ring_close(hvdft_ring* ring) {
  if (!ring->member.failed()) delete ring;
}

int hvdft_ring_allreduce(hvdft_ring* ring, void* const* data, const uint64_t* counts,
                         uint32_t arrays, uint32_t dtype, uint32_t op) {
  uint64_t width = hvdft::element_bytes(dtype);
  if (width == 0 || op > HVDFT_PRODUCT) {
    return fail(HVDFT_EINVAL, "there is no data type %u or reduction %u", dtype, op);
  }
  return guarded([&] {
    std::vector<hvdft::RingArray> all;
    all.reserve(arrays);
    for (uint32_t i = 0; i < arrays; ++i) {
      all.push_back({static_cast<char*>(data[i]), counts[i] * width, dtype, op});
    }
    ring->member.allreduce(all);
  });
}

int hvdft_leader_open(const char* dir, const char* job, int rank, const int* firsts, int nodes,
                      int communicator, const hvdft_leader_options* options,
                      const hvdft_op_rules* rules, hvdft_leader** out) {
  uint32_t threads = options->threads, connections = options->connections;
  if (threads < 1 || threads > 3) {
    return fail(HVDFT_EINVAL, "a leader cannot have %u threads: give 1 to 3", threads);
  }
  if (connections < 1 || connections > (threads == 3 ? HVDFT_MOST_CONNECTIONS : 1)) {
    return fail(HVDFT_EINVAL,
                "an edge cannot have %u connections: give 1, or with 3 threads up to %d",
                connections, HVDFT_MOST_CONNECTIONS);
  }
  if (int code = check_transfers(options->transfers); code != HVDFT_OK) return code;
  if (options->nodes_below < 1) {
    return fail(HVDFT_EINVAL, "a node cannot have 0 nodes below it: give 1 or more");
  }
  auto arenas = hvdft::Arenas::open(dir, job, hvdft::Node::kLeader, rank);
  if (!arenas) return HVDFT_EINVAL;
  if (int code = hvdft::check_rules(*rules, arenas->node().window()); code != HVDFT_OK) return code;
  return guarded([&] {
    *out = new hvdft_leader{
        {std::move(arenas), communicator, {firsts, firsts + nodes + 1}, *options, *rules}};
  });
}

int hvdft_leader_links(hvdft_leader* leader, hvdft_link* out, int capacity) {
  auto links = leader->leader.links();
  int count = static_cast<int>(links.size());
  for (int i = 0; i < count && i < capacity; ++i) {
    const auto& link = links[static_cast<size_t>(i)];
    out[i] = {static_cast<uint32_t>(link.peer), static_cast<uint32_t>(link.kind), link.begun,
              link.posted, link.arrived};
  }
  return count;
}

int hvdft_probe_open(int communicator, int threads, int split, hvdft_probe** out) {
  if (threads < 1) return fail(HVDFT_EINVAL, "a probe has 1 thread or more, not %d", threads);
  return guarded([&] { *out = new hvdft_probe{{communicator, threads, split != 0}}; });
}

void hvdft_probe_close(hvdft_probe* probe) { delete probe; }

int hvdft_probe_run(hvdft_probe* probe, uint64_t bytes, uint64_t windows, hvdft_probed* out) {
  if (bytes == 0 || windows == 0) {
    return fail(HVDFT_EINVAL, "a probe sends messages of 1 byte or more, in 1 window or more");
  }
  return guarded([&] {
    auto [ns, wrong] = probe->probe.run(bytes, windows);
    uint64_t window = hvdft::probe_window(bytes);
    *out = {ns, probe->probe.threads() * windows * window, window, wrong};
  });
}

int hvdft_leader_close(hvdft_leader* leader, uint64_t timeout_ns) {
  if (!leader->leader.close(timeout_ns)) return HVDFT_AGAIN;
  delete leader;
  return HVDFT_OK;
}
