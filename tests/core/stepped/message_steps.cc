// Messages, their logs and the snapshots that truncate them: both ends are killed at every store,
// and looked at between any two.
#include <cstring>
#include <vector>

#include "worker/messages.h"
#include "steps.h"
#include "../take_snapshot.h"

using namespace hvdft;

namespace {

std::string data_of(uint64_t number) {
  return std::string(number % 2 == 0 ? 5000 : 3, static_cast<char>('a' + number));
}

void send(Messages& sender, uint64_t number) {
  MessageHead head{};
  std::string data = data_of(number);
  head.bytes = data.size();
  head.tag = static_cast<int32_t>(number % 3);
  std::strcpy(head.form, "uint8");
  CHECK(sender.send(1, head, data.data()) >= 0);
}

std::string receive(Messages& receiver, int32_t tag) {
  hvdft_message found;
  CHECK(receiver.find(0, tag, &found) == HVDFT_OK);
  std::string data(found.bytes, ' ');
  CHECK(receiver.take(0, found.number, data.data()) == HVDFT_OK);
  return data;
}

// Tags are asked for in another order than they are sent in.
constexpr uint64_t kMessages = 6;
constexpr uint64_t kAskedFor[kMessages] = {2, 0, 1, 5, 3, 4};

void receive_all(const Node& node) {
  Messages receiver(node, 1);
  for (uint64_t number : kAskedFor) {
    CHECK(receive(receiver, static_cast<int32_t>(number % 3)) == data_of(number));
  }
  hvdft_message none;
  CHECK(receiver.find(0, 0, &none) == HVDFT_AGAIN);
}

void send_all(const Node& node) {
  Messages sender(node, 0);
  for (uint64_t n = 0; n < kMessages; ++n) send(sender, n);
}

void what_is_counted_is_whole() {
  Job job(2);
  auto file = PairFile::open(*job.node, 0, 1, true);
  watched(
      [&] { send_all(*job.node); },
      [&] {
        for (uint64_t n = 0; n < file->sent(); ++n) {
          const MessageHead& head = file->message(n);
          CHECK(file->see(n).there && head.tag == static_cast<int32_t>(n % 3));
          std::string data(head.bytes, ' ');
          CHECK(file->read(head.offset, data.data(), head.bytes) == HVDFT_OK && data == data_of(n));
          CHECK(file->check_data(n, data.data()) == HVDFT_OK);
        }
      });
  CHECK(file->sent() == kMessages);
}

bool a_sender_is_killed(uint64_t at) {
  Job job(2);
  bool killed = killed_at(at, [&] { send_all(*job.node); });
  send_all(*job.node);
  receive_all(*job.node);
  return killed;
}

bool a_receiver_is_killed(uint64_t at) {
  Job job(2);
  send_all(*job.node);
  bool killed = killed_at(at, [&] { receive_all(*job.node); });
  receive_all(*job.node);
  return killed;
}

// A receiver that has a snapshot, goes on beyond it, and is started again; it replays some of what
// it received. To ask for another tag than before is found out, though such a message is there.
void another_tag_is_found_out(uint64_t snapshot, uint64_t received) {
  Job job(2);
  send_all(*job.node);
  job.node->rank(1).loops[0].begin = 1;
  auto tag = [](uint64_t number) { return static_cast<int32_t>(kAskedFor[number] % 3); };
  Messages first(*job.node, 1);
  CHECK(first.loop_begins(0) == HVDFT_OK);
  for (uint64_t n = 0; n < received; ++n) {
    if (n == snapshot) first.snapshot_begins(0, 0);
    CHECK(receive(first, tag(n)) == data_of(kAskedFor[n]));
  }
  first.snapshot_published(0, 0);
  Messages again(*job.node, 1);
  CHECK(again.loop_begins(0) == HVDFT_OK);
  again.go_back(0, 0);
  for (uint64_t n = snapshot; n < received; ++n) {
    hvdft_message found;
    for (int32_t other : {(tag(n) + 1) % 3, (tag(n) + 2) % 3}) {
      CHECK(again.find(0, other, &found) == HVDFT_EINVAL);
    }
    CHECK(receive(again, tag(n)) == data_of(kAskedFor[n]));
  }
}

// ---------------------------------------------------------------- with snapshots

// A worker that receives all, with snapshots of changing sizes: a restarted one continues from the
// latest snapshot, and nothing that it still needs is truncated.
struct Script {
  uint64_t received = 0;

  std::string content() const {
    return std::string(8 + 3000 * received, static_cast<char>(received));
  }

  void snapshot() const {
    std::string all = content();
    take_snapshot(received + 1, all.data(), all.size());
  }

  void restore() {
    const void* data;
    hvdft_snapshot snapshot;
    if (hvdft_worker_snapshot_get(0, &data, &snapshot) != 1) return;
    CHECK(snapshot.bytes >= 8);
    received = *static_cast<const unsigned char*>(data);
    CHECK(std::string(static_cast<const char*>(data), snapshot.bytes) == content());
    CHECK(hvdft_worker_jump(0) == HVDFT_OK);
  }

  void run() {
    uint64_t begin;
    CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK && begin == 0);
    restore();
    while (received < kMessages) {
      uint64_t number = kAskedFor[received++];
      hvdft_message next;
      CHECK(hvdft_worker_await_message(0, static_cast<int32_t>(number % 3), 0, &next) == HVDFT_OK);
      std::string data(next.bytes, ' ');
      CHECK(hvdft_worker_take_message(0, &next, data.data()) == HVDFT_OK);
      CHECK(data == data_of(number));
      if (received % 2 == 0) snapshot();
    }
    CHECK(hvdft_worker_loop_end(0) == HVDFT_OK);
  }
};

bool a_worker_with_snapshots_is_killed(uint64_t at) {
  Job job(2);
  Messages sender(*job.node, 0);
  CHECK(sender.loop_begins(0) == HVDFT_OK);
  job.node->rank(0).loops[0].begin = 1;
  for (uint64_t n = 0; n < kMessages; ++n) send(sender, n);
  auto sender_s_snapshot = [&](int slot) {  // which cuts what both have passed
    sender.snapshot_begins(0, slot);
    sender.snapshot_published(0, slot);
  };
  sender_s_snapshot(0);
  bool killed = killed_at(at, [&] {
    job.become(1, 0);
    Script{}.run();
  });
  for (int slot : {1, 0}) sender_s_snapshot(slot);
  auto file = PairFile::open(*job.node, 0, 1, false);
  CHECK(killed || file->header().decided_before == kMessages);
  CHECK(!killed_at(kNever, [&] {
    job.become(1, 1);
    Script{}.run();
  }));
  // What a killed incarnation had published without its marks, the next one has marked.
  for (int slot : {1, 0}) sender_s_snapshot(slot);
  CHECK(file->header().decided_before == kMessages);
  return killed;
}

}  // namespace

int main() {
  what_is_counted_is_whole();
  for (uint64_t received = 1; received <= kMessages; ++received) {
    for (uint64_t snapshot = 0; snapshot < received; ++snapshot) {
      another_tag_is_found_out(snapshot, received);
    }
  }
  uint64_t sent = through(a_sender_is_killed);
  uint64_t received = through(a_receiver_is_killed);
  uint64_t snapshots = through(a_worker_with_snapshots_is_killed);
  CHECK(sent > 40 && received > 20 && snapshots > 80);
  std::printf("killed at each of %lu, %lu, %lu stores\n", sent, received, snapshots);
}
