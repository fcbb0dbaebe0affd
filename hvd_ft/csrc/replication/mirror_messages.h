// The mirror's part for message logs (message_file.h). It brings messages to the node of their
// dest, the progress of receives to the node of the source, and both ends' published snapshot marks
// to all copies, so that each is truncated. The nodes on the way, which relay them, have copies
// too.
#ifndef HVD_FT_MIRROR_MESSAGES_H
#define HVD_FT_MIRROR_MESSAGES_H

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arena/message_file.h"
#include "replication/mirror_frames.h"
#include "replication/mirror_news.h"

namespace hvdft {

class MessageMirrorSender {
 public:
  // The sending end of an edge: `mine` says of which ranks' messages it tells, and `beyond` which
  // ranks are on its other side.
  MessageMirrorSender(const Node& node, const MirrorNews& news, std::function<bool(int)> mine,
                      std::function<bool(int)> beyond)
      : node_(node), news_(news), mine_(std::move(mine)), beyond_(std::move(beyond)) {}

  // Appends the news; messages only a piece at a time, so that other frames do not wait for them.
  void collect(std::string* out);
  // Whether messages of `rank` have not been sent over this edge yet.
  bool owes(int rank);

 private:
  struct Pair {
    std::unique_ptr<PairFile> file;
    uint64_t number = 0, from = 0;  // the next message, and how much of it has been sent
    uint64_t count = 0;             // of receives
    std::vector<LoopMarks> marks;   // as sent
    uint64_t changes[2] = {0, 0};   // of the sender's marks, and the receiver's, when last looked
  };
  template <typename Act>
  void for_each_peer(int rank, bool sends, Act act);
  Pair& pair(int source, int dest);
  void collect_marks(int source, int dest, bool sender, std::string* out);
  void collect_piece(int source, int dest, std::string* out);

  const Node& node_;
  const MirrorNews& news_;
  const std::function<bool(int)> mine_, beyond_;
  std::map<std::pair<int, int>, Pair> pairs_;
};

// The two ranks of a frame for message logs.
std::pair<int, int> ends_of(const FrameHead& frame, const char* payload);

class MessageMirrorReceiver {
 public:
  MessageMirrorReceiver(const Node& node, MirrorNews& news) : node_(node), news_(news) {}

  // Whether applying a frame stays inside of the message log and of the frame; `bytes` have room
  // for the dest, which is a rank.
  bool is_possible(FrameKind kind, const char* payload, uint64_t bytes) const;
  int apply_piece(int source, const char* payload, uint64_t bytes);
  int apply_mark(int source, const char* payload);
  int apply_received(int source, const char* payload);

 private:
  struct Pair {
    std::unique_ptr<PairFile> file;
    uint64_t offset = 0;  // offset for the data of the message under way
  };
  Pair* pair(int source, int dest, bool sender);

  const Node& node_;
  MirrorNews& news_;
  std::map<std::pair<int, int>, Pair> pairs_;
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_MESSAGES_H
