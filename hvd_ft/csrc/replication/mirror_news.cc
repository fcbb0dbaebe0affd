#include "replication/mirror_news.h"

#include <cstring>

namespace hvdft {

MirrorNews::MirrorNews(const Node& node)
    : node_(node),
      all_(node.size()),
      urgent_(node.size()),
      seen_(static_cast<size_t>(node.end_local() - node.first_local())),
      has_messages_(static_cast<size_t>(node.size())) {
  for (int r = 0; r < node.size(); ++r) {
    if (has_peers(r)) note_peer(r);
  }
}

void MirrorNews::look() {
  for (int r = node_.first_local(); r < node_.end_local(); ++r) {
    RankFacts& seen = seen_[static_cast<size_t>(r - node_.first_local())];
    RankFacts facts = facts_of(node_, r);
    if (std::memcmp(&facts, &seen, sizeof facts) != 0) note(r, urgent(seen, facts));
    seen = facts;
    if (has_peers(r)) note_peer(r);
  }
}

void MirrorNews::note_peer(int rank) {
  if (has_messages_[static_cast<size_t>(rank)]) return;
  has_messages_[static_cast<size_t>(rank)] = true;
  with_messages_.push_back(rank);
}

bool MirrorNews::has_peers(int rank) const {
  if (has_messages_[static_cast<size_t>(rank)]) return true;
  for (uint64_t word = 0; word < peer_words(node_.size()); ++word) {
    if (node_.sends_to(rank)[word].load() != 0 || node_.receives_from(rank)[word].load() != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace hvdft
