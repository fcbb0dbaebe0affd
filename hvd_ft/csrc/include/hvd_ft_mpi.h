// The C ABI of libhvdft_mpi.so: a ring allreduce over MPI, without agents, the leaders of nodes,
// and a probe of what MPI's endpoints can do. Only processes that speak MPI load it; the library
// that workers load (hvd_ft.h) has no MPI in it.
//
// Codes, types and reductions are those of hvd_ft.h; when a function returns a negative code,
// hvdft_error() of this library returns the line.
#ifndef HVD_FT_MPI_H
#define HVD_FT_MPI_H

#include <stdint.h>

#include "hvd_ft.h"
#include "hvd_ft_limits.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a member drives its two edges.
enum {
  HVDFT_RING_SERIAL = 0,           // whole chunks; sending and receiving never overlap
  HVDFT_RING_IRECV_SEND_WAIT = 1,  // whole chunks; baidu-allreduce
  HVDFT_RING_ONE_THREAD = 2,       // segments; one thread, on the program's endpoint
  HVDFT_RING_THREADS = 3,          // segments; a thread for each direction, one endpoint
  HVDFT_RING_ENDPOINTS = 4,        // segments; a thread and an endpoint for each direction
  HVDFT_RING_ONE_ENDPOINT = 5      // segments; one thread, and an endpoint of its own
};

// How MPI was initialised; texts that do not fit are shortened.
typedef struct {
  uint32_t running;        // initialised, not yet finalised
  uint32_t multithreaded;  // MPI_THREAD_MULTIPLE
  uint32_t endpoints;      // split threads: how many; else 1
  uint32_t reserved;
  char library[128];  // MPI_Get_library_version
  char file[512];     // where libmpi was loaded from
} hvdft_mpi_facts;

typedef struct hvdft_ring hvdft_ring;

HVDFT_API void hvdft_ring_facts(hvdft_mpi_facts* out);

// The same for all members of a ring.
typedef struct {
  uint32_t variant;  // HVDFT_RING_*
  // Rings that carry large arrays side by side, each with endpoints of its own: 1, but for the
  // variants ENDPOINTS and ONE_ENDPOINT. `both_ways`: every other one goes backwards.
  uint32_t rings, both_ways;
  uint32_t transfers;  // of segments that may be under way in a direction
  uint64_t segment_bytes;
  // A wait in which nothing moves for so long fails, and the ring cannot be used afterwards.
  // Variants with whole chunks use MPI's blocking calls and have no timeout.
  uint64_t timeout_ns;
} hvdft_ring_options;

// Collective over `communicator`, MPI's handle of an intracommunicator. The ring's order is that of
// its ranks.
HVDFT_API int hvdft_ring_open(int communicator, const hvdft_ring_options* options,
                              hvdft_ring** out);
// Collective if MPI has not been finalised.
HVDFT_API void hvdft_ring_close(hvdft_ring* ring);
// Reduces arrays at once, in place: data[0..arrays), with so many elements each. Collective: the
// same counts, type and reduction on all members.
HVDFT_API int hvdft_ring_allreduce(hvdft_ring* ring, void* const* data, const uint64_t* counts,
                                   uint32_t arrays, uint32_t dtype, uint32_t op);

// The leader of a node in a job on several nodes: it opens the node's arenas, mirrors their
// contents to the other nodes and drives the ring between them. `firsts`: the first rank of each of
// the `nodes`, and the number of ranks. `rules`: those of rank 0's leader count. Collective over
// `communicator`, which has the leaders in the order of nodes.
typedef struct {
  // 3: for sending, receiving and the mirror, each with endpoints of its own; 2: for the ring and
  // the mirror, with an endpoint each; 1: one thread and endpoint for all. As all leaders have it.
  uint32_t threads;
  // Of each edge of the ring, with an endpoint each; 1 if there are fewer threads than 3. As all
  // leaders have it.
  uint32_t connections;
  uint32_t transfers;  // so many are under way over a connection, at most
  // So many nodes are below a node at most in the tree by which nodes tell each other how their
  // ranks fare. As all leaders have it.
  uint32_t nodes_below;
  // How long threads that wait for MPI only yield before they nap between two looks, and how long
  // such a nap is at most in an ordinary wait (mpi/nap.h).
  uint64_t yield_ns, busy_nap_ns;
} hvdft_leader_options;
typedef struct hvdft_leader hvdft_leader;
HVDFT_API int hvdft_leader_open(const char* dir, const char* job, int rank, const int* firsts,
                                int nodes, int communicator, const hvdft_leader_options* options,
                                const hvdft_op_rules* rules, hvdft_leader** out);
// Waits until all leaders have called this and have exchanged everything: HVDFT_AGAIN if they have
// not within timeout_ns. The leader does nothing afterwards.
HVDFT_API int hvdft_leader_close(hvdft_leader* leader, uint64_t timeout_ns);

// A leader's links to others: transfers over MPI since it was opened, for link_watch.py.
enum {
  HVDFT_LINK_MIRROR = 0,
  HVDFT_LINK_SUCCESSOR = 1,    // to the next node of the ring
  HVDFT_LINK_PREDECESSOR = 2,  // from the one before
  HVDFT_LINK_GATHER = 3        // of gathered ops, both ways
};
typedef struct {
  uint32_t peer;  // node
  uint32_t kind;
  uint64_t begun, posted, arrived;
} hvdft_link;
// Writes out[0..capacity); returns the number of links. From any thread, but not after closing.
HVDFT_API int hvdft_leader_links(hvdft_leader* leader, hvdft_link* out, int capacity);

// A probe of message rate and bandwidth between two processes: see mpi/probe.h. `split`: every
// thread has an endpoint of its own, and MPI was started with one more than `threads`.
typedef struct hvdft_probe hvdft_probe;
typedef struct {
  uint64_t ns;        // from when the first thread began until the last one was done
  uint64_t messages;  // that this process has sent; it has received as many
  uint64_t window;    // those that a thread had under way at a time, in each direction
  uint64_t wrong;     // bytes that did not arrive as they were sent
} hvdft_probed;
// Collective over `communicator`, MPI's handle of one with two members.
HVDFT_API int hvdft_probe_open(int communicator, int threads, int split, hvdft_probe** out);
HVDFT_API void hvdft_probe_close(hvdft_probe* probe);
// Collective: each thread exchanges `windows` windows of messages of `bytes`.
HVDFT_API int hvdft_probe_run(hvdft_probe* probe, uint64_t bytes, uint64_t windows,
                              hvdft_probed* out);

#ifdef __cplusplus
}
#endif

#endif  // HVD_FT_MPI_H
