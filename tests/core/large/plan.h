// What the workers of a simulated job do, and what is counted of it.
#ifndef HVD_FT_TESTS_LARGE_PLAN_H
#define HVD_FT_TESTS_LARGE_PLAN_H

#include <cstdint>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

#include "network.h"

namespace large {

// All that decides a run, as values and as a line of text:
//   ranks=1024 per_node=8 connections=1 seed=1 deaths=0 latency_ns=20000 message_ns=1000 mbit=10000
//   uneven=0 free_mirror=0 below=32 transfers=4
struct Case {
  int ranks = 64, per_node = 8;
  int connections = 1;  // of each edge of the ring
  int below = 32;       // nodes below one in the mirror's tree
  int transfers = 4;    // under way over a connection
  uint64_t seed = 1;
  int deaths = 0;
  LinkModel model;
  int nodes() const { return ranks / per_node; }
};

inline Case parse(const std::string& line) {
  Case made;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    uint64_t value = std::stoull(word.substr(equals + 1));
    if (name == "ranks") {
      made.ranks = static_cast<int>(value);
    } else if (name == "per_node") {
      made.per_node = static_cast<int>(value);
    } else if (name == "connections") {
      made.connections = static_cast<int>(value);
    } else if (name == "below") {
      made.below = static_cast<int>(value);
    } else if (name == "transfers") {
      made.transfers = static_cast<int>(value);
    } else if (name == "seed") {
      made.seed = value;
    } else if (name == "deaths") {
      made.deaths = static_cast<int>(value);
    } else if (name == "latency_ns") {
      made.model.latency_ns = value;
    } else if (name == "message_ns") {
      made.model.message_ns = value;
    } else if (name == "mbit") {
      made.model.mbit = value;
    } else if (name == "uneven") {
      made.model.uneven = value != 0;
    } else if (name == "free_mirror") {
      made.model.free_mirror = value != 0;
    } else {
      throw std::invalid_argument("not known: " + name);
    }
  }
  if (made.per_node < 1 || made.ranks < 2 * made.per_node || made.ranks % made.per_node != 0) {
    throw std::invalid_argument("give ranks for two nodes or more, as many on each: " + line);
  }
  return made;
}

inline std::string text_of(const Case& made) {
  std::ostringstream out;
  out << "ranks=" << made.ranks << " per_node=" << made.per_node
      << " connections=" << made.connections << " seed=" << made.seed << " deaths=" << made.deaths
      << " latency_ns=" << made.model.latency_ns << " message_ns=" << made.model.message_ns
      << " mbit=" << made.model.mbit << " uneven=" << made.model.uneven
      << " free_mirror=" << made.model.free_mirror << " below=" << made.below
      << " transfers=" << made.transfers;
  return out.str();
}

// Ops of a size, one after the other.
struct Phase {
  const char* name;
  uint64_t bytes;
  uint64_t ops;
};
// The first one is not shown: in it the job starts.
constexpr Phase kPhases[] = {{"start", 8, 3},
                             {"8 B", 8, 8},
                             {"1 KiB", 1 << 10, 8},
                             {"16 KiB", 16 << 10, 2},
                             {"1 MiB", 1 << 20, 2}};
constexpr int kPhaseCount = std::size(kPhases);

constexpr uint64_t ops_before(int phase) {
  uint64_t ops = 0;
  for (int p = 0; p < phase; ++p) ops += kPhases[p].ops;
  return ops;
}
constexpr uint64_t kOps = ops_before(kPhaseCount);
constexpr uint64_t kBeforeLoop = 1;

constexpr int phase_of(uint64_t op) {
  int phase = 0;
  while (op >= ops_before(phase + 1)) ++phase;
  return phase;
}
// Whether a phase ends before this op.
constexpr bool is_boundary(uint64_t op) {
  for (int p = 1; p <= kPhaseCount; ++p) {
    if (op == ops_before(p)) return true;
  }
  return false;
}

// All that is counted from a moment to another one.
struct Counts {
  double ns = 0;
  double messages[kParts] = {}, bytes[kParts] = {};  // of all nodes
  double hops[kParts] = {};
  double most_bytes = 0;  // of the node that sends most
  double looks = 0, leader_wakeups = 0, worker_wakeups = 0;
};

// What a run gives: plain values, which go through a pipe.
struct Outcome {
  bool well = false;
  Counts phases[kPhaseCount];  // for an op
  Counts idle;                 // for a second
  double arena_bytes = 0;      // of a node that is not rank 0's, without its ranks' files
  uint64_t worker_deaths = 0, generations = 0;
  uint64_t most_under_way = 0;  // messages of the ring that a node was ready for, over a connection
  uint64_t hashes[kOps] = {};   // of the results
};

}  // namespace large

#endif  // HVD_FT_TESTS_LARGE_PLAN_H
