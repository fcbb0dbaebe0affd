// All nodes of a job in one process, joined by the mirror: a star around rank 0's node, which
// counts what arrives there.
#ifndef HVD_FT_TESTS_STAR_H
#define HVD_FT_TESTS_STAR_H

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "fresh_directory.h"
#include "replication/mirror.h"

namespace hvdft {

class Star {
 public:
  Star(int nodes, int of_node) {
    for (int n = 0; n < nodes; ++n) {
      places_.push_back(std::make_unique<Place>(nodes, of_node, n));
      if (n > 0) {
        Node& node = *places_[n]->node;
        places_[n]->store = std::make_unique<LogStore>(node);
        edges_.push_back(std::make_unique<End>(*places_[n], places_[n]->store.get(), 0, of_node));
        int first = node.first_local(), end = node.end_local();
        spokes_.push_back(std::make_unique<End>(*places_[0], nullptr, first, end));
      }
    }
  }

  Node& node(int number) { return *places_[static_cast<size_t>(number)]->node; }
  Node& node_of(int rank) { return node(rank / static_cast<int>(node(0).file().locals)); }

  // What is new goes to where it is sent, until nothing is.
  void carry() {
    while (carry_once()) {
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
      CHECK(Node::create(dir, "star", nodes * of_node, nodes, number, number * of_node, of_node,
                         uint64_t{1} << 28) == HVDFT_OK);
      node = Node::open(dir, "star", Node::kAgent);
      news = std::make_unique<MirrorNews>(*node);
    }
    ~Place() { CHECK(std::system(("rm -r " + dir).c_str()) == 0); }
    std::string dir;
    std::unique_ptr<Node> node;
    std::unique_ptr<MirrorNews> news;
    std::unique_ptr<LogStore> store;
  };

  // One node's end of an edge to the node with the ranks [first, end).
  struct End {
    End(Place& place, LogStore* store, int first, int end)
        : place(place),
          sender(*place.node, *place.news, first, end),
          receiver(*place.node, *place.news, store, first) {}
    Place& place;
    MirrorSender sender;
    MirrorReceiver receiver;
  };

  bool carry_once() {
    now_ += 1000000000;
    bool any = false;
    for (size_t i = 0; i < spokes_.size(); ++i) {
      End &there = *edges_[i], &here = *spokes_[i];
      std::string stream = collected(there);
      arrived.streams += stream.empty() ? 0 : 1;
      arrived.bytes += stream.size();
      each_frame(stream, [&](FrameKind kind) { ++arrived.of_kind[kind]; });
      here.receiver.feed(now_, stream.data(), stream.size());
      std::string back = collected(here);
      each_frame(back, [&](FrameKind kind) { ++told[kind]; });
      there.receiver.feed(now_, back.data(), back.size());
      any |= !stream.empty() || !back.empty();
    }
    return any;
  }

  std::string collected(End& end) {
    std::string stream;
    end.place.news->look();
    end.sender.collect(now_, &stream);
    return stream;
  }

  template <typename Act>
  static void each_frame(const std::string& stream, Act act) {
    for (size_t at = 0; at < stream.size();) {
      auto head = get<FrameHead>(stream.data() + at);
      act(head.kind);
      at += sizeof head + head.bytes;
    }
  }

  std::vector<std::unique_ptr<Place>> places_;
  // Of each other node: its end of its edge, and that of rank 0's node.
  std::vector<std::unique_ptr<End>> edges_, spokes_;
  uint64_t now_ = 1000000000;
};

}  // namespace hvdft

#endif  // HVD_FT_TESTS_STAR_H
