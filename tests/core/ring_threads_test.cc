// The two halves of each member on threads of their own, as drivers have them, a third one that
// gives the inputs, several ops in flight: for the thread sanitizer above all. It shows that the
// pair log's two words are all that links the halves, and that nothing is overwritten while it is
// being sent.
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"
#include "protocol/ring.h"

using namespace hvdft;

namespace {

using Data = std::vector<uint64_t>;

class Channel {
 public:
  void put(Data data) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(data));
  }
  Data take() {
    for (;; std::this_thread::yield()) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (queue_.empty()) continue;
      Data data = std::move(queue_.front());
      queue_.pop_front();
      return data;
    }
  }

 private:
  std::mutex mutex_;
  std::deque<Data> queue_;
};

struct Op {
  explicit Op(const RingPlan& made) : plan(made) {}
  RingPlan plan;
  std::atomic<uint64_t> inputs{0};
  Data input, result;
};

struct Member {
  uint64_t number, members;
  std::deque<Op> ops;
  PairLog log;
  Channel from_predecessor;
  Member* successor = nullptr;
};

uint64_t value(uint64_t op, uint64_t member, uint64_t i) { return (op + i) << 8 | 1ull << member; }

void give(Member& member) {
  for (size_t op = 0; op < member.ops.size(); ++op) {
    Op& mine = member.ops[op];
    for (uint64_t i = 0; i < mine.plan.inputs(); ++i) {
      ByteRange bytes = mine.plan.input(member.number, i);
      for (uint64_t at = bytes.from / 8; at < bytes.to / 8; ++at) {
        mine.input[at] = value(op, member.number, at);
      }
      mine.inputs.store(i + 1, std::memory_order_release);
    }
  }
}

void send(Member& member) {
  RingSender half(member.number);
  for (half.resume(1, {}); half.op() < member.ops.size();) {
    Op& op = member.ops[half.op()];
    if (!half.begun()) half.begin(op.plan);
    Outgoing next;
    if (!half.next(member.log.received.at(), op.inputs.load(std::memory_order_acquire), &next)) {
      std::this_thread::yield();
      continue;
    }
    const uint64_t* data = (next.from_input ? op.input : op.result).data();
    member.successor->from_predecessor.put({data + next.bytes.from / 8, data + next.bytes.to / 8});
    member.log.sent.publish(half.sent());
  }
}

void receive(Member& member) {
  RingReceiver half(member.number, member.members, {});
  half.remade(1);
  while (half.op() < member.ops.size()) {
    Op& op = member.ops[half.op()];
    if (!half.begun()) {
      half.begin(op.plan);
      member.log.received.publish(half.at());
    }
    Incoming next;
    if (!half.next(&next)) continue;  // the op is passed by
    Data data = member.from_predecessor.take();
    CHECK(data.size() * 8 == next.bytes.bytes());
    while (next.adds && op.inputs.load(std::memory_order_acquire) <= next.input) {
      std::this_thread::yield();
    }
    uint64_t first = next.bytes.from / 8;
    for (uint64_t i = 0; i < data.size(); ++i) {
      op.result[first + i] = data[i] + (next.adds ? op.input[first + i] : 0);
    }
    member.log.received.publish(half.received());
  }
}

void allreduces(uint64_t members, const std::vector<uint64_t>& elements) {
  std::deque<Member> ring(members);
  for (uint64_t m = 0; m < members; ++m) {
    ring[m].number = m;
    ring[m].members = members;
    ring[m].successor = &ring[(m + 1) % members];
    for (uint64_t n : elements) {
      Op& op = ring[m].ops.emplace_back(RingPlan(members, n * 8, 256));
      op.input.resize(n);
      op.result.resize(n);
    }
  }
  std::vector<std::thread> threads;
  for (Member& member : ring) {
    for (auto* half : {give, send, receive}) threads.emplace_back(half, std::ref(member));
  }
  for (std::thread& thread : threads) thread.join();
  for (Member& member : ring) {
    for (size_t op = 0; op < elements.size(); ++op) {
      for (uint64_t i = 0; i < elements[op]; ++i) {
        uint64_t sum = 0;
        for (uint64_t m = 0; m < members; ++m) sum += value(op, m, i);
        CHECK(member.ops[op].result[i] == sum);
      }
    }
  }
}

}  // namespace

int main() {
  for (uint64_t members : {2, 3, 4}) {
    for (int again = 0; again < 5; ++again) allreduces(members, {1000, 3, 0, 2000, 64});
  }
}
