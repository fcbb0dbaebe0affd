// A job's leaders - log writer, mirror, both halves of the ring, gathered ops - killed at every
// store, in two generations one after the other, and continued by a third. Results have the bits of
// an undisturbed job, nothing comes twice, and nobody waits for ever. Then the same with other
// parts and other nodes going on at any access of the ring's halves.
#include <algorithm>
#include <cstdio>

#include "killed_leaders.h"

using namespace hvdft;

namespace {

const Script kAll{{kLeastNodeSegment, 400, kLeastRingSegment, 0},
                  {{HVDFT_REDUCE, 100000},
                   {HVDFT_REDUCE, 80},
                   {HVDFT_REDUCE, 0},
                   {HVDFT_COPY, 40000},
                   {HVDFT_REDUCE, 400},
                   {HVDFT_REDUCE, 3 * 16384 + 64}},
                  2,
                  true,
                  2};
// Only each node's own ranks are summed; what is copied goes round the ring.
const Script kAblated{{kLeastNodeSegment, 400, kLeastRingSegment, 1},
                      {{HVDFT_REDUCE, 40000},
                       {HVDFT_COPY, 80},
                       {HVDFT_REDUCE, 80},
                       {HVDFT_COPY, 20000},
                       {HVDFT_REDUCE, 100}}};

// Returns how many of the two deaths there were.
int killed_twice(const Script& script, Of of, uint64_t first, uint64_t second, Others others) {
  wires::keeps_copies = first % 2 == 1;
  LeadingJob job(script);
  int killed = killed_at_store(job, of, first, others) ? 1 : 0;
  if (killed == 1 && killed_at_store(job, Of::kRing, second, others)) ++killed;
  job.run();
  return killed;
}

// Stores of the first generation, each with one of the ring's in the second.
uint64_t kill_everywhere(const Script& script, Of of, uint64_t stride, Others others) {
  uint64_t store = 0, kills = 0;
  while (killed_twice(script, of, store, store * 7 % 101, others) > 0) {
    store += stride;
    ++kills;
  }
  std::printf("killed at %lu of %lu stores\n", kills, store);
  return kills;
}

// The ring's stores of the second generation.
uint64_t kill_again(const Script& script, uint64_t first, uint64_t stride, Others others) {
  uint64_t second = 0;
  while (killed_twice(script, Of::kRing, first, second, others) == 2) second += stride;
  std::printf("and again at some of %lu\n", second);
  return second;
}

// Which halves count, of all whose step it is.
using Counts = bool(const ActedLeader& leader, const NodeHeader& header, const LeaderPart* part);
bool every_half(const ActedLeader& leader, const NodeHeader&, const LeaderPart* part) {
  return part == &*leader.sender || part == &*leader.receiver;
}
// While it comes from op 0 of kAll to 1 and 2, in which it has nothing to send: all others go on
// until these are truncated, and then it has to send again.
bool passed_by_truncation(const ActedLeader& leader, const NodeHeader& h, const LeaderPart* part) {
  EdgePosition sent = h.pair_log.sent.at();
  return part == &*leader.sender && sent.op == 0 && sent.position >= 8 && h.log_length == 3;
}

// At one access of a half that counts all that run beside it go on as far as they can.
bool overtaken_at(const Script& script, uint64_t number, Counts counts) {
  wires::keeps_copies = number % 2 == 1;
  LeadingJob job(script);
  bool done = false;
  job.at_leaders_step = [&, left = number](bool) mutable {
    const Place* at = job.acting_at;
    const LeaderPart* part = job.acting;
    if (part == nullptr || done) return;
    const ActedLeader& leader = *at->leader;
    if (!counts(leader, at->node().header(), part)) return;
    if (left-- != 0) return;
    done = true;
    job.others_go_on([&](const Place& place, const LeaderPart* other) {
      return &place != at || !leader.share_a_thread(part, other);
    });
  };
  job.run();
  return done;
}

}  // namespace

int main(int argc, char**) {
  bool small = argc > 1;
  for (const Script* script : {&kAll, &kAblated}) {
    for (bool keeps : {false, true}) {
      wires::keeps_copies = keeps;
      for (int late = -1; late < kNodes; ++late) {
        LeadingJob job(*script);
        job.late = late;
        job.run();
      }
    }
  }
  uint64_t ring = small ? 5 : 1;
  uint64_t kills = kill_everywhere(kAll, Of::kRing, ring, Others::kGoOn);
  CHECK(kills > 80);
  if (!small) kill_everywhere(kAll, Of::kRing, ring, Others::kDie);
  CHECK(kill_again(kAll, 220, ring, Others::kDie) > 50);
  for (const Script* script : {&kAll, &kAblated}) {
    CHECK(kill_everywhere(*script, Of::kLogWriter, small ? 5 : 1, Others::kDie) > 10);
  }
  CHECK(kill_everywhere(kAll, Of::kRest, small ? 151 : 7, Others::kDie) > 20);
  CHECK(kill_everywhere(kAblated, Of::kRing, ring, Others::kGoOn) > 20);
  uint64_t accesses = 0;
  while (overtaken_at(kAll, accesses, every_half)) accesses += small ? 97 : 1;
  CHECK(accesses > 1000);
  uint64_t passed = 0;
  while (overtaken_at(kAll, passed, passed_by_truncation)) ++passed;
  CHECK(passed > 20);
  std::printf("overtaken at some of %lu accesses\n", accesses);
}
