// All nodes of a job in one process, joined by the mirror. What arrives at rank 0's node is
// counted.
#ifndef HVD_FT_TESTS_JOINED_NODES_H
#define HVD_FT_TESTS_JOINED_NODES_H

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "fresh_directory.h"
#include "replication/mirror.h"

namespace hvdft {

class JoinedNodes {
 public:
  // `below`: so many nodes are joined to one, at most.
  JoinedNodes(int nodes, int of_node, int below = kMaxRanks) : tree_(nodes, below) {
    for (int n = 0; n <= nodes; ++n) firsts_.push_back(n * of_node);
    for (int n = 0; n < nodes; ++n) {
      places_.push_back(std::make_unique<Place>(nodes, of_node, n));
      begin(n);
    }
  }

  int nodes() const { return tree_.nodes(); }
  const MirrorTree& tree() const { return tree_; }
  LogStore& log(int number) { return *places_[static_cast<size_t>(number)]->store; }
  Node& node(int number) { return *places_[static_cast<size_t>(number)]->node; }
  Node& node_of(int rank) { return node(rank / static_cast<int>(node(0).file().locals)); }

  // The agents' next generation: what they had in mind is gone, and they say hello.
  void renew() {
    ends_.clear();
    for (int n = 0; n < nodes(); ++n) {
      node(n).header().generation.fetch_add(1);
      begin(n);
    }
    std::vector<EventsHeard> all;
    for (int n = 0; n < nodes(); ++n) {
      all.push_back({static_cast<uint64_t>(firsts_[static_cast<size_t>(n)]),
                     node(0).rank(firsts_[static_cast<size_t>(n)]).events_heard.load()});
    }
    for (int n = 1; n < nodes(); ++n) {
      int parent = tree_.parent(n);
      greet(parent, n,
            parent == 0 ? all : ends_.at({parent, tree_.parent(parent)})->receiver.heard());
      greet(n, parent, {});
      for (auto edge : {std::pair(n, parent), std::pair(parent, n)}) {
        End& end = *ends_.at(edge);
        end.sender.resume(*end.receiver.hello());
      }
    }
  }

  // What is new goes to where it is sent, until nothing is.
  void carry() {
    while (carry_once()) {
    }
  }

  bool carry_once() {
    now_ += 1000000000;
    bool any = false;
    for (int n = nodes() - 1; n > 0; --n) any |= pass(n, tree_.parent(n));
    for (int n = 1; n < nodes(); ++n) any |= pass(tree_.parent(n), n);
    for (auto& [edge, end] : ends_) end->receiver.settle();
    return any;
  }

  // What is new goes over one edge; or only the first bytes of it, before the agents die.
  bool pass(int from, int to, size_t most = SIZE_MAX) {
    std::string stream = collected(*ends_.at({from, to}));
    stream.resize(std::min(stream.size(), most));
    if (to == 0) {
      arrived.streams += stream.empty() ? 0 : 1;
      arrived.bytes += stream.size();
      each_frame(stream, [&](FrameKind kind) { ++arrived.of_kind[kind]; });
    }
    if (from == 0) each_frame(stream, [&](FrameKind kind) { ++told[kind]; });
    ends_.at({to, from})->receiver.feed(now_, stream.data(), stream.size());
    return !stream.empty();
  }

  // What is new on rank 0's node, before and after `act`, arrives in one message.
  template <typename Act>
  void carry_at_once(Act act) {
    std::map<int, std::string> streams;
    for (int child : tree_.children(0)) streams[child] = collected(*ends_.at({0, child}));
    act();
    for (auto& [child, stream] : streams) {
      stream += collected(*ends_.at({0, child}));
      ends_.at({child, 0})->receiver.feed(now_, stream.data(), stream.size());
    }
    carry();
  }

  // Whether a node takes nothing more from below, as too much waits to go up.
  bool congested(int number) const {
    return places_[static_cast<size_t>(number)]->news->congested();
  }
  // What a node would send upwards behind what is still to be sent.
  void collect_behind(int number, std::string* unsent) {
    ends_.at({number, tree_.parent(number)})->sender.collect(now_, unsent);
  }

  // What a node says last over an edge, when this has come to it from another one.
  std::string last_words(int from, int to, int coming) {
    std::string stream = collected(*ends_.at({coming, from})), last;
    ends_.at({from, coming})->receiver.feed(now_, stream.data(), stream.size());
    ends_.at({from, to})->sender.bye(&last);
    return last;
  }

  template <typename Act>
  static void each_frame(const std::string& stream, Act act) {
    for (size_t at = 0; at < stream.size();) {
      auto head = get<FrameHead>(stream.data() + at);
      act(head.kind);
      at += sizeof head + head.bytes;
    }
  }

  // What has arrived at rank 0's node, in so many streams that were not empty.
  struct Arrived {
    uint64_t streams = 0, bytes = 0;
    std::map<FrameKind, uint64_t> of_kind;  // frames
  };
  Arrived arrived;
  // The frames that rank 0's node has sent.
  std::map<FrameKind, uint64_t> told;

 private:
  struct Place {
    Place(int nodes, int of_node, int number) : dir(fresh_directory()) {
      CHECK(Node::create(dir, "nodes", nodes * of_node, nodes, number, number * of_node, of_node,
                         uint64_t{1} << 28) == HVDFT_OK);
      node = Node::open(dir, "nodes", Node::kAgent);
    }
    ~Place() { remove_directory(dir); }
    std::string dir;
    std::unique_ptr<Node> node;
    std::unique_ptr<MirrorNews> news;
    std::unique_ptr<LogStore> store;
  };

  // One node's end of an edge.
  struct End {
    End(Place& place, const MirrorEdge& edge)
        : place(place),
          sender(*place.node, *place.news, edge),
          receiver(*place.node, *place.news, place.node->is_local(0) ? nullptr : &*place.store,
                   edge) {}
    Place& place;
    MirrorSender sender;
    MirrorReceiver receiver;
  };

  void begin(int number) {
    Place& place = *places_[static_cast<size_t>(number)];
    place.news = std::make_unique<MirrorNews>(*place.node);
    place.store = std::make_unique<LogStore>(*place.node);
    for (const MirrorEdge& edge : mirror_edges(tree_, number, firsts_)) {
      ends_[{number, edge.node}] = std::make_unique<End>(place, edge);
    }
  }

  void greet(int from, int to, const std::vector<EventsHeard>& heard) {
    std::string hello;
    ends_.at({from, to})->receiver.say_hello(&hello, heard);
    ends_.at({to, from})->receiver.feed(now_, hello.data(), hello.size());
  }

  std::string collected(End& end) {
    std::string stream;
    end.place.news->look();
    end.sender.collect(now_, &stream);
    return stream;
  }

  const MirrorTree tree_;
  std::vector<int> firsts_;
  std::vector<std::unique_ptr<Place>> places_;
  std::map<std::pair<int, int>, std::unique_ptr<End>> ends_;  // by a node and the other end
  uint64_t now_ = 1000000000;
};

}  // namespace hvdft

#endif  // HVD_FT_TESTS_JOINED_NODES_H
