// The file of a pair of ranks: its message log, which outlives both. messages-<source>-<dest>.log
// has a header page, the messages' heads, then their data, each in address space that is never used
// again: a dropped message leaves a hole, which takes no memory. On the node of the source its
// worker adds messages and drops them; on other nodes the mirror does.
#ifndef HVD_FT_PAIR_FILE_H
#define HVD_FT_PAIR_FILE_H

#include <algorithm>
#include <memory>

#include "arena/arena.h"
#include "protocol/message_log.h"

namespace hvdft {

constexpr uint64_t kMostMessages = uint64_t{1} << 30;  // of a pair
constexpr uint64_t kFormBytes = 84;

struct MessageHead {
  Shared<uint64_t> taken;  // written by the receiver; see message_log.h
  uint64_t number;         // + 1; 0 in a hole
  uint64_t offset, bytes;  // of the data
  int32_t tag;
  uint32_t checksum;       // of the data
  uint32_t head_checksum;  // of all of this but `taken`
  char form[kFormBytes];   // type and shape, readable
};
static_assert(sizeof(MessageHead) == 128, "heads do not straddle pages");

// What an end publishes. `at` is for this end only: its position at a loop's snapshots, by their
// slots.
struct alignas(kPage) PairEnd {
  struct OfLoop {
    Shared<uint64_t> begin, past;
    LogPosition at[2];
  };
  Shared<uint64_t> count;  // messages sent, or receives done
  // How often marks have changed; and the bytes of `loops` that have memory, beyond this page.
  Shared<uint64_t> changes, loops_backed;
  OfLoop loops[kMaxLoops];  // only the first loops_there() have memory

  int loops_there() const {
    uint64_t end = kPage + loops_backed.load(std::memory_order_acquire);
    uint64_t there = (end - offsetof(PairEnd, loops)) / sizeof(OfLoop);
    return there < kMaxLoops ? static_cast<int>(there) : kMaxLoops;
  }
  LoopMarks marks(int loop) const {
    if (loop >= loops_there()) return {};
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

  // Written by the process that adds messages on this node. Bytes count from the beginning of the
  // heads, or of the data.
  alignas(64) Shared<uint64_t> decided_before;  // messages before it are dropped or kept
  Shared<uint64_t> data_end;
  Shared<uint64_t> heads_backed, data_backed;  // heads and data have memory up to here, …
  Shared<uint64_t> heads_hole, data_hole;      // … except holes, which end here

  PairEnd sender, receiver;
};

class PairFile {
 public:
  ~PairFile();
  // `make`: creates the file if it does not exist. nullptr, with an error set, on failure.
  static std::unique_ptr<PairFile> open(const Node& node, int source, int dest, bool make);

  PairHeader& header() const { return *reinterpret_cast<PairHeader*>(control_.data()); }
  MessageHead& message(uint64_t number) const {
    return reinterpret_cast<MessageHead*>(heads_.data())[number];
  }
  SeenMessage see(uint64_t number) const;
  // Why a message is not there that an end asks for: HVDFT_EINVAL, and an error, if it is damaged.
  int why_not_there(uint64_t number) const;
  // Gives an end memory for the marks of this loop and of those before it.
  int grow_loops(PairEnd& end, int loop) const;
  uint64_t sent() const { return header().sender.count.load(std::memory_order_acquire); }

  // The next message: get room for its data; write the data, a stretch at a time; publish it.
  int room(uint64_t bytes, uint64_t* offset) const;
  int write(uint64_t offset, const char* data, uint64_t bytes) const;
  void publish(const MessageHead& head) const;  // form, tag, checksum, offset of its data
  // HVDFT_EINVAL, and an error, if what was read is not what was sent.
  int check_data(uint64_t number, const char* data) const;
  int read(uint64_t offset, char* data, uint64_t bytes) const;
  uint64_t memory_bytes() const;

  // Drops the messages that neither end will ask for again.
  void settle() const;

 private:
  // Never so much that a file's length would not be counted in 63 bits.
  uint64_t data_end() const { return std::min(header().data_end.load(), uint64_t{1} << 62); }
  int grow(Shared<uint64_t>& backed, uint64_t base, uint64_t end) const;
  void free_to(Shared<uint64_t>& hole, uint64_t base, uint64_t end) const;

  int damaged(uint64_t number, const char* what) const;

  const Node* node_ = nullptr;
  int fd_ = -1;
  std::string path_;
  Mapping control_, heads_;
};

}  // namespace hvdft

#endif  // HVD_FT_PAIR_FILE_H
