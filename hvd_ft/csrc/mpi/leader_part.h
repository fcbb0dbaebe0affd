// The parts of a leader: each in a thread of its own, or all in one.
#ifndef HVD_FT_LEADER_PART_H
#define HVD_FT_LEADER_PART_H

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/doorbell.h"
#include "oplog/log_writer.h"
#include "mpi/mirror_link.h"
#include "mpi/node_ring.h"

namespace hvdft {

class LeaderPart {
 public:
  virtual ~LeaderPart() = default;
  // Does what is possible without waiting; returns whether there was anything to do.
  virtual bool step(uint64_t now_ns) = 0;
  // Whether it waits for something that comes over MPI, without a doorbell.
  virtual bool waits_for_mpi() const = 0;
};

// The log writer, on rank 0's node.
class LogWriterPart : public LeaderPart {
 public:
  LogWriterPart(Node& node, const hvdft_op_rules& rules)
      : doorbell_(node.header().log_writer_doorbell),
        log_writer_(node, rules),
        seen_(doorbell_.load() - 1) {
    log_writer_.open();
  }
  bool step(uint64_t now_ns) override;
  bool waits_for_mpi() const override { return false; }

 private:
  const Shared<uint32_t>& doorbell_;
  LogWriter log_writer_;
  uint32_t seen_;
};

// The mirror.
class MirrorPart : public LeaderPart {
 public:
  // `store`: nullptr on rank 0's node.
  MirrorPart(Node& node, LogStore* store, Endpoint& endpoint, const std::vector<int>& firsts,
             const std::vector<MirrorEdge>& edges, std::function<uint64_t()> clock = now_ns);
  bool step(uint64_t now_ns) override;
  bool waits_for_mpi() const override { return !all_said_; }

  void leave() { leaving_ = true; }  // the job is over
  bool all_said() const { return all_said_; }

 private:
  bool is_news(uint64_t now_ns);
  bool greet();
  void part(uint64_t now_ns);

  const NodeHeader& header_;
  LogStore* store_;
  MirrorNews news_;
  const std::function<uint64_t()> clock_;
  std::vector<std::unique_ptr<MirrorLink>> links_;  // the one upwards first, if there is one
  std::vector<EventsHeard> heard_;                  // on rank 0's node
  uint32_t ticket_ = 0;
  uint64_t looked_ns_ = 0;
  bool moved_ = true, greeted_ = false;
  std::atomic<bool> leaving_{false}, all_said_{false};
};

// One half of the ring; the receiving half also does the gathered ops.
template <typename Half>
class RingPart : public LeaderPart {
 public:
  // `more`: the receiving half's endpoint for gathered ops.
  template <typename... More>
  explicit RingPart(NodeMember& member, const Edge& edge, More&... more)
      : stop_(member.node().header().stop), half_(member, edge, more...) {}

  bool step(uint64_t) override {
    if (!connected_) return connected_ = half_.connect();
    if (stop_.load(std::memory_order_acquire) == 0 && half_.step()) return true;
    half_.poke();  // or a neighbour may wait for ever
    return false;
  }
  bool waits_for_mpi() const override { return !connected_ || half_.waits_for_mpi(); }
  bool under_way() const { return half_.waits_for_mpi(); }

 private:
  const decltype(NodeHeader::stop)& stop_;
  Half half_;
  bool connected_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_LEADER_PART_H
