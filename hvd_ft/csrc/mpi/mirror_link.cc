#include "mpi/mirror_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hvdft {

void MirrorLink::say_hello(const std::vector<EventsHeard>& heard) {
  if (std::exchange(said_hello_, true)) return;
  receiver_.say_hello(&out_, heard);
}

void MirrorLink::say_bye(uint64_t now_ns) {
  if (said_bye_ || !said_hello_ || !receiver_.hello()) return;
  collect(now_ns);
  sender_.bye(&out_);
  said_bye_ = true;
}

void MirrorLink::collect(uint64_t now_ns) {
  if (!said_hello_ || !receiver_.hello()) return;
  if (!resumed_) sender_.resume(*receiver_.hello());
  resumed_ = true;
  sender_.collect(now_ns, &out_);
}

bool MirrorLink::send(uint64_t now_ns, bool news) {
  if (news && !said_bye_) collect(now_ns);
  bool moved = false;
  if (sending_ && endpoint_.complete(&sending_transfer_)) {
    sending_ = false;
    moved = true;
  }
  if (sending_ || out_.empty()) return moved;
  uint64_t bytes = std::min(out_.size(), kMessageBytes - sizeof bytes);
  std::memcpy(sent_.data(), &bytes, sizeof bytes);
  std::memcpy(sent_.data() + sizeof bytes, out_.data(), bytes);
  out_.erase(0, bytes);
  sending_transfer_ = endpoint_.begin_send(sent_.data(), sizeof bytes + bytes, edge_.node);
  return sending_ = true;
}

bool MirrorLink::receive() {
  bool may_begin = !receiver_.bye() && !(edge_.down && news_.congested());
  if (!receiving_ && !may_begin) {
    endpoint_.poke();  // or MPI may keep this node's last words
    return false;
  }
  if (!receiving_) {
    receiving_transfer_ = endpoint_.begin_receive(received_.data(), kMessageBytes, edge_.node);
    receiving_ = true;
  }
  if (!endpoint_.complete(&receiving_transfer_)) return false;
  receiving_ = false;
  uint64_t bytes;
  std::memcpy(&bytes, received_.data(), sizeof bytes);
  bytes = std::min(bytes, kMessageBytes - sizeof bytes);  // or it is damaged, as will be seen
  // The time at which it was there: by that of the step it might have come before it was sent.
  receiver_.feed(clock_(), received_.data() + sizeof bytes, bytes);
  return true;
}

}  // namespace hvdft
