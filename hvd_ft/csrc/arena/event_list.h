// Events, which any process of a node may write. A node has two lists of them:
//
//   events   on every node: those of its own ranks, and those of any rank that are for all nodes
//   report   on rank 0's node, where the report is written: those of all ranks
//
// Each keeps its latest events. So on a node, the events that its processes may still look up are
// overwritten only by its own ranks' events, whatever the number of the job's ranks.
#ifndef HVD_FT_EVENT_LIST_H
#define HVD_FT_EVENT_LIST_H

#include "arena/layout.h"

namespace hvdft {

// Whether processes of other nodes act on it: peer hooks and checkpoint writers. A rank that begins
// its first incarnation has not been away.
bool is_for_all(const hvdft_event& event);

class EventList {
 public:
  EventList(Event* slots, Shared<uint64_t>& count, Shared<uint32_t>& doorbell)
      : slots_(slots), count_(count), doorbell_(doorbell) {}

  void push(const hvdft_event& event) const;
  // Copies events [from, from + capacity); returns how many there were. One that is lost has the
  // type HVDFT_EV_LOST.
  int read(uint64_t from, hvdft_event* out, int capacity) const;

 private:
  void await(uint64_t number) const;

  Event* slots_;
  Shared<uint64_t>& count_;
  Shared<uint32_t>& doorbell_;
};

}  // namespace hvdft

#endif  // HVD_FT_EVENT_LIST_H
