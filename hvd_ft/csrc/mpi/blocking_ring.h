// The textbook ring: a whole chunk in a step, then the next step. The baseline of the locality
// experiment; not for production.
#ifndef HVD_FT_BLOCKING_RING_H
#define HVD_FT_BLOCKING_RING_H

#include <cstdint>

#include "mpi/endpoint.h"

namespace hvdft {

// How a member executes a step.
enum class Exchange {
  kIrecvSendWait,  // MPI_Irecv, MPI_Send, MPI_Wait: baidu-allreduce
  kSerial,         // sending and receiving never overlap
};

void blocking_allreduce(Endpoint& endpoint, Exchange exchange, void* data, uint64_t bytes,
                        uint32_t dtype, uint32_t op);

}  // namespace hvdft

#endif  // HVD_FT_BLOCKING_RING_H
