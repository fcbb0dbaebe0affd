// What a rank publishes while it is blocked in receives and in collectives and another one is down.
#include <cstring>
#include <string>

#include "base/doorbell.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft_logs.h"
#include "worker/worker.h"

using namespace hvdft;

namespace {

constexpr uint64_t kLimit = 16 << 20;

// Rank 0 is this process; ranks 1 and 2 are acted.
struct Job {
  std::string dir = fresh_directory();
  std::unique_ptr<Node> node;
  std::unique_ptr<Messages> senders[3];

  Job() {
    CHECK(Node::create(dir, "waits", 3, 1, 0, 0, 3, kLimit) == HVDFT_OK);
    for (int r = 0; r < 3; ++r) CHECK(RankFile::create(dir, "waits", r, kLimit) == HVDFT_OK);
    node = Node::open(dir, "waits", Node::kAgent);
    CHECK(node != nullptr);
    for (int r : {1, 2}) senders[r] = std::make_unique<Messages>(*node, r);
    setenv("HOROVOD_FT_DIR", dir.c_str(), 1);
    setenv("HOROVOD_FT_JOB", "waits", 1);
    setenv("HOROVOD_RANK", "0", 1);
    setenv("HOROVOD_FT_INCARNATION", "0", 1);
    CHECK(hvdft_worker_open() == HVDFT_OK);
  }
  ~Job() { remove_directory(dir); }

  void is(int rank, uint32_t state) const { node->rank(rank).state.store(state); }
  uint32_t state() const { return node->rank(0).state.load(); }

  void send(int source) const {
    MessageHead head{};
    head.bytes = 1;
    std::strcpy(head.form, "uint8");
    CHECK(senders[source]->send(0, head, "x") == 1);
  }

  // The waits that were reported so far.
  std::vector<uint64_t> waited() const {
    std::vector<hvdft_event> events(64);
    int count = hvdft_worker_events(0, events.data(), 64);
    std::vector<uint64_t> found;
    for (int i = 0; i < count; ++i) {
      const hvdft_event& event = events[static_cast<size_t>(i)];
      if (event.type == HVDFT_EV_WAITED) found.push_back(event.detail);
    }
    return found;
  }
};

int receive(int source) {
  hvdft_message next;
  int code = hvdft_worker_await_message(source, 0, 1, &next);
  char data;
  if (code == HVDFT_OK) CHECK(hvdft_worker_take_message(source, &next, &data) == HVDFT_OK);
  return code;
}

void wait_in_a_collective() {
  hvdft_worker_pend(1);
  CHECK(hvdft_worker_wait(hvdft_worker_ticket(), 1) == 0);
}

void complete_the_collective(uint64_t id) {
  hvdft_worker_pend(-1);
  CHECK(hvdft_worker_executed(id) == HVDFT_OK);
}

}  // namespace

int main() {
  Job job;
  for (int r : {1, 2}) job.is(r, HVDFT_RUNNING);

  // Everybody is there: that a message is late is not a wait for a dead rank.
  CHECK(receive(1) == HVDFT_AGAIN);
  uint64_t blocked_since = now_ns();
  CHECK(job.state() == HVDFT_RUNNING);

  // Another rank dies, though not the one that is to send. It is one wait, however often it is
  // looked for the message, and it began with the first look.
  job.is(2, HVDFT_RESTARTING);
  for (int looks = 0; looks < 2; ++looks) {
    CHECK(receive(1) == HVDFT_AGAIN && job.state() == HVDFT_WAITING);
  }
  job.is(2, HVDFT_REPLAYING);
  CHECK(receive(1) == HVDFT_AGAIN && job.state() == HVDFT_WAITING);
  CHECK(job.waited().empty());
  uint64_t least = now_ns() - blocked_since;
  job.send(1);
  CHECK(receive(1) == HVDFT_OK && job.state() == HVDFT_RUNNING);
  CHECK(job.waited().size() == 1 && job.waited()[0] >= least);

  // What is there already is no wait.
  job.send(1);
  CHECK(receive(1) == HVDFT_OK && job.state() == HVDFT_RUNNING && job.waited().size() == 1);

  // Two threads wait, each for its peer: one of them goes on.
  CHECK(receive(1) == HVDFT_AGAIN && receive(2) == HVDFT_AGAIN && job.state() == HVDFT_WAITING);
  job.send(2);
  CHECK(receive(2) == HVDFT_OK && job.state() == HVDFT_WAITING && job.waited().size() == 1);
  job.send(1);
  CHECK(receive(1) == HVDFT_OK && job.state() == HVDFT_RUNNING && job.waited().size() == 2);

  // In a collective: neither a receive ends that wait, nor a collective one for a message.
  wait_in_a_collective();
  CHECK(job.state() == HVDFT_WAITING);
  job.send(1);
  CHECK(receive(1) == HVDFT_OK && job.state() == HVDFT_WAITING && job.waited().size() == 2);
  CHECK(receive(1) == HVDFT_AGAIN);
  complete_the_collective(0);
  CHECK(job.state() == HVDFT_WAITING && job.waited().size() == 2);
  job.send(1);
  CHECK(receive(1) == HVDFT_OK && job.state() == HVDFT_RUNNING && job.waited().size() == 3);

  // The next wait is timed afresh.
  job.is(2, HVDFT_RUNNING);
  uint64_t before = now_ns();
  CHECK(receive(2) == HVDFT_AGAIN && job.state() == HVDFT_RUNNING);
  job.is(1, HVDFT_RESTARTING);
  CHECK(receive(2) == HVDFT_AGAIN && job.state() == HVDFT_WAITING);
  job.send(2);
  CHECK(receive(2) == HVDFT_OK);
  CHECK(job.waited().size() == 4 && job.waited()[3] <= now_ns() - before);

  // A wait that ends in an error is over, too.
  CHECK(receive(2) == HVDFT_AGAIN && job.state() == HVDFT_WAITING);
  job.is(2, HVDFT_DONE);
  CHECK(receive(2) == HVDFT_EINVAL && job.state() == HVDFT_RUNNING);
}
