// A chain of three nodes, whose mirrors are killed at every store of what they do: the middle one
// passes on what the last one tells. The next generation brings everything to its end, and nothing
// twice.
#include <cstring>
#include <vector>

#include "../joined_nodes.h"
#include "hvd_ft_checkpoints.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr int kLast = 2;
constexpr uint64_t kJoined = 77, kTerm = 3;

void append(JoinedNodes& job, const std::vector<uint64_t>& ops) {
  for (uint64_t bytes : ops) {
    OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
    CHECK(job.log(0).append(op, "respsig") == HVDFT_OK);
  }
  job.log(0).publish();
}

void happens(JoinedNodes& job) {
  CHECK(job.log(0).keep(0) == HVDFT_OK);
  job.log(0).drop(1);
  job.log(0).decided(2);
  append(job, {300, 70});
  job.node(0).rank(kLast).entered = kJoined;
  job.node(0).rank(kLast).mail_taken = 6;
  job.node(0).header().term = kTerm;
  publish_fingerprints(job.node(0).fingerprints(0), cut_key(0, 5), "zero's", 6);
  job.node(0).push_event({1, HVDFT_EV_CHECKPOINT, 0, 0, 0, 2});
  job.node(1).push_event({1, HVDFT_EV_SHARE, 1, 0, 0, 3});

  Node& last = job.node(kLast);
  last.push_event({1, HVDFT_EV_STARTED, kLast, 0, 0, 4});
  last.push_event({1, HVDFT_EV_SHARE, kLast, 0, 0, 5});
  last.push_event({1, HVDFT_EV_SNAPSHOT, kLast, 0, 0, 6});
  RankBlock& mine = last.rank(kLast);
  mine.mail_term = kTerm;
  mine.mail_bytes = 6;
  std::memcpy(last.mail(kLast), "tensor", 6);
  mine.mail_sequence = 2;
  publish_fingerprints(last.fingerprints(kLast), cut_key(0, 7), "prints", 6);
  mine.contributed = position(5, 0);
  mine.state = HVDFT_DONE;
}

// The details of what is in a list, of events for all or of any; one may be there twice, in a row.
std::vector<uint64_t> details(const EventList& list, uint64_t count, bool for_all) {
  std::vector<uint64_t> found;
  for (uint64_t n = 0; n < count; ++n) {
    hvdft_event event{};
    CHECK(list.read(n, &event, 1) == 1);
    bool counts = event.type != HVDFT_EV_LOST && (!for_all || is_for_all(event));
    if (counts && (found.empty() || found.back() != event.detail)) found.push_back(event.detail);
  }
  return found;
}

bool has(const std::vector<uint64_t>& found, uint64_t detail, uint64_t times) {
  return std::count(found.begin(), found.end(), detail) == static_cast<int64_t>(times);
}

void check_all_is_there(JoinedNodes& job) {
  for (int n = 0; n < job.nodes(); ++n) {
    Node& node = job.node(n);
    const NodeHeader& h = node.header();
    CHECK(h.stop == 0 && h.log_length == 5 && h.term == kTerm && h.kept == 1);
    CHECK(h.decided_before == 2 && node.record(1) == nullptr);
    for (uint64_t id : {0, 2, 3, 4}) {
      const Record &mine = *job.node(0).record(id), *copy = node.record(id);
      CHECK(copy != nullptr && copy->first_segment == mine.first_segment);
      CHECK(std::memcmp(copy + 1, "respsig", 8) == 0);
    }
    CHECK(node.rank(kLast).state == HVDFT_DONE && node.rank(kLast).contributed == position(5, 0));
    const Fingerprints* zeros = node.fingerprints(0);
    CHECK(zeros[0].cut == cut_key(0, 5) || zeros[1].cut == cut_key(0, 5));
    std::vector<uint64_t> found = details(node.events(), h.event_count, true);
    for (uint64_t detail : {1, 2, 3, 5}) CHECK(has(found, detail, 1));
  }
  const RankBlock& seen = job.node(0).rank(kLast);
  CHECK(seen.mail_sequence == 2 && std::string(job.node(0).mail(kLast), 6) == "tensor");
  const Fingerprints* prints = job.node(0).fingerprints(kLast);
  CHECK(prints[0].cut == cut_key(0, 7) || prints[1].cut == cut_key(0, 7));
  const RankBlock& last = job.node(kLast).rank(kLast);
  CHECK(last.entered == kJoined && last.mail_taken == 6);
  std::vector<uint64_t> report =
      details(job.node(0).report(), job.node(0).header().report_count, false);
  for (uint64_t detail = 1; detail <= 6; ++detail) CHECK(has(report, detail, 1));
  auto at = [&](uint64_t detail) { return std::find(report.begin(), report.end(), detail); };
  CHECK(at(4) < at(5) && at(5) < at(6));
}

// An event that was being written is lost; readers find that out after a second, each time.
void find_lost(Event* slots, uint64_t count) {
  for (uint64_t n = 0; n < count; ++n) {
    if (slots[n].published == n + 1) continue;
    slots[n].event = hvdft_event{};
    slots[n].published = n + 1;
  }
}

bool killed_while_it_goes_over(uint64_t at) {
  JoinedNodes job(3, 1, 1);
  append(job, {100, 0, 2000});
  job.node(0).push_event({1, HVDFT_EV_CHECKPOINT, 0, 0, 0, 1});
  job.renew();
  job.carry();
  happens(job);
  bool killed = killed_at(at, [&] { job.carry(); });
  for (int n = 0; n < job.nodes(); ++n) {
    Node& node = job.node(n);
    find_lost(node.event_slots(), node.header().event_count);
    if (n == 0) find_lost(node.report_slots(), node.header().report_count);
  }
  job.renew();
  job.carry();
  check_all_is_there(job);
  job.renew();
  job.carry();
  check_all_is_there(job);
  return killed;
}

}  // namespace

int main() {
  uint64_t kills = through(killed_while_it_goes_over);
  CHECK(kills > 150);
  std::printf("killed at each of %lu stores\n", kills);
}
