// A member of a ring over MPI: its endpoints and its threads.
#ifndef HVD_FT_MEMBER_H
#define HVD_FT_MEMBER_H

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mpi/endpoint.h"
#include "mpi/pipelined.h"

namespace hvdft {

class RingMember {
 public:
  RingMember(int communicator, int variant, uint64_t segment_bytes, uint64_t timeout_ns);
  ~RingMember();
  void allreduce(void* data, uint64_t bytes, uint32_t dtype, uint32_t op);
  bool failed() const { return failed_; }

 private:
  void make_endpoints(int communicator);
  void pipelined(void* data, uint64_t bytes, uint32_t dtype, uint32_t op);
  void one_thread(SendingHalf& sending, ReceivingHalf& receiving);
  void two_threads(SendingHalf& sending, ReceivingHalf& receiving);
  void set_in_op(bool in_op);
  void send_thread();
  void await_work(std::unique_lock<std::mutex>& lock);
  template <typename Half>
  void drive(Half& half);

  const int variant_;
  const bool two_threads_, own_endpoints_;
  const uint64_t segment_bytes_, timeout_ns_;
  // A communicator for each colour of edges, of which a member uses two.
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  Endpoint* out_;
  Endpoint* in_;
  std::vector<char> room_;

  // The send thread, which is idle where the caller drives both halves.
  std::mutex mutex_;
  std::condition_variable changed_;
  SendingHalf* work_ = nullptr;
  bool in_op_ = false, ending_ = false;
  std::string send_error_;
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace hvdft

#endif  // HVD_FT_MEMBER_H
