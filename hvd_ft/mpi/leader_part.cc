#include "leader_part.h"

#include <algorithm>

namespace hvdft {

MirrorPart::MirrorPart(Node& node, LogStore* store, Endpoint& endpoint,
                       const std::vector<int>& firsts)
    : store_(store) {
  int me = endpoint.member();
  for (int peer = 0; peer < endpoint.members(); ++peer) {
    if (peer == me || (me != 0 && peer != 0)) continue;
    auto at = static_cast<size_t>(peer);
    links_.push_back(
        std::make_unique<MirrorLink>(node, store, endpoint, peer, firsts[at], firsts[at + 1]));
  }
}

// When the job is over the nodes take leave of rank 0's, and it of them: so all have heard all.
bool MirrorPart::step(uint64_t now_ns) {
  bool moved = false;
  for (auto& link : links_) moved |= link->step(now_ns);
  auto all = [&](bool (MirrorLink::*is)() const) {
    return std::all_of(links_.begin(), links_.end(), [&](auto& link) { return (*link.*is)(); });
  };
  if (leaving_ && (store_ || all(&MirrorLink::peer_said_bye))) {
    for (auto& link : links_) link->say_bye(now_ns);
    all_said_ = all(&MirrorLink::closed);
  }
  return moved;
}

}  // namespace hvdft
