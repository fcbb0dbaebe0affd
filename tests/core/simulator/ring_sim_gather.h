// The sending half of gathered ops, of a member in the simulator.
#ifndef HVD_FT_TESTS_RING_SIM_GATHER_H
#define HVD_FT_TESTS_RING_SIM_GATHER_H

#include <optional>
#include <vector>

#include "protocol/gather.h"
#include "ring_sim_arena.h"
#include "ring_sim_case.h"
#include "ring_sim_wire.h"

namespace ring_sim {

class Gatherer {
 public:
  Gatherer(uint64_t number, uint64_t members, Wires& wires, Random& random)
      : number_(number), members_(members), wires_(wires), random_(random), sender_(members) {}

  // A new process.
  void start() {
    sender_ = hvdft::GatherSender(members_);
    sending_ = {};
  }
  // Its edges are made anew: what it is at it leaves half done.
  void pause() {
    sender_.pause();
    sending_ = {};
  }
  uint64_t generation() const { return sender_.generation(); }

  std::optional<Next> next(const Arena& arena, const Arena::Plans& plans, uint64_t entered) {
    if (sender_.generation() != entered) {
      for (uint64_t e = 0; e < sender_.edges(); ++e) {
        if (wire(e).told.generation != entered) return {};
      }
      return Next{Action::kLearn, arena.log.gathered.at()};
    }
    if (sending_.done > 0) return Next{sending_.next(), sending_.at};
    while (!sender_.begun() && sender_.op() < arena.begun) sender_.begin(plans[sender_.op()]);
    uint64_t inputs = sender_.begun() ? arena.inputs[sender_.op()] : 0;
    hvdft::GatherMessage next{};
    if (!sender_.next(arena.log.received.at(), inputs, &next)) return {};
    sending_.at = next.at;
    sending_.bytes = next.bytes;
    return Next{Action::kRead, next.at};
  }

  // `by_receivers`: it goes on where they are, and not where it is by its own record.
  void learn(Arena& arena, uint64_t entered, bool by_receivers) {
    std::vector<hvdft::EdgePosition> records(sender_.edges(), arena.log.gathered.at());
    for (uint64_t e = 0; by_receivers && e < records.size(); ++e) records[e] = wire(e).told.record;
    sender_.resume(entered, records);
    arena.log.gathered.made_in(entered);
    sending_ = {};
  }

  void read(const Arena& arena, uint64_t entered) { sending_.read(source(arena), entered); }
  void send(const Arena& arena) {
    sending_.send(source(arena), random_.below(2) == 0, wire(sending_.at.position));
  }
  void note_sent(Arena& arena) {
    arena.log.gathered.publish(sender_.sent());
    sending_ = {};
  }

 private:
  Wire& wire(uint64_t edge) { return wires_.from(Wires::of_round(edge), number_); }
  const char* source(const Arena& arena) const {
    return arena.slots[sending_.at.op].data() + sending_.bytes.from;
  }

  const uint64_t number_, members_;
  Wires& wires_;
  Random& random_;
  hvdft::GatherSender sender_;
  Sending sending_;
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_GATHER_H
