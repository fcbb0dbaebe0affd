// One endpoint of Intel MPI: a communicator of our own, used by one thread.
//
// endpoint.cc is the only file that includes MPI. When MPI was started with split threads
// (I_MPI_THREAD_SPLIT), every `thread_id` is an endpoint with its own resources: two threads may
// use two endpoints at the same time without a lock, but never the same endpoint, and messages from
// an endpoint arrive at the endpoint of the same number.
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

// A transfer under way. It belongs to the thread that began it.
struct Transfer {
  int request;
  uint64_t bytes;
  int source;  // its sender; kSent: it is a send
};
constexpr int kSent = -1;

// Counts of transfers from and to one peer; any thread may read them. If the peer has begun a
// transfer and it is posted here, only MPI can complete it: see link_watch.py.
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

  int number() const { return thread_id_; }
  int member() const { return member_; }
  int members() const { return members_; }
  const LinkCounts& counts(int peer) const { return counts_[static_cast<size_t>(peer)]; }
  // What it has begun to send; any thread may read it.
  const std::atomic<uint64_t>& sent_messages() const { return sent_messages_; }
  const std::atomic<uint64_t>& sent_bytes() const { return sent_bytes_; }

  Transfer begin_send(const void* data, uint64_t bytes, int to);
  Transfer begin_receive(void* data, uint64_t bytes, int from);
  // Whether it is complete; makes progress on all transfers of this endpoint.
  bool complete(Transfer* transfer);

  // Lets MPI finish its work for complete transfers: a send can be complete while MPI still holds
  // its message, and only calls on this endpoint send it.
  void poke();

  // MPI's own blocking calls: they cannot time out.
  void send(const void* data, uint64_t bytes, int to);
  void synchronous_send(const void* data, uint64_t bytes, int to);
  void receive(void* data, uint64_t bytes, int from);
  void wait(Transfer* transfer);

  // `count` messages of `bytes` each to a peer and as many from it, all under way at a time, by
  // MPI's own blocking call. They lie one behind the other at `from` and at `to`, and are not
  // counted. Where MPI was not started with split threads several threads may call it at a time,
  // each with a tag of its own.
  void exchange(const char* from, char* to, uint64_t bytes, int count, int peer, int tag);

 private:
  LinkCounts& link(int peer) { return counts_[static_cast<size_t>(peer)]; }
  void count_sent(uint64_t bytes, int to);

  int communicator_, thread_id_ = 0;
  int member_ = 0, members_ = 1;
  std::vector<LinkCounts> counts_;  // by peer
  std::atomic<uint64_t> sent_messages_{0}, sent_bytes_{0};
};

// How MPI was initialised.
struct MpiFacts {
  bool running;        // initialised and not finalised
  bool multithreaded;  // MPI_THREAD_MULTIPLE
  int endpoints;       // with split threads; else 1
  std::string library, file;
};
MpiFacts mpi_facts();

}  // namespace hvdft

#endif  // HVD_FT_ENDPOINT_H
