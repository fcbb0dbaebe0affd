// A worker's ends of its message logs with other ranks, and their marks in its snapshots.
#ifndef HVD_FT_MESSAGES_H
#define HVD_FT_MESSAGES_H

#include <memory>
#include <mutex>
#include <vector>

#include "hvd_ft_logs.h"
#include "arena/message_file.h"
#include "worker/rank_state.h"

namespace hvdft {

class Messages {
 public:
  Messages(const Node& node, int rank);

  // 1: sent; 0: an earlier incarnation has sent it. The data's offset is stored in the head.
  int send(int dest, MessageHead& head, const char* data);
  // The next receive's message, or HVDFT_AGAIN.
  int find(int source, int32_t tag, hvdft_message* out);
  bool wait(int source, uint32_t ticket, int timeout_ms);
  uint32_t ticket(int source);
  int take(int source, uint64_t number, char* to);
  // For the rank's state: whether it is blocked in a receive from this rank. nullptr, and an error:
  // their messages cannot be read.
  RankState::Wait* wait_for(int source) {
    End* end = this->end(kIn, source);
    return end != nullptr ? &end->wait : nullptr;
  }
  uint64_t bytes_since_snapshot() const { return bytes_.load(); }

  // A training loop begins: the first time, or again at the same place. A snapshot of it is begun
  // in a slot, is published, or is restored.
  int loop_begins(int loop);
  void snapshot_begins(int loop, int slot);
  void snapshot_published(int loop, int slot);
  void go_back(int loop, int slot);

 private:
  // This worker's half of a log.
  struct End {
    std::unique_ptr<PairFile> file;
    PairEnd* mine = nullptr;
    bool sends = false;
    LogPosition position;
    bool fresh = false;  // see find_message()
    RankState::Wait wait;
  };
  enum Direction { kOut, kIn };

  End* end(Direction direction, int peer);
  std::unique_ptr<End> attach(Direction direction, int peer) const;
  int attach_known();
  int repeat(const End& end, const MessageHead& head) const;
  std::vector<End*> ends();

  const Node& node_;
  const int rank_;
  RankBlock& block_;
  std::atomic<uint64_t> bytes_{0};
  std::mutex mutex_;  // guards the two fields below, between this worker's threads
  std::vector<std::unique_ptr<End>> ends_[2];
};

}  // namespace hvdft

#endif  // HVD_FT_MESSAGES_H
