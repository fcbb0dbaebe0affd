// Calls MPI on endpoints that no op uses. A member that has finished an op makes no more calls on
// its endpoints, so its successor might wait for ever (Endpoint::poke). This thread makes such
// calls, less and less often: between ops, and during an op on the endpoints of rings that take no
// part in it.
#ifndef HVD_FT_IDLE_POKER_H
#define HVD_FT_IDLE_POKER_H

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "mpi/endpoint.h"

namespace hvdft {

class IdlePoker {
 public:
  // The endpoints of all rings of a member.
  explicit IdlePoker(std::vector<Endpoint*> endpoints);
  ~IdlePoker();
  IdlePoker(const IdlePoker&) = delete;
  IdlePoker& operator=(const IdlePoker&) = delete;

  // An op begins that uses these, or ends. Endpoints belong to the process, so all its rings share
  // them: those of the same number are not touched by any poker meanwhile.
  void op_begins(const std::vector<Endpoint*>& used);
  void op_ends();

 private:
  void run();
  void poke();
  void notify(bool all_used);

  const std::vector<Endpoint*> endpoints_;
  std::vector<Endpoint*> used_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool all_used_ = false, changed_now_ = false, ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace hvdft

#endif  // HVD_FT_IDLE_POKER_H
