// What all of a node's ends of the mirror's edges have in common: which ranks have something new.
// So each end looks at what has changed, and not at all ranks of the job.
//
// A rank of this node is looked at, once for all ends: its fields change without a word. What is
// new of a rank elsewhere has come over one of these ends.
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
  void note(int rank) { changes_.note(rank); }
  // A message log of this rank with another one has become known.
  void note_peer(int rank);

  // As Changes::each_since().
  template <typename Act>
  uint64_t each_since(uint64_t since, Act act) const {
    return changes_.each_since(since, act);
  }
  // The ranks that have message logs.
  const std::vector<int>& with_messages() const { return with_messages_; }

 private:
  bool has_peers(int rank) const;

  const Node& node_;
  Changes changes_;
  std::vector<RankFacts> seen_;  // of the ranks of this node
  std::vector<int> with_messages_;
  std::vector<bool> has_messages_;
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_NEWS_H
