// What all of a node's ends of the mirror's edges have in common: which ranks have something new.
// So each end looks at what has changed, and not at all ranks of the job.
//
// A rank of this node is looked at, once for all ends: its fields change without a word. What is
// new of a rank elsewhere has come over one of these ends. What is urgent is known apart, so that
// counters that wait for their time cost nothing.
#ifndef HVD_FT_MIRROR_NEWS_H
#define HVD_FT_MIRROR_NEWS_H

#include <vector>

#include "arena/arena.h"
#include "replication/changes.h"
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

  const Changes& changes() const { return all_; }
  const Changes& urgent_changes() const { return urgent_; }
  // The ranks that have message logs.
  const std::vector<int>& with_messages() const { return with_messages_; }

 private:
  bool has_peers(int rank) const;

  const Node& node_;
  Changes all_, urgent_;
  std::vector<RankFacts> seen_;  // of the ranks of this node
  std::vector<int> with_messages_;
  std::vector<bool> has_messages_;
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_NEWS_H
