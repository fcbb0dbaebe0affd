// Two nodes' arenas in one process, entered by the mirror's streams.
#ifndef HVD_FT_TESTS_MIRROR_SIDES_H
#define HVD_FT_TESTS_MIRROR_SIDES_H

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "check.h"
#include "fresh_directory.h"
#include "replication/mirror.h"

namespace hvdft {

constexpr uint64_t kLimit = 64 << 20;

inline uint64_t now = 1000000000;

struct Side {
  Side(int first, int locals, int peer_first, int peer_end) : dir(fresh_directory()) {
    CHECK(Node::create(dir, "mirror", 3, 2, first > 0, first, locals, kLimit) == HVDFT_OK);
    node = Node::open(dir, "mirror", Node::kAgent);
    CHECK(node != nullptr);
    renew = [=] {
      store = std::make_unique<LogStore>(*node);
      news = std::make_unique<MirrorNews>(*node);
      bool down = first == 0;
      MirrorEdge edge{down, down, peer_first, peer_end, first + locals, down ? locals : peer_end};
      sender = std::make_unique<MirrorSender>(*node, *news, edge);
      LogStore* written = first == 0 ? nullptr : store.get();
      receiver = std::make_unique<MirrorReceiver>(*node, *news, written, edge);
    };
    renew();
  }
  ~Side() { remove_directory(dir); }
  NodeHeader& header() { return node->header(); }
  void collect(uint64_t now_ns, std::string* out) {
    news->look();
    sender->collect(now_ns, out);
  }
  void feed(const std::string& stream) { receiver->feed(now, stream.data(), stream.size()); }

  std::function<void()> renew;  // with nothing but what the arena has
  std::string dir;
  std::unique_ptr<Node> node;
  std::unique_ptr<LogStore> store;
  std::unique_ptr<MirrorNews> news;
  std::unique_ptr<MirrorSender> sender;
  std::unique_ptr<MirrorReceiver> receiver;
};

// Everything new goes over, a byte at a time.
inline void carry(Side& from, Side& to, const std::function<void()>& at_every_byte = [] {}) {
  std::string stream;
  from.collect(now += 1000000000, &stream);
  for (char byte : stream) {
    to.receiver->feed(now + 7, &byte, 1);
    at_every_byte();
  }
}

// Whose doorbells something rings there: the workers' of ranks 0 and 1, and their agents'.
struct Rung {
  bool worker0, worker1, agents;
  bool operator==(const Rung& o) const {
    return worker0 == o.worker0 && worker1 == o.worker1 && agents == o.agents;
  }
};
inline Rung rung_by(Side& from, Side& to) {
  auto doorbells = [&] {
    return std::array{to.node->rank(0).worker_doorbell.load(),
                      to.node->rank(1).worker_doorbell.load(), to.header().event_doorbell.load()};
  };
  auto before = doorbells();
  carry(from, to);
  auto after = doorbells();
  return {before[0] != after[0], before[1] != after[1], before[2] != after[2]};
}

// The agents' next generation: what they had in mind is gone, and they say hello.
inline void renew(Side& zero, Side& one) {
  zero.header().generation = one.header().generation = zero.header().generation + 1;
  for (Side* side : {&zero, &one}) side->renew();
  std::string to_one, to_zero;
  zero.receiver->say_hello(&to_one, {{2, zero.node->rank(2).events_heard.load()}});
  one.receiver->say_hello(&to_zero);
  one.feed(to_one);
  zero.feed(to_zero);
  zero.sender->resume(*zero.receiver->hello());
  one.sender->resume(*one.receiver->hello());
}

}  // namespace hvdft

#endif  // HVD_FT_TESTS_MIRROR_SIDES_H
