// The wire between two members: per edge and generation an ordered channel, and the record that the
// receiver sent when the edge was remade.
#ifndef HVD_FT_TESTS_RING_SIM_WIRE_H
#define HVD_FT_TESTS_RING_SIM_WIRE_H

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "protocol/pair_log.h"

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

}  // namespace ring_sim

#endif  // HVD_FT_TESTS_RING_SIM_WIRE_H
