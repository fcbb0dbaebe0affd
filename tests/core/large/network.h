// The network of the simulated nodes: `Endpoint`, on which production's leaders send and receive,
// by this model. A node has one port. A message occupies the sender's port and then the receiver's
// for `message_ns` plus its bytes at the link's bandwidth, and is `latency_ns` on its way. Messages
// of a sender and a receiver on one endpoint arrive in their order; those of an older generation of
// agents are lost.
#ifndef HVD_FT_TESTS_LARGE_NETWORK_H
#define HVD_FT_TESTS_LARGE_NETWORK_H

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernel.h"
#include "mpi/endpoint.h"

namespace large {

struct LinkModel {
  uint64_t latency_ns = 20000, message_ns = 1000, mbit = 10000;  // a second
  bool uneven = false;  // messages of some endpoints take longer than those of others
  // The mirror's messages occupy no port: the most that a better way to send them could save.
  bool free_mirror = false;
  uint64_t occupied_ns(uint64_t bytes) const { return message_ns + bytes * 8 * 1000 / mbit; }
};

// What a message belongs to: a leader makes its first endpoint for the mirror, others for the ring.
enum Part { kMirror, kRing, kParts };

struct Traffic {
  uint64_t messages[kParts] = {}, bytes[kParts] = {};
};

class Network {
 public:
  Network(Kernel& kernel, int nodes, const LinkModel& model)
      : kernel_(kernel), model_(model), ports_(nodes), nodes_(nodes) {}

  static Network* running() { return running_; }
  void run() { running_ = this; }

  int nodes() const { return nodes_; }
  const Traffic& sent_by(int node) const { return ports_[at(node)].sent; }
  uint64_t most_under_way() const { return most_under_way_; }
  // The longest chain of messages, each sent after the one before it had arrived, that has reached
  // a node so far.
  uint64_t depth(int node, Part part) const { return ports_[at(node)].depth[part]; }

  // MPI's handle of a communicator of all nodes, for one of them.
  int communicator(int node, uint64_t generation) const {
    return static_cast<int>(generation) * nodes_ + node;
  }
  int next_channel(int communicator) { return channels_of_[communicator]++; }

  // An endpoint of a node.
  struct Place {
    int generation, channel, node;
    Part part() const { return channel == 0 ? kMirror : kRing; }
  };

  hvdft::Transfer send(const Place& from, int to, const void* data, uint64_t bytes) {
    kernel_.point();
    Port &out = ports_[at(from.node)], &in = ports_[at(to)];
    Part part = from.part();
    ++out.sent.messages[part];
    out.sent.bytes[part] += bytes;
    uint64_t occupied = model_.free_mirror && part == kMirror ? 0 : model_.occupied_ns(bytes);
    Channel& there = channel(from, from.node, to);
    uint64_t late = model_.uneven ? static_cast<uint64_t>(from.channel % 3) * model_.latency_ns : 0;
    out.free_at = std::max(kernel_.now(), out.free_at) + occupied;
    in.reached_at = std::max(out.free_at + model_.latency_ns, in.reached_at + occupied);
    there.messages.push_back(
        {in.reached_at + late, out.depth[part] + 1, static_cast<const char*>(data), bytes, {}});
    kernel_.arrives(to, in.reached_at + late);
    kernel_.arrives(from.node, out.free_at);
    uint64_t number = there.taken + there.messages.size() - 1;
    return begun({&there, number, nullptr, out.free_at}, bytes, hvdft::kSent);
  }

  hvdft::Transfer receive(const Place& at_place, int from, void* data, uint64_t bytes) {
    kernel_.point();
    Channel& source = channel(at_place, from, at_place.node);
    if (at_place.part() == kRing) {
      most_under_way_ = std::max(most_under_way_, source.posted + 1 - source.taken);
    }
    return begun({&source, source.posted++, static_cast<char*>(data), 0}, bytes, from);
  }

