// The file of a pair of ranks: its message log, which outlives both. messages-<source>-<dest>.log
// has a header page, the messages' heads, then their data, each in a room of its own that is not
// used again: what is dropped leaves a hole, which takes no memory. On the node of the source its
// worker adds messages and drops them; on other nodes the mirror does.
#ifndef HVD_FT_PAIR_FILE_H
#define HVD_FT_PAIR_FILE_H

#include <memory>

#include "arena/arena.h"
#include "protocol/message_log.h"

namespace hvdft {

constexpr uint64_t kMostMessages = uint64_t{1} << 30;  // of a pair
constexpr uint64_t kFormBytes = 88;

struct MessageHead {
  Shared<uint64_t> taken;  // written by the receiver; see message_log.h
  uint64_t number;         // + 1; 0 in a hole
  uint64_t offset, bytes;  // of the data
  int32_t tag;
  uint32_t checksum;
  char form[kFormBytes];  // type and shape, readable
};
static_assert(sizeof(MessageHead) == 128, "heads do not straddle pages");

// What an end publishes. `at` is its own: its place at a loop's snapshots, by their slots.
struct PairEnd {
  struct OfLoop {
    Shared<uint64_t> begin, past;
    LogPosition at[2];
  };
  alignas(64) Shared<uint64_t> count;  // messages sent, or receives done
  OfLoop loops[kMaxLoops];

  LoopMarks marks(int loop) const {
    return {loops[loop].begin.load(std::memory_order_acquire),
            loops[loop].past.load(std::memory_order_acquire)};
  }
  Fate fate(uint64_t number) const {
    return fate_at(number, kMaxLoops, [this](int loop) { return marks(loop); });
  }
};

struct PairHeader {
  FileHeader file;                        // `rank` is the source, `size` the dest
  alignas(64) Shared<uint32_t> doorbell;  // of the receiver; notified when a message is there
  PairEnd sender, receiver;

  // Of who adds messages on this node. Bytes count from where heads, or data, begin.
  alignas(64) Shared<uint64_t> decided_before;  // messages before it are dropped or kept
  Shared<uint64_t> data_end;
  Shared<uint64_t> heads_backed, data_backed;  // up to here they have memory, …
  Shared<uint64_t> heads_hole, data_hole;      // … but for holes that end here
};

class PairFile {
 public:
  ~PairFile();
  // `make` it if it is not there. nullptr, with an error set, if it cannot be had.
  static std::unique_ptr<PairFile> open(const Node& node, int source, int dest, bool make);

  PairHeader& header() const { return *reinterpret_cast<PairHeader*>(control_.data()); }
  MessageHead& message(uint64_t number) const {
    return reinterpret_cast<MessageHead*>(heads_.data())[number];
  }
  SeenMessage see(uint64_t number) const;
  uint64_t sent() const { return header().sender.count.load(std::memory_order_acquire); }

  // The next message: room for its data; writing them, a stretch at a time; making it known.
  int room(uint64_t bytes, uint64_t* offset) const;
  int write(uint64_t offset, const char* data, uint64_t bytes) const;
  void publish(const MessageHead& head) const;  // its form, tag, checksum, and where its data are
  int read(uint64_t offset, char* data, uint64_t bytes) const;
  uint64_t memory_bytes() const;

  // Drops what nobody will ask for again.
  void settle() const;

 private:
  int grow(Shared<uint64_t>& backed, uint64_t base, uint64_t end) const;
  void free_to(Shared<uint64_t>& hole, uint64_t base, uint64_t end) const;

  const Node* node_ = nullptr;
  int fd_ = -1;
  Mapping control_, heads_;
};

}  // namespace hvdft

#endif  // HVD_FT_PAIR_FILE_H
