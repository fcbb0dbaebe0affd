// The ring as textbooks have it: a whole chunk in a step, then the next step. What the locality
// experiment compares the pipelined ring with; not for production.
#ifndef HVD_FT_BLOCKING_RING_H
#define HVD_FT_BLOCKING_RING_H

#include <cstdint>

#include "mpi/endpoint.h"

namespace hvdft {

// How a member passes a step.
enum class Exchange {
  kIrecvSendWait,  // MPI_Irecv, MPI_Send, MPI_Wait: baidu-allreduce
  kSerial,         // sending and receiving never overlap
};

void blocking_allreduce(Endpoint& endpoint, Exchange exchange, void* data, uint64_t bytes,
                        uint32_t dtype, uint32_t op);

}  // namespace hvdft

#endif  // HVD_FT_BLOCKING_RING_H
