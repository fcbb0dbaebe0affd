// A worker of the simulated job: sums of all phases, over the C ABI, with a snapshot behind each.
#ifndef HVD_FT_TESTS_LARGE_FLEET_SCRIPT_H
#define HVD_FT_TESTS_LARGE_FLEET_SCRIPT_H

#include <cstring>
#include <string>

#include "../run_op.h"
#include "../simulator/ring_sim_check.h"
#include "../small_script.h"
#include "protocol/ring_plan.h"
#include "plan.h"

namespace large {

// Whom a worker tells how far it has come.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void begins(int phase) = 0;
  virtual void executed(int rank, uint64_t op, uint64_t hash) = 0;
  virtual void ends(int rank) = 0;
  virtual void pause() = 0;
  virtual void shield(bool on) = 0;
};

constexpr uint64_t mixed_up(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Of integers each rank gives its own multiple, so that a sum shows whether each rank is in it
// once. Floats are such that another order gives other bits.
inline uint64_t multiple_of(int rank) { return mixed_up(static_cast<uint64_t>(rank) + 1) | 1; }
inline uint64_t integer(uint64_t op, uint64_t i) { return op * 1000003 + i + 1; }

// The sum of an op's floats in the order that is promised: of a node's ranks in their order, then
// of nodes in that of the ring, which for each part of the data begins at another node.
inline float sum_in_order(uint64_t op, uint64_t i, uint64_t part, int nodes, int per_node) {
  auto of_node = [&](int node) {
    float sum = 0;
    for (int r = node * per_node; r < (node + 1) * per_node; ++r) {
      float mine = ring_sim::real(op, static_cast<uint64_t>(r), i);
      sum = r == node * per_node ? mine : sum + mine;
    }
    return sum;
  };
  int first = (nodes - static_cast<int>(part)) % nodes;
  float sum = of_node(first);
  for (int n = 1; n < nodes; ++n) sum += of_node((first + n) % nodes);
  return sum;
}

// An op: one rank's input to it, and a look at its result.
struct Sum {
  uint64_t op;
  int rank;
  bool floats;
  uint64_t all_multiples;
  int per_node;
  hvdft::RingPlan parts;
  uint64_t hash = 1;

  static void give(void* self, uint64_t from, uint64_t bytes, void* to) {
    const Sum& sum = *static_cast<Sum*>(self);
    if (sum.floats) {
      auto* mine = static_cast<float*>(to);
      for (uint64_t i = 0; i < bytes / sizeof *mine; ++i) {
        mine[i] = ring_sim::real(sum.op, static_cast<uint64_t>(sum.rank), from / sizeof *mine + i);
      }
    } else {
      auto* mine = static_cast<uint64_t*>(to);
      uint64_t multiple = multiple_of(sum.rank);
      for (uint64_t i = 0; i < bytes / sizeof *mine; ++i) {
        mine[i] = integer(sum.op, from / sizeof *mine + i) * multiple;
      }
    }
  }
  void check_floats(uint64_t from, uint64_t word) const;
  // Nodes take segments in different orders, so the hash does not depend on it.
  static void take(void* self, uint64_t from, uint64_t bytes, const void* data) {
    Sum& sum = *static_cast<Sum*>(self);
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      uint64_t word, number = (from + at) / sizeof word;
      std::memcpy(&word, static_cast<const char*>(data) + at, sizeof word);
      if (!sum.floats) CHECK(word == integer(sum.op, number) * sum.all_multiples);
      if (sum.floats && sum.rank == 0) sum.check_floats(from + at, word);
      sum.hash += mixed_up(word + number * 0x9e3779b97f4a7c15);
    }
  }
};

inline void Sum::check_floats(uint64_t from, uint64_t word) const {
  uint64_t part = 0;
  while (parts.chunk(part).to <= from) ++part;
  for (uint64_t half = 0; half < 2; ++half) {
    auto bits = static_cast<uint32_t>(word >> 32 * half);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    int nodes = static_cast<int>(parts.members());
    CHECK(value == sum_in_order(op, from / sizeof value + half, part, nodes, per_node));
  }
}

class FleetScript : public Script {
 public:
  FleetScript(Progress& progress, int ranks, int per_node)
      : progress_(progress), per_node_(per_node), nodes_(ranks / per_node) {
    together = 1;
    for (int r = 0; r < ranks; ++r) all_multiples_ += multiple_of(r);
  }

  uint64_t elements_of(uint64_t op) const override {
    return kPhases[phase_of(op)].bytes / sizeof(uint64_t);
  }
  uint32_t dtype_of(uint64_t op) const override {
    return is_float(op) ? HVDFT_FLOAT32 : HVDFT_INT64;
  }

  void work(const std::string& dir, int rank, uint32_t incarnation) {
    attach(dir, rank, incarnation);
    while (next < kBeforeLoop) execute();
    uint64_t begin;
    CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK && begin == kBeforeLoop);
    restore();
    while (next < kOps) {
      execute();
      if (is_boundary(next)) keep();
    }
    progress_.ends(rank);
  }

 private:
  static bool is_float(uint64_t op) { return op % 2 == 0; }

  // The environment belongs to all threads.
  void attach(const std::string& dir, int rank, uint32_t incarnation) {
    progress_.shield(true);
    setenv("HOROVOD_FT_DIR", dir.c_str(), 1);
    setenv("HOROVOD_FT_JOB", "fleet", 1);
    setenv("HOROVOD_RANK", std::to_string(rank).c_str(), 1);
    setenv("HOROVOD_FT_INCARNATION", std::to_string(incarnation).c_str(), 1);
    if (hvdft_worker_open() != HVDFT_OK) {
      std::fprintf(stderr, "%s\n", hvdft_error());
      std::exit(1);
    }
    progress_.shield(false);
  }

  void execute() {
    progress_.begins(phase_of(next));
    uint64_t op = next;
    agreed(op);
    hvdft::RingPlan parts(static_cast<uint64_t>(nodes_), kPhases[phase_of(op)].bytes,
                          hvdft::kCacheLine);
    Sum sum{op, hvdft_worker_rank(), is_float(op), all_multiples_, per_node_, parts};
    run_op(op, {Sum::give, Sum::take, &sum});
    ++next;
    progress_.executed(sum.rank, op, sum.hash);
  }

  // Behind a phase: a snapshot, and a pause, so that the phases do not disturb each other.
  void keep() {
    uint64_t content[] = {next, 0};
    int code;
    for (;;) {
      uint32_t ticket = hvdft_worker_snapshot_ticket();
      code = hvdft_worker_snapshot_begin(0, next, next);
      if (code != HVDFT_AGAIN) break;
      hvdft_worker_snapshot_wait(ticket, 100);
    }
    CHECK(code >= 0);
    if (code == HVDFT_OK) {
      void* room;
      CHECK(hvdft_worker_snapshot_room(0, sizeof content, &room) == HVDFT_OK);
      std::memcpy(room, content, sizeof content);
      hvdft_snapshot snapshot{next, next, sizeof content, 0, 0};
      CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
    }
    if (next < kOps) progress_.pause();
  }

  Progress& progress_;
  const int per_node_, nodes_;
  uint64_t all_multiples_ = 0;
};

}  // namespace large

#endif  // HVD_FT_TESTS_LARGE_FLEET_SCRIPT_H
