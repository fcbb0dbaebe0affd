// One endpoint of Intel MPI: a communicator of our own, and what one thread does on it.
//
// endpoint.cc is the only file that knows MPI. When MPI was started with split threads
// (I_MPI_THREAD_SPLIT), every `thread_id` is an endpoint with resources of its own: two threads
// may use two endpoints at the same time without a lock, but never one endpoint both, and what
// is sent from an endpoint arrives at the endpoint of the same number.
#ifndef HVD_FT_ENDPOINT_H
#define HVD_FT_ENDPOINT_H

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace hvdft {

// One line for hvdft_error().
struct RingError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A transfer on its way. Belongs to the thread that has begun it.
struct Transfer {
  int request;
  uint64_t bytes;
  int source;  // from whom it comes; kSent: it is a send
};
constexpr int kSent = -1;

// Transfers from and to one peer, so many; any thread may read them. What a peer has begun and we
// have posted is MPI's alone to deliver: see link_watch.py.
struct LinkCounts {
  std::atomic<uint64_t> begun{0};    // to it
  std::atomic<uint64_t> posted{0};   // from it
  std::atomic<uint64_t> arrived{0};  // from it
};

class Endpoint {
 public:
  // Collective over `communicator` (MPI's handle), which itself is not used afterwards.
  Endpoint(int communicator, int thread_id);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int member() const { return member_; }
  int members() const { return members_; }
  const LinkCounts& counts(int peer) const { return counts_[static_cast<size_t>(peer)]; }

  Transfer begin_send(const void* data, uint64_t bytes, int to);
  Transfer begin_receive(void* data, uint64_t bytes, int from);
  // Whether it is complete; moves on whatever is on its way on this endpoint.
  bool complete(Transfer* transfer);

  // Moves on what MPI may still have to do here for transfers that are complete: a send can be
  // while its message is still in MPI's hands, and only calls on this endpoint put it on its way.
  void poke();

  // MPI's own blocking calls: they cannot time out.
  void send(const void* data, uint64_t bytes, int to);
  void synchronous_send(const void* data, uint64_t bytes, int to);
  void receive(void* data, uint64_t bytes, int from);
  void wait(Transfer* transfer);

 private:
  LinkCounts& link(int peer) { return counts_[static_cast<size_t>(peer)]; }

  int communicator_;
  int member_ = 0, members_ = 1;
  std::vector<LinkCounts> counts_;  // by peer
};

// What MPI was started as.
struct MpiFacts {
  bool running;        // initialised and not finalised
  bool multithreaded;  // MPI_THREAD_MULTIPLE
  int endpoints;       // with split threads; else 1
  std::string library, file;
};
MpiFacts mpi_facts();

}  // namespace hvdft

#endif  // HVD_FT_ENDPOINT_H
