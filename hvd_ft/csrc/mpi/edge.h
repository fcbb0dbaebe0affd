// An edge between two nodes: one or more endpoints with a connection each, over which the edge's
// messages take turns. So an edge stays one ordered stream with one record (pair_log.h), although
// several connections carry it.
#ifndef HVD_FT_EDGE_H
#define HVD_FT_EDGE_H

#include <cstdint>
#include <utility>
#include <vector>

#include "mpi/endpoint.h"
#include "protocol/ring.h"

namespace hvdft {

class Edge {
 public:
  Edge(std::vector<Endpoint*> endpoints, uint64_t transfers)
      : endpoints_(std::move(endpoints)), transfers_(transfers) {}

  uint64_t size() const { return endpoints_.size(); }
  // So many transfers may be under way.
  uint64_t transfers() const { return transfers_ * size(); }
  const std::vector<Endpoint*>& endpoints() const { return endpoints_; }
  // Both ends know a message's connection from its position.
  Endpoint& of(EdgePosition at) const { return *endpoints_[number_of(at)]; }

  // Sets of connections are bits.
  uint64_t bit_of(EdgePosition at) const { return uint64_t{1} << number_of(at); }
  void poke_others(uint64_t connections) const {
    for (uint64_t i = 0; i < size(); ++i) {
      if (!(connections >> i & 1)) endpoints_[i]->poke();
    }
  }

 private:
  uint64_t number_of(EdgePosition at) const { return at.position % size(); }

  std::vector<Endpoint*> endpoints_;
  uint64_t transfers_;
};

}  // namespace hvdft

#endif  // HVD_FT_EDGE_H
