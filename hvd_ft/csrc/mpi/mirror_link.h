// An end of one of the mirror's edges over MPI: its two streams, split into messages.
#ifndef HVD_FT_MIRROR_LINK_H
#define HVD_FT_MIRROR_LINK_H

#include <string>
#include <vector>

#include "mpi/endpoint.h"
#include "replication/mirror.h"

namespace hvdft {

class MirrorLink {
 public:
  // To the leader `peer` of the node with the ranks [first, end).
  MirrorLink(Node& node, MirrorNews& news, LogStore* store, Endpoint& endpoint, int peer, int first,
             int end)
      : sender_(node, news, first, end),
        receiver_(node, news, store, first),
        endpoint_(endpoint),
        peer_(peer) {
    receiver_.say_hello(&out_);
  }

  // Does what is possible without waiting; returns whether there was anything to do. `news`:
  // whether there may be something to send.
  bool step(uint64_t now_ns, bool news);
  // Sends goodbye once: nothing more comes.
  void say_bye(uint64_t now_ns);
  // Whether both sides have sent goodbye, and everything has been sent.
  bool closed() const { return said_bye_ && out_.empty() && !sending_ && receiver_.bye(); }
  bool peer_said_bye() const { return receiver_.bye(); }

 private:
  static constexpr uint64_t kMessageBytes = 64 << 10;
  void collect(uint64_t now_ns);
  bool send();
  bool receive(uint64_t now_ns);

  MirrorSender sender_;
  MirrorReceiver receiver_;
  Endpoint& endpoint_;
  const int peer_;
  std::string out_;
  // A message is a length and that many bytes of the stream.
  std::vector<char> sent_ = std::vector<char>(kMessageBytes), received_ = sent_;
  Transfer sending_transfer_{}, receiving_transfer_{};
  bool sending_ = false, receiving_ = false, resumed_ = false, said_bye_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_LINK_H
