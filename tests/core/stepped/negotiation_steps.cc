// Announcements and proposals, with another rank acting between any two accesses to memory.
#include "../op_rules.h"
#include "oplog/log_writer.h"
#include "steps.h"
#include "worker/negotiation.h"

using namespace hvdft;

namespace {

// One worker's part, as its process has it.
struct Rank {
  Rank(const Job& job, int rank, uint32_t incarnation)
      : state(*job.node, rank, incarnation),
        log(job.node->rank(rank), incarnation, state),
        negotiation(*job.node, rank, incarnation, log) {}
  RankState state;
  LogCursor log;
  Negotiation negotiation;
};

// In a new term a rank may overwrite what was not taken: the coordinator takes the old announcement
// as a whole, or nothing.
void what_is_overwritten_while_it_is_taken_does_not_count() {
  uint64_t taken = 0, refused = 0;
  for (uint64_t number = 0;; ++number) {
    Job job(2);
    Rank coordinator(job, 0, 0), other(job, 1, 0);
    std::string before(200, 'b'), after(300, 'a');
    CHECK(other.negotiation.announce(1, before.data(), before.size()) == HVDFT_OK);
    const void* blob = nullptr;
    int64_t bytes = 0;
    bool interrupted = interrupted_at(
        number, [&] { bytes = coordinator.negotiation.take(1, 1, &blob); },
        [&] { CHECK(other.negotiation.announce(2, after.data(), after.size()) == HVDFT_OK); });
    if (bytes < 0) {
      CHECK(bytes == HVDFT_AGAIN);
      CHECK(coordinator.negotiation.take(1, 2, &blob) == static_cast<int64_t>(after.size()));
      CHECK(std::string(static_cast<const char*>(blob), after.size()) == after);
      ++refused;
    } else {
      CHECK(std::string(static_cast<const char*>(blob), static_cast<size_t>(bytes)) == before);
      ++taken;
    }
    if (!interrupted) break;
  }
  CHECK(taken > 0 && refused > 20);
}

// A mailbox is taken while its owner finds it full: either the owner sees that, or it is woken.
void who_finds_a_full_mailbox_is_woken() {
  uint64_t written = 0;
  for (bool interrupted = true; interrupted; ++written) {
    Job job(2);
    Rank coordinator(job, 0, 0), other(job, 1, 0);
    CHECK(other.negotiation.announce(1, "one", 3) == HVDFT_OK);
    const void* blob = nullptr;
    auto take = [&] { CHECK(coordinator.negotiation.take(1, 1, &blob) == 3); };
    uint32_t ticket = job.node->rank(1).worker_doorbell.load();
    int code = HVDFT_OK;
    interrupted =
        interrupted_at(written, [&] { code = other.negotiation.announce(1, "more", 4); }, take);
    CHECK(code == (interrupted ? HVDFT_OK : HVDFT_AGAIN));
    if (interrupted) continue;
    take();
    CHECK(job.node->rank(1).worker_doorbell.load() != ticket);
  }
  CHECK(written > 4);
}

// It lies in one place, and the log writer has to read it first: an earlier incarnation's as well.
void a_proposal_waits_for_the_answer_to_the_one_before() {
  Job job(1);
  LogWriter log_writer(*job.node, kOpRules);
  log_writer.open();
  Rank first(job, 0, 0), next(job, 0, 1);
  hvdft_op op{};
  op.response = "";
  op.signature = "op";
  CHECK(first.negotiation.may_propose());
  CHECK(first.negotiation.propose(1, &op, 1) == HVDFT_OK);
  CHECK(!first.negotiation.may_propose() && !next.negotiation.may_propose());
  CHECK(log_writer.step());
  CHECK(first.negotiation.may_propose() && next.negotiation.may_propose());
}

}  // namespace

int main() {
  what_is_overwritten_while_it_is_taken_does_not_count();
  who_finds_a_full_mailbox_is_woken();
  a_proposal_waits_for_the_answer_to_the_one_before();
}
