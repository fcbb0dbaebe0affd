// Wires in the place of MPI, for leaders that are killed. A message comes in two halves, so that
// the receiver's memory is torn in between; its data are read while it comes, or at once if MPI has
// kept a copy. Of those it may send one only; the others wait for a call that has to wait, or for a
// poke. What is on its way is lost with the generation that sent it.
#ifndef HVD_FT_TESTS_LEADERS_WIRES_H
#define HVD_FT_TESTS_LEADERS_WIRES_H

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "../check.h"
#include "../links/on_wires.h"

namespace wires {

struct Message {
  const char* data;
  uint64_t bytes;
  std::string copy;  // what MPI has kept: then its sender need not wait
  bool half = false, come = false, complete = false;  // its sender knows that
};
struct Receive {
  char* to;
  uint64_t room;
  std::tuple<int, int, int> wire;
  bool come = false;
};

inline std::deque<Message> messages;
inline std::deque<Receive> receives;
struct Wire {  // of one number, from a member to another one
  std::deque<Message*> held, on_the_way;
  std::deque<Receive*> posted;
};
inline std::map<std::tuple<int, int, int>, Wire> all;
inline bool keeps_copies = false;
inline uint64_t carried = 0;  // how often something has moved

inline void forget() {
  all.clear();
  messages.clear();
  receives.clear();
}

// MPI may still read what is sent until its sender has been told, even if it has come.
inline bool is_being_sent(const char* data, uint64_t bytes) {
  return std::any_of(messages.begin(), messages.end(), [&](const Message& message) {
    return !message.complete && message.data < data + bytes && data < message.data + message.bytes;
  });
}

// MPI sends on what it holds for a member on an endpoint, where there is room.
inline void progress(int endpoint, int member) {
  for (auto& [name, wire] : all) {
    auto [number, from, to] = name;
    if (number != endpoint || from != member) continue;
    if (wire.held.empty() || !wire.on_the_way.empty()) continue;
    wire.on_the_way.push_back(wire.held.front());
    wire.held.pop_front();
    ++carried;
  }
}

// The oldest message of a wire comes half a step nearer.
inline void carry(Wire& wire) {
  if (wire.on_the_way.empty() || wire.posted.empty()) return;
  Message& message = *wire.on_the_way.front();
  Receive& receive = *wire.posted.front();
  CHECK(message.bytes <= receive.room);
  const char* from = message.copy.empty() ? message.data : message.copy.data();
  uint64_t bytes = message.half ? message.bytes : message.bytes / 2;
  std::memcpy(receive.to, from, bytes);
  ++carried;
  if (!message.half) {
    message.half = true;
    return;
  }
  message.come = receive.come = true;
  wire.on_the_way.pop_front();
  wire.posted.pop_front();
}

}  // namespace wires

namespace hvdft {

Transfer Endpoint::begin_send(const void* data, uint64_t bytes, int to) {
  const char* from = static_cast<const char*>(data);
  wires::messages.push_back({from, bytes, {}});
  if (wires::keeps_copies) wires::messages.back().copy.assign(from, bytes);
  wires::Wire& wire = wires::all[{thread_id_, member_, to}];
  bool holds = wires::keeps_copies && (!wire.held.empty() || !wire.on_the_way.empty());
  (holds ? wire.held : wire.on_the_way).push_back(&wires::messages.back());
  return {static_cast<int>(wires::messages.size()) - 1, bytes, kSent};
}

Transfer Endpoint::begin_receive(void* data, uint64_t bytes, int from) {
  CHECK(!wires::is_being_sent(static_cast<const char*>(data), bytes));
  std::tuple<int, int, int> wire{thread_id_, from, member_};
  wires::receives.push_back({static_cast<char*>(data), bytes, wire});
  wires::all[wire].posted.push_back(&wires::receives.back());
  return {static_cast<int>(wires::receives.size()) - 1, bytes, from};
}

bool Endpoint::complete(Transfer* transfer) {
  auto at = static_cast<size_t>(transfer->request);
  if (transfer->source == kSent) {
    wires::Message& message = wires::messages[at];
    if (!message.complete) wires::progress(thread_id_, member_);
    return message.complete = message.come || wires::keeps_copies;
  }
  wires::Receive& receive = wires::receives[at];
  if (!receive.come) {
    wires::progress(thread_id_, member_);
    wires::carry(wires::all[receive.wire]);
  }
  return receive.come;
}

void Endpoint::poke() { wires::progress(thread_id_, member_); }

}  // namespace hvdft

#endif  // HVD_FT_TESTS_LEADERS_WIRES_H
