// The wire between two members: per edge and generation an ordered channel, and the record that the
// receiver sent when the edge was remade. And what a sending half puts onto it.
#ifndef HVD_FT_TESTS_RING_SIM_WIRE_H
#define HVD_FT_TESTS_RING_SIM_WIRE_H

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "protocol/byte_range.h"
#include "protocol/gather_plan.h"
#include "protocol/pair_log.h"
#include "ring_sim_case.h"

namespace ring_sim {

// The same on every machine, for a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15) {}
  uint64_t below(uint64_t bound) {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % bound;
  }

 private:
  uint64_t state_;
};

struct Message {
  uint64_t generation;
  hvdft::EdgePosition at;
  std::string data;
  const char* source;  // where the transport reads it when it is taken; or null: it has been read
};

struct Wire {
  struct Told {
    uint64_t generation = 0;
    hvdft::EdgePosition record;
  };

  std::map<uint64_t, std::deque<Message>> channels;  // by generation; none is empty
  Told told;
  uint64_t received_ops = 0;  // as the receiver's record says: for the test only

  void send(Message message) { channels[message.generation].push_back(std::move(message)); }

  // The next one of any channel: old connections may deliver late, but each in its order.
  Message take(Random& random) {
    auto channel = channels.begin();
    std::advance(channel, random.below(channels.size()));
    Message message = std::move(channel->second.front());
    channel->second.pop_front();
    if (channel->second.empty()) channels.erase(channel);
    return message;
  }

  // The sender's memory is about to go: what is on its way has been read.
  void read_all() {
    for (auto& [generation, messages] : channels) {
      for (Message& message : messages) {
        if (message.source != nullptr) message.data.assign(message.source, message.data.size());
        message.source = nullptr;
      }
    }
  }

  // Of every channel only a prefix arrives: nothing, all, or what `length(size)` says.
  template <typename Length>
  void cut(Length length) {
    for (auto channel = channels.begin(); channel != channels.end();) {
      channel->second.resize(length(channel->second.size()));
      channel = channel->second.empty() ? channels.erase(channel) : std::next(channel);
    }
  }
};

// The edges of all members: of the ring, and of each round of gathered ops.
class Wires {
 public:
  explicit Wires(uint64_t members)
      : wires_(1 + hvdft::GatherPlan(members, 1).rounds(), std::vector<Wire>(members)) {}

  static constexpr uint64_t kRing = 0;
  static uint64_t of_round(uint64_t round) { return 1 + round; }
  uint64_t kinds() const { return wires_.size(); }

  Wire& from(uint64_t kind, uint64_t member) { return wires_[kind][member]; }
  Wire& to(uint64_t kind, uint64_t member) {
    uint64_t members = wires_[kind].size();
    uint64_t distance = kind == kRing ? 1 : hvdft::GatherPlan::distance(kind - 1);
    return wires_[kind][(member + members - distance) % members];
  }

 private:
  std::vector<std::vector<Wire>> wires_;
};

// What a sending half is at: it reads a message in two parts, and notes when it has sent it.
struct Sending {
  int done = 0;  // actions
  hvdft::EdgePosition at;
  hvdft::ByteRange bytes;
  Message message{};

  static uint64_t half(uint64_t bytes) { return bytes / 2 / 8 * 8; }

  // What is left to do of it.
  Action next() const { return done == 1 ? Action::kSend : Action::kNoteSent; }

  void read(const char* source, uint64_t generation) {
    message = {generation, at, std::string(source, half(bytes.bytes())), nullptr};
    done = 1;
  }
  // `late`: it had only been ordered to send, and the transport reads it when it is taken.
  void send(const char* source, bool late, Wire& wire) {
    uint64_t read = message.data.size();
    message.data.append(source + read, bytes.bytes() - read);
    if (late) message.source = source;
    wire.send(std::move(message));
    done = 2;
  }
};

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_WIRE_H
