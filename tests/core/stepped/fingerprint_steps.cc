// Fingerprints, read while their writer goes on: at every step of the reader, what it gets is
// whole, and it never misses what has come.
#include <cstring>
#include <functional>
#include <string>

#include "arena/memory.h"
#include "hvd_ft_snapshots.h"
#include "steps.h"

using namespace hvdft;

namespace {

constexpr uint64_t kBytes = 400;

std::string data_of(uint64_t cut) { return std::string(kBytes, static_cast<char>('a' + cut)); }

// Rank 0 is this process, rank 1 writes.
struct Reader {
  explicit Reader(const Job& job) : job(job) {
    job.become(0, 0);
    uint64_t begin;
    CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
  }

  void publish(uint64_t cut) const {
    publish_fingerprints(job.node->fingerprints(1), cut_key(0, cut), data_of(cut).data(), kBytes);
  }
  Loop& writers() const { return job.node->rank(1).loops[0]; }

  int64_t read(uint64_t cut, std::string* data) const {
    char found[kBytes];
    int64_t code = hvdft_worker_fingerprints(1, 0, cut, found, sizeof found);
    if (code > 0) data->assign(found, static_cast<size_t>(code));
    return code;
  }

  const Job& job;
};

// What comes of reading cut 2 if the writer does `act` at each step of the reader.
void at_each_step(const std::function<void(const Reader&)>& before,
                  const std::function<void(const Reader&)>& act,
                  const std::function<bool(int64_t)>& is_right) {
  for (uint64_t number = 0;; ++number) {
    Job job(2);
    bool interrupted = false;
    CHECK(!killed_at(kNever, [&] {
      at_step = nullptr;
      Reader reader(job);
      before(reader);
      std::string data;
      int64_t code = 0;
      interrupted =
          interrupted_at(number, [&] { code = reader.read(2, &data); }, [&] { act(reader); });
      CHECK(is_right(code) && (code <= 0 || data == data_of(2)));
      if (!interrupted) _exit(0);
      job.node->header().stop = 1;  // told to the parent
    }));
    if (job.node->header().stop != 1) {
      CHECK(number > 4);
      return;
    }
  }
}

void who_passes_a_cut_after_it_came_is_found() {
  at_each_step([](const Reader& reader) { reader.publish(1); },
               [](const Reader& reader) {
                 reader.publish(2);
                 reader.writers().passed_cut = 2;
               },
               [](int64_t code) { return code == kBytes || code == HVDFT_AGAIN; });
}

void what_is_overwritten_is_not_read_torn() {
  at_each_step([](const Reader& reader) { reader.publish(2); },
               [](const Reader& reader) {
                 reader.publish(3);
                 reader.publish(4);
               },
               [](int64_t code) { return code == kBytes || code == HVDFT_ETRUNCATED; });
}

// A restarted writer comes to the cut again, and is killed when it has begun to publish it: the
// next one does it.
void what_is_withdrawn_comes_again() {
  at_each_step([](const Reader& reader) { reader.publish(2); },
               [](const Reader& reader) { withdraw(reader.job.node->fingerprints(1)[0].cut); },
               [](int64_t code) { return code == kBytes || code == HVDFT_AGAIN; });
}

// A writer that is killed at each store, comes to the cut again, and publishes the same.
void a_writer_is_killed() {
  uint64_t number = 0;
  for (bool killed = true; killed; ++number) {
    Job job(2);
    killed = killed_at(number, [&] {
      Reader reader(job);
      for (uint64_t cut : {1, 2, 3}) reader.publish(cut);
    });
    CHECK(!killed_at(kNever, [&] {
      Reader reader(job);
      std::string data;
      for (uint64_t cut : {1, 2, 3}) {
        int64_t code = reader.read(cut, &data);
        CHECK(code == kBytes ? data == data_of(cut)
                             : code == HVDFT_AGAIN || code == HVDFT_ETRUNCATED);
      }
      for (uint64_t cut : {2, 3}) reader.publish(cut);
      CHECK(reader.read(2, &data) == kBytes && data == data_of(2));
      CHECK(reader.read(3, &data) == kBytes && data == data_of(3));
      CHECK(reader.read(4, &data) == HVDFT_AGAIN);
    }));
  }
  CHECK(number > 10);
}

void what_never_comes_is_known() {
  Job job(2);
  CHECK(!killed_at(kNever, [&] {
    Reader reader(job);
    std::string data;
    CHECK(reader.read(2, &data) == HVDFT_AGAIN);
    reader.publish(2);
    reader.writers().given_up = 1;
    CHECK(reader.read(2, &data) == kBytes);
    // Whoever has given a cut up takes no part in it, whatever it published before.
    reader.writers().given_up = 2;
    CHECK(reader.read(2, &data) == HVDFT_ETRUNCATED);
    CHECK(reader.read(3, &data) == HVDFT_AGAIN);
    reader.writers().passed_cut = 3;
    CHECK(reader.read(3, &data) == HVDFT_ETRUNCATED);
    CHECK(reader.read(4, &data) == HVDFT_AGAIN);
    reader.writers().ended = 1;
    CHECK(reader.read(4, &data) == HVDFT_ETRUNCATED);
    char small[kBytes / 2];
    reader.writers().given_up = 0;
    CHECK(hvdft_worker_fingerprints(1, 0, 2, small, sizeof small) == HVDFT_EINVAL);
  }));
}

// A rank that waits in a collective beyond a boundary takes no snapshot there any more; unless it
// has begun one, whose fingerprints another thread is about to publish.
void who_is_beyond_the_boundary_does_not_come() {
  Job job(2);
  CHECK(!killed_at(kNever, [&] {
    Reader reader(job);
    std::string data;
    RankBlock& other = job.node->rank(1);
    CHECK(hvdft_worker_snapshot_begin(0, 5, 7) == HVDFT_OK);
    other.executed = 7;
    CHECK(reader.read(5, &data) == HVDFT_AGAIN);
    other.pending = 1;
    CHECK(reader.read(5, &data) == HVDFT_ETRUNCATED);
    CHECK(reader.read(6, &data) == HVDFT_AGAIN);  // not the one that is begun
    other.executed = 6;
    CHECK(reader.read(5, &data) == HVDFT_AGAIN);
    other.executed = 8;
    other.loops[0].begun_cut = 5;
    CHECK(reader.read(5, &data) == HVDFT_AGAIN);
    reader.publish(5);
    CHECK(reader.read(5, &data) == kBytes);
  }));
}

// It comes to the boundary with its last op: no tensor is pending when that is executed. It may
// have come further by the time that it is looked at again.
void who_comes_to_the_boundary_is_awaited() {
  for (bool goes_on : {false, true}) {
    at_each_step(
        [](const Reader& reader) {
          CHECK(hvdft_worker_snapshot_begin(0, 2, 7) == HVDFT_OK);
          reader.job.node->rank(1).executed = 6;
          reader.job.node->rank(1).pending = 1;
        },
        [goes_on](const Reader& reader) {
          RankBlock& other = reader.job.node->rank(1);
          other.pending = 0;
          other.executed = 7;
          if (!goes_on) return;
          other.loops[0].begun_cut = 2;
          other.pending = 1;
        },
        [](int64_t code) { return code == HVDFT_AGAIN; });
  }
}

void away_is_who_is_not_there_or_not_yet_back() {
  Job job(3);
  CHECK(!killed_at(kNever, [&] {
    Reader reader(job);
    for (uint32_t state : {HVDFT_STARTING, HVDFT_RUNNING, HVDFT_WAITING, HVDFT_DONE}) {
      job.node->rank(2).state = state;
      CHECK(hvdft_worker_any_away() == 0);
    }
    for (uint32_t state : {HVDFT_RESTARTING, HVDFT_REPLAYING}) {
      job.node->rank(2).state = state;
      CHECK(hvdft_worker_any_away() == 1);
    }
    job.node->rank(2).state = HVDFT_DONE;
    job.node->rank(0).state = HVDFT_REPLAYING;  // the process itself
    CHECK(hvdft_worker_any_away() == 0);
  }));
}

// An agent that is lost with its host tells nobody: no leader is at work until the next one comes.
void away_is_everybody_while_there_are_no_agents() {
  Job job(1, 2);
  CHECK(!killed_at(kNever, [&] {
    at_step = nullptr;
    Reader reader(job);
    NodeHeader& h = job.node->header();
    for (auto* sign : {&h.naps, &h.looks, &h.sent_messages}) {
      sign->fetch_add(1);
      CHECK(hvdft_worker_any_away() == 0);
      while (hvdft_worker_any_away() == 0) {
      }
    }
  }));
}

void take_shared(uint64_t cut) {
  void* room;
  CHECK(hvdft_worker_snapshot_begin(0, cut, 0) == HVDFT_OK);
  CHECK(hvdft_worker_snapshot_room(0, 1, &room) == HVDFT_OK);
  hvdft_snapshot snapshot{cut, 0, 1, 1, 7};
  CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
}

// Rank 0 has two snapshots, and one of another node may have to start from the older one. It waits
// for that rank before it overwrites it, unless that rank has passed the boundary: it would need
// this rank's input to come to the next one.
void who_passes_a_cut_elsewhere_is_not_awaited() {
  Job job(1, 2);
  CHECK(!killed_at(kNever, [&] {
    Reader reader(job);
    RankBlock& other = job.node->rank(1);
    take_shared(2);
    CHECK(hvdft_worker_snapshot_owed(0) == 0);
    take_shared(4);
    CHECK(hvdft_worker_snapshot_settle(0) == HVDFT_OK && hvdft_worker_snapshot_owed(0) == 1);
    auto begin = [](uint64_t cut, uint64_t at) { return hvdft_worker_snapshot_begin(0, cut, at); };
    CHECK(begin(6, 7) == HVDFT_AGAIN);
    other.pending = 1;
    CHECK(begin(6, 7) == HVDFT_AGAIN);
    other.executed = 7;
    CHECK(grow_fingerprints(*job.node, 1) == HVDFT_OK);
    reader.publish(6);  // it is about to take it
    CHECK(begin(6, 7) == HVDFT_AGAIN);
    CHECK(begin(8, 8) == HVDFT_AGAIN && reader.job.node->rank(0).loops[0].given_up == 0);
    CHECK(begin(8, 7) == 1 && job.node->rank(0).loops[0].given_up == 8);
    CHECK(hvdft_worker_snapshot_owed(0) == 1);
    other.pending = 0;
    CHECK(begin(10, 7) == HVDFT_AGAIN);
    job.node->header().oldest[0] = cut_key(0, 2);
    CHECK(hvdft_worker_snapshot_owed(0) == 0);
    other.pending = 1;
    CHECK(begin(10, 7) == HVDFT_OK);
  }));
}

}  // namespace

int main() {
  away_is_everybody_while_there_are_no_agents();
  who_passes_a_cut_elsewhere_is_not_awaited();
  who_passes_a_cut_after_it_came_is_found();
  what_is_overwritten_is_not_read_torn();
  what_is_withdrawn_comes_again();
  a_writer_is_killed();
  what_never_comes_is_known();
  who_is_beyond_the_boundary_does_not_come();
  who_comes_to_the_boundary_is_awaited();
  away_is_who_is_not_there_or_not_yet_back();
}
