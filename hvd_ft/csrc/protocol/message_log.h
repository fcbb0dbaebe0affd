// The message log of a pair: the messages that rank `source` has sent to rank `dest`, in order, and
// which of them have been received. Both ends write into the same log, so each finds there how far
// the other end, or its own dead incarnation, had progressed.
//
// A message gets its place in the log, its *number*, before it is published; `sent` counts the
// published ones. Receives from that source are numbered, too. A receive takes the first untaken
// message with its tag, by one store into the message: its own number, + 1. A restarted worker
// counts again from its snapshot. Its sends below `sent` are repetitions, which are skipped; its
// receives find the messages that bear their numbers, in whatever order tags are asked for.
//
// An end never asks again for messages before its snapshot, so those before both ends' snapshots
// can be dropped. Messages outside training loops are kept, because a restarted script always asks
// for them again.
//
// Rules only: no memory, threads or clock. messages.cc applies them to the arena;
// message_log_test.cc tries every interleaving.
#ifndef HVD_FT_MESSAGE_LOG_H
#define HVD_FT_MESSAGE_LOG_H

#include <algorithm>
#include <cstdint>

namespace hvdft {

// An end's progress, as its worker knows it: calls, and the messages they were about. These include
// all messages before `first`, and none from `reach` on. (A sender has no gaps: the three are
// equal.)
struct LogPosition {
  uint64_t count = 0, first = 0, reach = 0;
};

constexpr bool is_repeated(const LogPosition& sender, uint64_t sent) { return sender.count < sent; }

// A message as the receiver sees it.
struct SeenMessage {
  bool there;      // it is not dropped
  uint64_t taken;  // number of the receive that took it, + 1; 0: none
  int32_t tag;
};

enum class Finding {
  kNothing,  // the message has not been sent yet
  kTaken,    // this receive took it before, in an earlier incarnation
  kUntaken,  // it is free to be taken
  kDropped   // the script asks for a message from before its snapshot
};

struct Found {
  Finding what;
  uint64_t number;
};

// The message of the next receive. `fresh`: this incarnation has already taken a new message, so
// none that it asks for can have been taken before.
template <typename See>
Found find_message(const LogPosition& receiver, bool fresh, uint64_t sent, int32_t tag, See see) {
  Found found{Finding::kNothing, 0};
  for (uint64_t n = receiver.first; n < sent; ++n) {
    SeenMessage message = see(n);
    if (!message.there) return {Finding::kDropped, n};
    if (message.taken == receiver.count + 1) return {Finding::kTaken, n};
    if (message.taken != 0 || message.tag != tag || found.what != Finding::kNothing) continue;
    found = {Finding::kUntaken, n};
    if (fresh) break;
  }
  return found;
}

// The receive is done: message `number` bears its number now. `taken(n)` as in SeenMessage.
template <typename Taken>
void move_on(LogPosition* receiver, uint64_t number, Taken taken) {
  ++receiver->count;
  receiver->reach = std::max(receiver->reach, number + 1);
  auto done = [&](uint64_t by) { return by != 0 && by <= receiver->count; };
  while (receiver->first < receiver->reach && done(taken(receiver->first))) ++receiver->first;
}

// ---------------------------------------------------------------- cutting

// An end's published marks of a training loop. They are never taken back.
struct LoopMarks {
  uint64_t begin = 0;  // 1 + its `reach` when the loop began; 0: it has not
  uint64_t past = 0;   // its `first` at the loop's latest snapshot
};

enum class Fate {
  kOpen,  // the end may ask for the message again, or its snapshots will decide
  kKept,  // it lies outside of loops
  kPast
};

// The fate of a message from one end's point of view; `marks(loop)` are that end's. Loops begin in
// order, and none extends past the beginning of the next, so the latest loop that began before the
// message decides.
template <typename Marks>
Fate fate_at(uint64_t number, int loops, Marks marks) {
  int before = 0, end = loops;  // those that began before it: [0, before); not: [end, loops)
  while (before < end) {
    int middle = before + (end - before) / 2;
    LoopMarks m = marks(middle);
    bool began = m.begin != 0 && m.begin - 1 <= number;
    (began ? before : end) = began ? middle + 1 : middle;
  }
  if (before > 0 && number < marks(before - 1).past) return Fate::kPast;
  return before < loops && marks(before).begin != 0 ? Fate::kKept : Fate::kOpen;
}

constexpr Fate fate_of(Fate at_sender, Fate at_receiver) {
  if (at_sender == Fate::kOpen || at_receiver == Fate::kOpen) return Fate::kOpen;
  return at_sender == Fate::kPast && at_receiver == Fate::kPast ? Fate::kPast : Fate::kKept;
}

}  // namespace hvdft

#endif  // HVD_FT_MESSAGE_LOG_H
