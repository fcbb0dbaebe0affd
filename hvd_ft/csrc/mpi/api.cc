// The C ABI: arguments are checked, exceptions become codes.
#include <cstring>
#include <memory>
#include <new>

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

int hvdft_ring_open(int communicator, int variant, uint64_t segment_bytes, uint64_t timeout_ns,
                    hvdft_ring** out) {
  if (variant < HVDFT_RING_SERIAL || variant > HVDFT_RING_ONE_ENDPOINT) {
    return fail(HVDFT_EINVAL, "there is no variant %d of the ring", variant);
  }
  return guarded(
      [&] { *out = new hvdft_ring{{communicator, variant, segment_bytes, timeout_ns}}; });
}

// A failed ring has transfers under way, from and to its memory, so the memory has to stay.
void hvdft_ring_close(hvdft_ring* ring) {
  if (!ring->member.failed()) delete ring;
}

int hvdft_ring_allreduce(hvdft_ring* ring, void* data, uint64_t count, uint32_t dtype,
                         uint32_t op) {
  uint64_t width = hvdft::element_bytes(dtype);
  if (width == 0 || op > HVDFT_PRODUCT) {
    return fail(HVDFT_EINVAL, "there is no data type %u or reduction %u", dtype, op);
  }
  return guarded([&] { ring->member.allreduce(data, count * width, dtype, op); });
}

int hvdft_leader_open(const char* dir, const char* job, int rank, const int* firsts, int nodes,
                      int communicator, int one_endpoint, uint64_t most_gathered,
                      uint64_t ring_segment, int ablates_network, hvdft_leader** out) {
  auto arenas = hvdft::Arenas::open(dir, job, hvdft::Node::kAgent, rank);
  if (!arenas) return HVDFT_EINVAL;
  return guarded([&] {
    *out = new hvdft_leader{{std::move(arenas),
                             communicator,
                             {firsts, firsts + nodes + 1},
                             one_endpoint != 0,
                             {most_gathered, ring_segment, ablates_network != 0}}};
  });
}

void hvdft_leader_set_waits(hvdft_leader* leader, uint64_t yield_ns, uint64_t busy_nap_ns) {
  leader->leader.set_waits(yield_ns, busy_nap_ns);
}

int hvdft_leader_links(hvdft_leader* leader, hvdft_link* out, int capacity) {
  auto links = leader->leader.links();
  int count = static_cast<int>(links.size());
  for (int i = 0; i < count && i < capacity; ++i) {
    const auto& [peer, kind, counts] = links[static_cast<size_t>(i)];
    // Read arrivals first: they never exceed what was posted.
    uint64_t arrived = counts->arrived.load(std::memory_order_relaxed);
    out[i] = {static_cast<uint32_t>(peer), static_cast<uint32_t>(kind), counts->begun.load(),
              counts->posted.load(), arrived};
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
