// The leader of a node: the agent that speaks for it to the other nodes. It runs the mirror and the
// ring's two halves, each with a thread and endpoints of its own; or, where CPUs are few, one
// thread and one endpoint for all three. The op log goes with the mirror: its log writer on rank
// 0's node, a copy on others.
#ifndef HVD_FT_LEADER_H
#define HVD_FT_LEADER_H

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "arena/node_arenas.h"
#include "mpi/endpoint.h"
#include "mpi/leader_part.h"
#include "mpi/nap.h"
#include "mpi/node_ring.h"

namespace hvdft {

class Leader {
 public:
  // `firsts`: the first rank of each node, and the number of ranks. Collective over `communicator`,
  // which has the nodes' leaders. The same for all of them: `one_endpoint`; and `connections`, of
  // each edge of the ring. `rules`: those of rank 0's leader count.
  Leader(std::unique_ptr<Arenas> arenas, int communicator, const std::vector<int>& firsts,
         bool one_endpoint, int connections, TravelRules rules);

  // How long its threads yield before they nap, and the longest nap of an ordinary wait (nap.h). At
  // any time, from any thread; each leader has its own.
  void set_waits(uint64_t yield_ns, uint64_t busy_nap_ns);

  // Waits until all nodes have received everything and their leaders have called this too; ends the
  // threads. False: that did not happen in time, or an op was under way, so MPI may still use this
  // object's memory, which has to stay.
  bool close(uint64_t timeout_ns);

  // The links of this node, and their counts so far.
  struct Link {
    int peer, kind;  // HVDFT_LINK_*
    uint64_t begun, posted, arrived;
  };
  std::vector<Link> links() const;

 private:
  Edge edge(int number, int connections) const;
  void start(const char* name, uint32_t roles, const std::vector<LeaderPart*>& parts);
  void work(uint32_t roles, const std::vector<LeaderPart*>& parts);
  void nap(uint32_t roles, uint32_t ticket, uint64_t longest_ns);
  void count_traffic();

  std::unique_ptr<Arenas> arenas_;
  std::optional<LogWriterPart> log_writer_;  // on rank 0's node, …
  std::optional<LogStore> store_;            // … and on others
  NodeMember member_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Endpoint*> out_, in_;  // of the ring's two edges
  Endpoint* gather_ = nullptr;       // of the receiving half
  std::optional<MirrorPart> mirror_;
  std::optional<RingPart<NodeSender>> sender_;
  std::optional<RingPart<NodeReceiver>> receiver_;
  std::atomic<uint64_t> yield_ns_{kYieldNs}, busy_nap_ns_{kBusyNs};
  std::atomic<bool> ending_{false};
  std::vector<std::thread> threads_;
};

}  // namespace hvdft

#endif  // HVD_FT_LEADER_H
