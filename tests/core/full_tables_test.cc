// What happens at the end of the log's tables: the op that finds no place is refused with a line
// that says why, and what is in the log stays there. (Events, divergences, rosters and training
// loops: event_list_test.cc, mirror_test.cc, roster_steps.cc, many_loops_test.cc, attach_test.cc.)
#include <cstring>

#include "joined_nodes.h"

using namespace hvdft;

namespace {

OpHead op_of(uint32_t kind) { return {kind, HVDFT_UINT8, HVDFT_SUM, 0, 0, 4, 4, 0}; }

int append(LogStore& store, uint32_t kind = HVDFT_REDUCE) {
  return store.append(op_of(kind), "respsig");
}

bool told(const char* text) { return std::strstr(hvdft_error(), text) != nullptr; }

void check_all(const Node& node, uint64_t from, uint64_t to) {
  for (uint64_t id = from; id < to; ++id) CHECK(node.record(id) != nullptr);
}

void ops_since_the_last_snapshot() {
  JoinedNodes job(1, 1);
  const Node& node = job.node(0);
  LogStore& store = job.log(0);
  for (uint64_t i = 0; i < kIndexEntries; ++i) CHECK(append(store) == HVDFT_OK);
  store.publish();
  CHECK(append(store) == HVDFT_ENOSPACE && told("262144 ops since the last snapshot; take"));
  check_all(node, 0, kIndexEntries);
  CHECK(store.length() == kIndexEntries);
  store.drop(0);  // a snapshot makes room
  store.decided(1);
  CHECK(append(store) == HVDFT_OK);
  store.publish();
  CHECK(append(store) == HVDFT_ENOSPACE);
  check_all(node, 1, kIndexEntries + 1);
}

void ops_outside_of_loops() {
  JoinedNodes job(1, 1);
  const Node& node = job.node(0);
  LogStore& store = job.log(0);
  for (uint64_t i = 0; i <= kKeptEntries; ++i) CHECK(append(store) == HVDFT_OK);
  store.publish();
  for (uint64_t i = 0; i < kKeptEntries; ++i) CHECK(store.keep(i) == HVDFT_OK);
  CHECK(store.keep(kKeptEntries) == HVDFT_ENOSPACE && told("more than 65536 collectives outside"));
  store.decided(kKeptEntries);
  check_all(node, 0, kKeptEntries + 1);
}

// The coordinator proposes no more of them (ft_known_requests.cc, ft_choices_test.cc).
void notes() {
  JoinedNodes job(1, 1);
  LogStore& store = job.log(0);
  for (uint32_t kind : {HVDFT_REQUESTS, HVDFT_TUNED}) {
    for (int i = 0; i < HVDFT_NOTES; ++i) CHECK(append(store, kind) == HVDFT_OK);
    CHECK(append(store, kind) == HVDFT_EINVAL && told("1024 of these are all that there may be"));
    CHECK(append(store) == HVDFT_OK);  // others go on
    store.publish();
    CHECK(job.node(0).note(kind, HVDFT_NOTES - 1) != 0 && job.node(0).note(kind, HVDFT_NOTES) == 0);
  }
}

}  // namespace

int main() {
  ops_since_the_last_snapshot();
  ops_outside_of_loops();
  notes();
}
