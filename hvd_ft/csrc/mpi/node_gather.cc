#include "mpi/node_gather.h"

#include <set>

namespace hvdft {

NodeGatherer::NodeGatherer(NodeMember& member, Endpoint& endpoint)
    : member_(member), endpoint_(endpoint), sender_(member.members), greetings_(sender_.edges()) {}

bool NodeGatherer::connect() {
  for (uint64_t e = greeted_.size(); e < edges(); ++e) {
    greeted_.push_back(endpoint_.begin_receive(&greetings_[e], sizeof(EdgeGreeting),
                                               member_.after(GatherPlan::distance(e))));
  }
  bool all = true;
  for (Transfer& greeted : greeted_) all &= endpoint_.complete(&greeted);
  if (!all) return false;
  uint64_t generation = member_.generation();
  std::vector<EdgePosition> records;
  records.reserve(greetings_.size());
  for (const EdgeGreeting& greeting : greetings_) records.push_back(greeting.record(generation));
  sender_.resume(generation, records);
  member_.log().gathered.made_in(generation);
  return true;
}

bool NodeGatherer::step() {
  bool moved = false;
  while (!on_their_way_.full() && send_next()) moved = true;
  while (!on_their_way_.empty() && endpoint_.complete(&on_their_way_.oldest().transfer)) {
    EdgePosition sent = on_their_way_.oldest().what;
    member_.log().gathered.publish({sent.op, sent.position + 1});
    ++on_their_way_.done;
    moved = true;
  }
  return moved;
}

bool NodeGatherer::send_next() {
  if (!member_.begin(sender_, &record_)) return false;
  GatherMessage next;
  uint64_t inputs = ready_.count(member_, *record_, sender_.plan());
  if (!sender_.next(member_.log().received.at(), inputs, &next)) return false;
  on_their_way_.add({endpoint_.begin_send(member_.slots(*record_) + next.bytes.from,
                                          next.bytes.bytes(), member_.after(next.distance)),
                     next.at});
  sender_.sent();
  return true;
}

std::vector<int> gather_peers(int member, int members) {
  std::set<int> peers;
  uint64_t rounds = GatherPlan(static_cast<uint64_t>(members), 1).rounds();
  for (uint64_t round = 0; round < rounds; ++round) {
    int distance = static_cast<int>(GatherPlan::distance(round));
    peers.insert((member + distance) % members);
    peers.insert((member + members - distance) % members);
  }
  return {peers.begin(), peers.end()};
}

}  // namespace hvdft
