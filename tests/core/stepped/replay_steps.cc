// What a restarted worker sees, and does not see, until it has caught up.
#include <cstring>

#include "../op_rules.h"
#include "oplog/log_writer.h"
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
  who_is_replayed_gets_no_views();
}
