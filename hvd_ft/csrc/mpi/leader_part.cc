#include "mpi/leader_part.h"

#include <algorithm>
#include <utility>

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
                       const std::vector<int>& firsts, const std::vector<MirrorEdge>& edges,
                       std::function<uint64_t()> clock)
    : header_(node.header()), store_(store), news_(node), clock_(std::move(clock)) {
  for (const MirrorEdge& edge : edges) {
    links_.push_back(std::make_unique<MirrorLink>(node, news_, store, endpoint, edge, clock_));
  }
  for (size_t number = 0; store == nullptr && number + 1 < firsts.size(); ++number) {
    heard_.push_back(
        {static_cast<uint64_t>(firsts[number]), node.rank(firsts[number]).events_heard.load()});
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

bool MirrorPart::step(uint64_t now_ns) {
  if (!greeted_) greeted_ = greet();
  bool arrived = false;
  for (auto& link : links_) arrived |= link->receive();
  moved_ |= arrived;
  bool news = is_news(now_ns);
  if (news) news_.look();
  moved_ = arrived;
  for (auto& link : links_) moved_ |= link->send(now_ns, news);
  if (store_ != nullptr) links_[0]->settle();
  if (leaving_) part(now_ns);
  return moved_;
}

// A node greets those below when it knows what rank 0's node has heard of them. Returns whether it
// has.
bool MirrorPart::greet() {
  const std::vector<EventsHeard>* heard = &heard_;
  for (auto& link : links_) {
    if (link->down()) {
      link->say_hello(*heard);
    } else {
      link->say_hello({});
      if (!link->receiver().hello()) return false;
      heard = &link->receiver().heard();
    }
  }
  return true;
}

// When the job is over a node says goodbye upwards when those below have, and downwards when the
// one above has: so all have received everything.
void MirrorPart::part(uint64_t now_ns) {
  auto said = [](auto& link) { return link->peer_said_bye(); };
  auto below = links_.begin() + (store_ != nullptr ? 1 : 0);
  news_.look();
  if (store_ != nullptr && std::all_of(below, links_.end(), said)) links_[0]->say_bye(now_ns);
  bool last = store_ != nullptr ? said(links_[0]) : std::all_of(below, links_.end(), said);
  for (auto link = below; last && link != links_.end(); ++link) (*link)->say_bye(now_ns);
  all_said_ = std::all_of(links_.begin(), links_.end(), [](auto& link) { return link->closed(); });
}

}  // namespace hvdft
