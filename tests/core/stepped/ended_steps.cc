// Ranks that end: what they leave behind, who is not waited for any more, and what of it counts
// when the worker has been started again.
#include "base/doorbell.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr uint64_t kSecond = 1000000000;

// A restarted worker comes through its sessions once more: the last op before which one ever ended
// stays.
void the_latest_end_is_known() {
  Job job(2);
  CHECK(!killed_at(kNever, [&] {
    job.become(0, 1);
    RankBlock& own = job.node->rank(0);
    own.left_at = 8;
    own.contributed = position(9, 0);
    own.pending = 3;
    hvdft_worker_leave();
    CHECK(own.left_at == 8 && own.sessions == 1 && own.pending == 0);
    CHECK(hvdft_worker_owed() == 0);
    own.left_at = 0;
    CHECK(hvdft_worker_owed() == 9);
    hvdft_worker_leave();
    CHECK(own.left_at == 1 && own.sessions == 2);
  }));
}

void who_has_ended_is_awaited_only_with_its_input() {
  Job job(2);
  CHECK(!killed_at(kNever, [&] {
    job.become(0, 0);
    RankBlock& peer = job.node->rank(1);
    peer.state = HVDFT_DONE;
    CHECK(hvdft_worker_ended_peer() == 1);
    peer.contributed = position(1, 0);
    CHECK(hvdft_worker_ended_peer() == -1);
    // One that is in the same session has not left; one that has may be about to end.
    peer.contributed = 0;
    peer.state = HVDFT_RUNNING;
    CHECK(hvdft_worker_ended_peer() == -1);
    peer.sessions = 1;
    peer.left_ns = now_ns();
    CHECK(hvdft_worker_ended_peer() == -1);
    peer.left_ns = now_ns() - 10 * kSecond;
    CHECK(hvdft_worker_ended_peer() == 1);
    peer.incarnation = 2;
    peer.orderly_exit = 2;  // of the one before
    CHECK(hvdft_worker_ended_peer() == 1);
    peer.orderly_exit = 3;
    CHECK(hvdft_worker_ended_peer() == -1);
  }));
}

void what_a_dead_worker_has_said_is_not_the_next_one_s() {
  Job job(2);
  const RankBlock& block = job.node->rank(0);
  hvdft_agent* agent = hvdft_agent_open(job.dir.c_str(), "steps", 0, 0);
  CHECK(agent != nullptr);
  char words[20];
  auto said = [&] {
    return hvdft_agent_last_words(agent, words, sizeof words), std::string(words);
  };
  hvdft_agent_started(agent, 0, 1);
  CHECK(!killed_at(kNever, [&] {
    job.become(0, 0);
    hvdft_worker_leave();
    hvdft_worker_last_words("an error");
    hvdft_worker_last_words("a later one");
    hvdft_worker_orderly_exit();
  }));
  CHECK(hvdft_agent_orderly_exit(agent) == 1 && said() == "an error");
  CHECK(block.sessions == 1);
  hvdft_agent_failed(agent, 1);
  CHECK(block.sessions == 0);
  hvdft_agent_started(agent, 1, 2);
  CHECK(hvdft_agent_orderly_exit(agent) == 0 && said().empty());
  hvdft_agent_close(agent);
}

}  // namespace

int main() {
  the_latest_end_is_known();
  who_has_ended_is_awaited_only_with_its_input();
  what_a_dead_worker_has_said_is_not_the_next_one_s();
}
