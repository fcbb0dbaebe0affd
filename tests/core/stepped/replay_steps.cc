// What a restarted worker sees, and does not see, until it has caught up.
#include <cstring>
#include <set>

#include "../op_rules.h"
#include "oplog/log_writer.h"
#include "protocol/enter_request.h"
#include "steps.h"

using namespace hvdft;

namespace {

// A killed incarnation's request is not granted to the next one: the coordinator would count
// announcements that the new one has not made.
void a_join_is_granted_to_the_incarnation_that_asked() {
  Job job(2);
  LogWriter log_writer(*job.node, kOpRules);
  log_writer.open();
  auto join = [&](int incarnation) {
    CHECK(!killed_at(kNever, [&] {
      job.become(1, incarnation);
      CHECK(hvdft_worker_enter(0) == HVDFT_OK && !hvdft_worker_entered());
    }));
    CHECK(log_writer.step());
  };
  join(0);
  uint64_t before = job.node->header().term;
  join(1);
  CHECK(job.node->header().term > before);  // what the first one announced is void
}

// A session that begins where the one before began, with no op between, is granted anew: in the
// same term a coordinator that is still in the session before would count, and lose, what this rank
// announces in its next one.
void a_session_without_an_op_is_followed_by_another_term() {
  for (int left = 0; left < 2; ++left) {
    Job job(2);
    LogWriter log_writer(*job.node, kOpRules);
    log_writer.open();
    uint64_t first = job.node->header().term;
    auto enter = [&] {
      CHECK(hvdft_worker_enter(0) == HVDFT_OK && !hvdft_worker_entered());
      CHECK(log_writer.step());
      CHECK(hvdft_worker_entered());
    };
    CHECK(!killed_at(kNever, [&] {
      job.become(left, 0);
      enter();
      CHECK(hvdft_worker_term() == first);
      for (uint64_t session = 1; session < 4; ++session) {
        hvdft_worker_leave();
        CHECK(!hvdft_worker_entered());
        enter();
        CHECK(hvdft_worker_term() == first + session);
        CHECK(hvdft_worker_enter(0) == HVDFT_OK && hvdft_worker_entered());
        CHECK(!log_writer.step());  // the same request once more
      }
    }));
  }
}

// No two requests are alike, and none is 0: other processes, other sessions, other logs.
void requests_to_enter_differ() {
  std::set<uint64_t> seen;
  uint64_t made = 0;
  for (uint64_t session : {0, 1, 2, 4095}) {
    for (uint32_t incarnation : {0u, 1u, 4094u}) {
      for (uint64_t length : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 40) - 1}) {
        uint64_t request = enter_request(incarnation, session, length);
        CHECK(request != 0 && log_length_of(request) == length);
        seen.insert(request);
        ++made;
      }
    }
  }
  CHECK(seen.size() == made);
  CHECK(enter_request(4095, 4096, 0) != 0);
}

// The log may be truncated before a snapshot of an earlier incarnation, so it gets copies.
void who_is_replayed_gets_no_views() {
  Job job(2);
  LogStore store(*job.node);
  CHECK(store.append({HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 1000, 4, 4, 0}, "respsig") ==
        HVDFT_OK);
  store.publish();
  CHECK(!killed_at(kNever, [&] {
    job.become(1, 1);
    hvdft_record record;
    CHECK(hvdft_worker_record(0, &record) == HVDFT_OK);
    CHECK(hvdft_worker_view(0, record.result, record.result_bytes) == nullptr);
    hvdft_worker_caught_up();
    CHECK(hvdft_worker_view(0, record.result, record.result_bytes) != nullptr);
  }));
}

}  // namespace

int main() {
  a_join_is_granted_to_the_incarnation_that_asked();
  a_session_without_an_op_is_followed_by_another_term();
  requests_to_enter_differ();
  who_is_replayed_gets_no_views();
}
