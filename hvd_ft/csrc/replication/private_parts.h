// The data in a rank's snapshots that may be nowhere else is kept on another node too, its *buddy*.
// Rank 0's node is the buddy of all others, as the mirror joins it to them, and the second node is
// its buddy. A rank's *part* is its own arrays and values, without its stripe.
//
// The mirror sends the part of a snapshot before the news that the snapshot is published, so the
// log is not truncated there before the buddy has the part. (Rank 0's node waits until the second
// node reports that it holds the part: Loop::held.)
#ifndef HVD_FT_PRIVATE_PARTS_H
#define HVD_FT_PRIVATE_PARTS_H

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "arena/arena.h"

namespace hvdft {

// In front of a piece of a part.
struct PartHead {
  uint64_t loop, word, position, bytes, offset;
};

class PartSender {
 public:
  explicit PartSender(const Node& node) : node_(node) {}

  // Goes on with the part of the snapshot that a rank of this node has published in a loop: appends
  // the next piece of it to `out`. Returns Loop::published of the latest whose part is sent.
  uint64_t collect(int rank, int loop, bool may_send, std::string* out);

 private:
  struct Sent {
    uint64_t complete = 0;              // Loop::published, …
    uint64_t under_way = 0, bytes = 0;  // … and what is being sent
  };
  bool send_piece(int rank, int loop, Sent* sent, std::string* out);
  const RankFile* file_of(int rank);

  const Node& node_;
  std::map<std::pair<int, int>, Sent> sent_;
  std::map<int, std::unique_ptr<RankFile>> files_;
};

class PartReceiver {
 public:
  explicit PartReceiver(const Node& node) : node_(node) {}
  // A piece of a rank's part: a PartHead, then `bytes`. If there is no room the part is left out,
  // which is said once: training goes on, but the loss of the rank's host would end it.
  void apply(int rank, const char* payload, uint64_t bytes);
  // Loop::published of a rank elsewhere, with the slot here that has its part; or an empty one.
  uint64_t published_here(int rank, uint64_t loop, uint64_t published) const;

 private:
  const RankFile* file_of(int rank);
  void say_left_out(int rank);

  const Node& node_;
  bool said_ = false;
  std::map<int, std::unique_ptr<RankFile>> files_;
  // Into which slot a part is being written: never into that of the snapshot that was told of last,
  // whatever the rank does with its own slots meanwhile.
  std::map<std::pair<int, uint64_t>, int> slots_;
};

}  // namespace hvdft

#endif  // HVD_FT_PRIVATE_PARTS_H
