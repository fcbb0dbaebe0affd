#include "mpi/leader_part.h"

#include <algorithm>

namespace hvdft {

namespace {

constexpr uint64_t kUnnotifiedNs = 1000000;

}  // namespace

bool LogWriterPart::step(uint64_t) {
  uint32_t now = doorbell_.load(std::memory_order_seq_cst);
  if (now == seen_) return false;
  seen_ = now;
  while (log_writer_.step()) {
  }
  return true;
}

MirrorPart::MirrorPart(Node& node, LogStore* store, Endpoint& endpoint,
                       const std::vector<int>& firsts)
    : header_(node.header()), store_(store), news_(node) {
  int me = endpoint.member();
  for (int peer = 0; peer < endpoint.members(); ++peer) {
    if (peer == me || (me != 0 && peer != 0)) continue;
    auto at = static_cast<size_t>(peer);
    links_.push_back(std::make_unique<MirrorLink>(node, news_, store, endpoint, peer, firsts[at],
                                                  firsts[at + 1]));
  }
}

// Looking for news means looking at every rank of this node: not every change sends a notification.
bool MirrorPart::is_news(uint64_t now_ns) {
  uint32_t now = header_.mirror_news.load(std::memory_order_seq_cst);
  if (!moved_ && now == ticket_ && now_ns - looked_ns_ < kUnnotifiedNs) return false;
  ticket_ = now;
  looked_ns_ = now_ns;
  return true;
}

// When the job is over the nodes say goodbye to rank 0's node, and it to them: so all have received
// everything.
bool MirrorPart::step(uint64_t now_ns) {
  bool news = is_news(now_ns);
  if (news) news_.look();
  moved_ = false;
  for (auto& link : links_) moved_ |= link->step(now_ns, news);
  auto all = [&](bool (MirrorLink::*is)() const) {
    return std::all_of(links_.begin(), links_.end(), [&](auto& link) { return (*link.*is)(); });
  };
  if (leaving_ && (store_ || all(&MirrorLink::peer_said_bye))) {
    news_.look();
    for (auto& link : links_) link->say_bye(now_ns);
    all_said_ = all(&MirrorLink::closed);
  }
  return moved_;
}

}  // namespace hvdft
