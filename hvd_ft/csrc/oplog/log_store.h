// A node's copy of the op log: its records and results in the node's heap. One thread of the node
// owns it: the log writer's on rank 0's node, the mirror's on others. Ids and numbers of segments
// are the same on all nodes, offsets in the heap are not.
#ifndef HVD_FT_LOG_STORE_H
#define HVD_FT_LOG_STORE_H

#include <utility>
#include <vector>

#include "arena/arena.h"
#include "protocol/heap.h"

namespace hvdft {

class LogStore {
 public:
  // Continues with the arena's contents: the agent that owned the log before may have been killed
  // anywhere.
  explicit LogStore(Node& node);

  uint64_t length() const { return length_; }
  uint64_t gone() const { return gone_; }  // op id: those before have left the index
  // Appends a record; publish() makes it visible. `tail`: the bytes that follow an OpHead.
  int append(const OpHead& op, const char* tail);
  void publish();

  // Ops leave the log's index in the order of their ids: they are not needed any more, …
  void drop(uint64_t id);
  int keep(uint64_t id);      // … or they are kept as long as the job lives.
  void decided(uint64_t id);  // all before `id` have left
  void publish_room();

 private:
  void find_gone();
  void find_notes();
  int enter_note(uint32_t kind, uint64_t id);
  std::vector<std::pair<uint64_t, uint64_t>> ranges_of(const Record& record, uint64_t offset) const;
  int give(uint64_t bytes, const char* what, uint64_t* offset);
  uint64_t heap_bytes(uint64_t offset) const;

  Node& node_;
  Heap heap_;
  uint64_t length_ = 0;
  uint64_t gone_ = 0;
  uint64_t notes_[kNoteKinds] = {};
  uint64_t segments_ = 0;    // of all ops so far, …
  uint64_t inputs_ = 0;      // … and bytes of their inputs
  uint64_t kept_bytes_ = 0;  // bytes of the heap that nothing will free
};

}  // namespace hvdft

#endif  // HVD_FT_LOG_STORE_H
