// The leader of a node: the agent that speaks for it to the other nodes. One thread has the mirror,
// and two have the ring's halves; each its own endpoint.
#ifndef HVD_FT_LEADER_H
#define HVD_FT_LEADER_H

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "claims.h"
#include "endpoint.h"
#include "log_store.h"
#include "mirror_link.h"
#include "node_ring.h"

namespace hvdft {

class Leader {
 public:
  // `firsts`: the first rank of each node, and the number of ranks. Collective over `communicator`,
  // which has the nodes' leaders.
  Leader(std::unique_ptr<Arenas> arenas, int communicator, const std::vector<int>& firsts);

  // Waits until all nodes have heard everything, and their leaders have come here too; ends the
  // threads. False: they did not within the time, or an op was under way; so MPI may still use our
  // memory, and it has to stay.
  bool close(uint64_t timeout_ns);

 private:
  void make_endpoints(int communicator);
  void mirror();
  bool mirror_step(uint64_t now_ns);
  template <typename Half>
  void drive(Half& half);
  template <typename Act>
  void guarded(Act act);

  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<LogStore> store_;  // but on rank 0's node
  NodeMember member_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  Endpoint *out_ = nullptr, *in_ = nullptr, *star_ = nullptr;
  std::vector<std::unique_ptr<MirrorLink>> links_;
  std::unique_ptr<NodeSender> sender_;
  std::unique_ptr<NodeReceiver> receiver_;
  std::atomic<bool> leaving_{false}, ending_{false}, all_said_{false};
  std::vector<std::thread> threads_;
};

}  // namespace hvdft

#endif  // HVD_FT_LEADER_H
