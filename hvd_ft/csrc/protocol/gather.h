// The sending side of gathered ops (gather_plan.h): what a member sends next, and to whom. A state
// machine like ring.h, whose receiving half is the other side.
//
// A member has one edge for each round, each to a different member. All edges form one stream,
// ordered by op and round: every receiver takes the messages of all its edges in one order, and one
// record counts them (pair_log.h). When the edges are remade, each receiver sends this record; the
// sender goes back to the lowest record, and skips messages that a receiver already has.
//
// There is no circular wait: the first message, in this order, that is still to be received can be
// sent. Everything that its sender needs for it comes earlier, so the sender has it; and all
// messages that precede it at its sender have been received.
//
// A driver's loop: see ring.h. Input, received data and sent data are all in the slots.
#ifndef HVD_FT_GATHER_H
#define HVD_FT_GATHER_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/ring.h"

namespace hvdft {

// The next message to send, from the slots.
struct GatherMessage {
  EdgePosition at;
  uint64_t distance;  // to the member so much further on
  ByteRange bytes;
};

class GatherSender final : public EdgeCursor {
 public:
  // Nothing is to be sent before resume().
  explicit GatherSender(uint64_t members)
      : EdgeCursor({}), records_(GatherPlan(members, 1).rounds()) {}

  // The number of edges; over edge e it sends to the member GatherPlan::distance(e) further on.
  uint64_t edges() const { return records_.size(); }

  // The edges have been made in this generation; `records` are those of the receivers.
  void resume(uint64_t generation, const std::vector<EdgePosition>& records) {
    generation_ = generation;
    connected_ = true;
    records_ = records;
    go_to(records.empty() ? EdgePosition{} : *std::min_element(records.begin(), records.end()));
  }

  // The edges are broken, or about to be made anew.
  void pause() { connected_ = false; }

  // False: there is nothing to send now. `received`: the record of the member's own receiving half;
  // `inputs`: 1 if its input is ready.
  bool next(EdgePosition received, uint64_t inputs, GatherMessage* out) const {
    if (!connected_ || !begun() || inputs == 0) return false;
    uint64_t round = at().position;
    GatherPlan gather = plan().gather();
    uint64_t needs = gather.needs(round);  // 0: only its input, whatever it has received
    if (needs > 0 && received < EdgePosition{op(), needs}) return false;
    *out = {at(), GatherPlan::distance(round), gather.sent(round)};
    return true;
  }

  // The message of next() is under way. Returns the sender's new record.
  EdgePosition sent() { return move_on(); }

 private:
  uint64_t next_position(uint64_t from) const override {
    if (!plan().gathered()) return plan().positions();
    while (from < plan().positions() && EdgePosition{op(), from} < records_[from]) ++from;
    return from;
  }

  std::vector<EdgePosition> records_;  // by edge
  bool connected_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_GATHER_H
