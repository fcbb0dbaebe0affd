// An end of one of the mirror's edges over MPI: its two streams, split into messages.
#ifndef HVD_FT_MIRROR_LINK_H
#define HVD_FT_MIRROR_LINK_H

#include <functional>
#include <string>
#include <vector>

#include "mpi/endpoint.h"
#include "replication/mirror.h"

namespace hvdft {

class MirrorLink {
 public:
  // `clock`: of this node, in ns.
  MirrorLink(Node& node, MirrorNews& news, LogStore* store, Endpoint& endpoint,
             const MirrorEdge& edge, const std::function<uint64_t()>& clock)
      : edge_(edge),
        news_(news),
        sender_(node, news, edge),
        receiver_(node, news, store, edge),
        endpoint_(endpoint),
        clock_(clock) {}

  // Once, before anything else is sent; see MirrorReceiver.
  void say_hello(const std::vector<EventsHeard>& heard);
  const MirrorReceiver& receiver() const { return receiver_; }

  // These do what is possible without waiting, and return whether there was anything to do.
  bool receive();
  // `news`: whether there may be something to send.
  bool send(uint64_t now_ns, bool news);
  // Of the link upwards: after all links of the node have collected what is new.
  void settle() { receiver_.settle(); }
  // Sends goodbye once: nothing more comes.
  void say_bye(uint64_t now_ns);
  // Whether both sides have sent goodbye, and everything has been sent.
  bool closed() const { return said_bye_ && out_.empty() && !sending_ && receiver_.bye(); }
  bool peer_said_bye() const { return receiver_.bye(); }
  bool down() const { return edge_.down; }

 private:
  static constexpr uint64_t kMessageBytes = 64 << 10;
  void collect(uint64_t now_ns);

  const MirrorEdge edge_;
  const MirrorNews& news_;
  MirrorSender sender_;
  MirrorReceiver receiver_;
  Endpoint& endpoint_;
  const std::function<uint64_t()>& clock_;
  std::string out_;
  // A message is a length and that many bytes of the stream.
  std::vector<char> sent_ = std::vector<char>(kMessageBytes), received_ = sent_;
  Transfer sending_transfer_{}, receiving_transfer_{};
  bool sending_ = false, receiving_ = false, said_hello_ = false, resumed_ = false,
       said_bye_ = false;
};

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_LINK_H
