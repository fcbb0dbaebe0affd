// The leader of a node: the agent that exchanges data with the other nodes. It runs the mirror and
// the ring's two halves, each with its own thread and endpoints; or with one thread for both
// halves; or, if CPUs are few, with one thread and one endpoint for all three. The mirror's thread
// also has the op log: the log writer on rank 0's node, a copy on others.
#ifndef HVD_FT_LEADER_H
#define HVD_FT_LEADER_H

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "arena/node_arenas.h"
#include "hvd_ft_mpi.h"
#include "mpi/endpoint.h"
#include "mpi/leader_part.h"
#include "mpi/node_ring.h"

namespace hvdft {

class Leader {
 public:
  // `firsts`: the first rank of each node, and the number of ranks. Collective over `communicator`,
  // which has the nodes' leaders. `options` and `rules`: see hvd_ft_mpi.h.
  Leader(std::unique_ptr<Arenas> arenas, int communicator, const std::vector<int>& firsts,
         const hvdft_leader_options& options, const hvdft_op_rules& rules);

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
  Edge edge(int number) const;
  void start(const char* name, uint32_t roles, const std::vector<LeaderPart*>& parts);
  void work(uint32_t roles, const std::vector<LeaderPart*>& parts);
  void nap(uint32_t roles, uint32_t ticket, uint64_t longest_ns);
  void count_traffic();

  const hvdft_leader_options options_;
  std::unique_ptr<Arenas> arenas_;
  std::optional<LogWriterPart> log_writer_;  // on rank 0's node, …
  std::optional<LogStore> store_;            // … and on others
  NodeMember member_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Endpoint*> out_, in_;  // of the ring's two edges
  Endpoint* gather_ = nullptr;       // of the receiving half
  std::vector<MirrorEdge> mirror_edges_;
  std::optional<MirrorPart> mirror_;
  std::optional<RingPart<NodeSender>> sender_;
  std::optional<RingPart<NodeReceiver>> receiver_;
  std::atomic<bool> ending_{false};
  std::vector<std::thread> threads_;
};

}  // namespace hvdft

#endif  // HVD_FT_LEADER_H
