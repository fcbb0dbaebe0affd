// An endpoint on wires in the place of MPI: its communicator is the number of its member. What its
// messages do, each test says.
#ifndef HVD_FT_TESTS_ON_WIRES_H
#define HVD_FT_TESTS_ON_WIRES_H

#include "mpi/endpoint.h"

extern const int members_on_wires;  // of a communicator; each test says how many

namespace hvdft {

Endpoint::Endpoint(int communicator, int thread_id)
    : communicator_(communicator),
      thread_id_(thread_id),
      member_(communicator),
      members_(members_on_wires),
      counts_(static_cast<size_t>(members_on_wires)) {}
Endpoint::~Endpoint() = default;

}  // namespace hvdft

#endif  // HVD_FT_TESTS_ON_WIRES_H