  bool complete(const Place& at_place, hvdft::Transfer* transfer) {
    if (transfer->request < 0) return true;
    Request& request = requests_[at(transfer->request)];
    Channel& source = *request.channel;
    if (transfer->source == hvdft::kSent) {
      if (request.done_at > kernel_.now()) return false;
      if (request.number >= source.taken) source.messages[request.number - source.taken].read();
    } else {
      if (request.number != source.taken || source.messages.empty() ||
          source.messages.front().at > kernel_.now()) {
        return false;
      }
      kernel_.point();
      Message& message = source.messages.front();
      message.read();
      if (message.data.size() > transfer->bytes) throw hvdft::RingError("a message is too long");
      std::memcpy(request.to, message.data.data(), message.data.size());
      uint64_t& depth = ports_[at(at_place.node)].depth[at_place.part()];
      depth = std::max(depth, message.depth);
      source.messages.pop_front();
      ++source.taken;
    }
    unused_.push_back(transfer->request);
    transfer->request = -1;
    return true;
  }

 private:
  struct Message {
    uint64_t at, depth;
    const char* source;  // its sender's memory, which is read as late as MPI may read it
    uint64_t bytes;
    std::string data;
    void read() {
      if (source != nullptr) data.assign(source, bytes);
      source = nullptr;
    }
  };
  struct Channel {  // of one endpoint, from one node to another one
    std::deque<Message> messages;
    uint64_t posted = 0, taken = 0;
  };
  struct Request {
    Channel* channel;
    uint64_t number;  // of the message
    char* to;
    uint64_t done_at;
  };
  struct Port {
    uint64_t free_at = 0, reached_at = 0;
    uint64_t depth[kParts] = {};
    Traffic sent;
  };

  static size_t at(int number) { return static_cast<size_t>(number); }

  Channel& channel(const Place& place, int from, int to) {
    return channels_[{place.generation, place.channel, from, to}];
  }

  hvdft::Transfer begun(const Request& request, uint64_t bytes, int source) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<int>(requests_.size()));
      requests_.emplace_back();
    }
    int number = unused_.back();
    unused_.pop_back();
    requests_[at(number)] = request;
    return {number, bytes, source};
  }

  static inline Network* running_ = nullptr;

  Kernel& kernel_;
  const LinkModel model_;
  std::vector<Port> ports_;
  const int nodes_;
  std::map<int, int> channels_of_;
  std::map<std::tuple<int, int, int, int>, Channel> channels_;
  std::vector<Request> requests_;
  std::vector<int> unused_;
  uint64_t most_under_way_ = 0;
};

}  // namespace large

namespace hvdft {

// In the place of mpi/endpoint.cc. `communicator_` holds the generation, and which of the node's
// endpoints this is.
namespace {
constexpr int kMostEndpoints = 64;
large::Network& network() { return *large::Network::running(); }
}  // namespace

Endpoint::Endpoint(int communicator, int) {
  members_ = network().nodes();
  member_ = communicator % members_;
  communicator_ = communicator / members_ * kMostEndpoints + network().next_channel(communicator);
  counts_ = std::vector<LinkCounts>(static_cast<size_t>(members_));
}
Endpoint::~Endpoint() = default;

static large::Network::Place place_of(int communicator, int member) {
  return {communicator / kMostEndpoints, communicator % kMostEndpoints, member};
}

Transfer Endpoint::begin_send(const void* data, uint64_t bytes, int to) {
  count_sent(bytes, to);
  return network().send(place_of(communicator_, member_), to, data, bytes);
}
Transfer Endpoint::begin_receive(void* data, uint64_t bytes, int from) {
  ++link(from).posted;
  return network().receive(place_of(communicator_, member_), from, data, bytes);
}
bool Endpoint::complete(Transfer* transfer) {
  return network().complete(place_of(communicator_, member_), transfer);
}
void Endpoint::poke() {}
void Endpoint::count_sent(uint64_t bytes, int to) {
  ++link(to).begun;
  ++sent_messages_;
  sent_bytes_ += bytes;
}

}  // namespace hvdft

#endif  // HVD_FT_TESTS_LARGE_NETWORK_H
