// State shared by all of a node's ends of the mirror's edges: which ranks have something new, and
// the frames that pass through this node unchanged.
//
// So each end checks only what has changed, and not all ranks of the job.
//
// Ranks of this node are checked once for all ends, because their fields change without notice.
// News of a rank elsewhere has come over one of these ends. Urgent news is kept separately, so that
// counters that wait for their time cost nothing.
#ifndef HVD_FT_MIRROR_NEWS_H
#define HVD_FT_MIRROR_NEWS_H

#include <deque>
#include <string>
#include <vector>

#include "arena/arena.h"
#include "replication/changes.h"
#include "replication/mirror_frames.h"
#include "replication/rank_facts.h"

namespace hvdft {

class MirrorNews {
 public:
  // Everything is new.
  explicit MirrorNews(const Node& node);

  // Looks at the ranks of this node. To be called before ends of edges collect.
  void look();
  // The state of a rank elsewhere has come.
  void note(int rank, bool is_urgent) {
    all_.note(rank);
    if (is_urgent) urgent_.note(rank);
  }
  // A message log of this rank with another one has become known.
  void note_peer(int rank);

  // Bytes that pass up: while more wait to be sent no more are taken, and so on down.
  static constexpr size_t kMostWaiting = 1 << 20;
  // Where an end finds what has to pass over its edge; it takes it out.
  std::string& passing(bool down) { return (down ? down_ : up_).emplace_back(); }
  // A frame has come over another edge, and goes on to rank 0's node, …
  void pass_up(const FrameHead& frame, const char* payload) { pass(&up_, frame, payload); }
  // … or to all nodes below.
  void pass_down(const FrameHead& frame, const char* payload) { pass(&down_, frame, payload); }
  bool any_below() const { return !down_.empty(); }
  // Whether what passes up has to wait: more would only take memory here.
  bool congested() const { return !up_.empty() && up_.front().size() > kMostWaiting; }

  const Changes& changes() const { return all_; }
  const Changes& urgent_changes() const { return urgent_; }
  // The ranks that have message logs.
  const std::vector<int>& with_messages() const { return with_messages_; }

 private:
  bool has_peers(int rank) const;
  static void pass(std::deque<std::string>* to, const FrameHead& frame, const char* payload) {
    for (std::string& waiting : *to) put_frame(&waiting, frame, payload);
  }

  const Node& node_;
  Changes all_, urgent_;
  std::vector<RankFacts> seen_;  // of the ranks of this node
  std::vector<int> with_messages_;
  std::vector<bool> has_messages_;
  std::deque<std::string> up_, down_;  // what passes, of each end
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_NEWS_H
