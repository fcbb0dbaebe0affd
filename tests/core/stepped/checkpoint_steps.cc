// A checkpoint writer copies a slot while its rank takes snapshots: between any two steps of the
// one the other acts. A copy that counts is never torn, and is the snapshot that it is said to be.
#include <cstdio>
#include <vector>

#include "../op_rules.h"
#include "hvd_ft_checkpoints.h"
#include "oplog/log_writer.h"
#include "steps.h"

using namespace hvdft;

namespace {

// More than is copied at once, and of different sizes, so that a snapshot's length is not that of
// the one before.
uint64_t size_of(uint64_t cut) { return (300 << 10) * (1 + cut % 3) + cut % 7; }
unsigned char content_of(uint64_t cut) { return static_cast<unsigned char>(cut * 37); }

void take(uint64_t cut) {
  void* room;
  CHECK(hvdft_worker_snapshot_begin(0, cut, 0) == HVDFT_OK);
  CHECK(hvdft_worker_snapshot_room(0, size_of(cut), &room) == HVDFT_OK);
  uint64_t half = size_of(cut) / 2;
  std::memset(room, content_of(cut), half);
  step(true);
  std::memset(static_cast<char*>(room) + half, content_of(cut), size_of(cut) - half);
  step(true);
  hvdft_snapshot snapshot{cut, 0, size_of(cut), cut, 0};
  CHECK(hvdft_worker_snapshot_deliver(0, &snapshot) == HVDFT_OK);
}

// Copies what is in a slot; the cut that it had, or 0.
uint64_t copied(hvdft_checkpointer* checkpointer, int slot) {
  hvdft_snapshot snapshot;
  if (hvdft_checkpointer_slot(checkpointer, 0, 0, slot, &snapshot) == 0) return 0;
  CHECK(snapshot.bytes == size_of(snapshot.cut) && snapshot.stripe == snapshot.cut);
  std::vector<unsigned char> copy(snapshot.bytes);
  int code = hvdft_checkpointer_copy(checkpointer, 0, 0, slot, &snapshot, copy.data());
  CHECK(code == 0 || code == 1);
  if (code == 0) return 0;
  for (unsigned char byte : copy) CHECK(byte == content_of(snapshot.cut));
  return snapshot.cut;
}

void interrupt_the_reader(hvdft_checkpointer* checkpointer, uint64_t* cut) {
  int torn = 0, whole = 0;
  for (int snapshots = 1; snapshots <= 3; ++snapshots) {
    for (int slot = 0; slot < 2; ++slot) {
      uint64_t number = 0;
      auto overwrite = [&] {
        for (int i = 0; i < snapshots; ++i) take(++*cut);
      };
      auto read = [&] { ++(copied(checkpointer, slot) == 0 ? torn : whole); };
      while (interrupted_at(number, read, overwrite)) ++number;
      CHECK(number >= 3);
    }
  }
  std::printf("the reader is interrupted: %d copies count, %d do not\n", whole, torn);
  CHECK(torn > 0 && whole > 0);
}

void interrupt_the_writer(hvdft_checkpointer* checkpointer, uint64_t* cut) {
  int found = 0;
  uint64_t steps = 0;
  watched([&] { take(++*cut); },
          [&] {
            ++steps;
            uint64_t latest = std::max(copied(checkpointer, 0), copied(checkpointer, 1));
            CHECK(latest == *cut || latest == *cut - 1);  // the other slot stays
            found += latest == *cut;
          });
  std::printf("the writer is watched at %lu steps, %d of them with its snapshot\n", steps, found);
  CHECK(found > 0);
}

void ask_for_marks(const Job& job, hvdft_checkpointer* checkpointer) {
  LogWriter writer(*job.node, kOpRules);
  writer.open();
  while (writer.step()) {
  }
  CHECK(job.node->header().mark == 0);
  uint64_t from = 0;
  hvdft_event event;
  CHECK(hvdft_checkpointer_next(checkpointer, &from, &event) == 0);
  uint64_t position = hvdft_checkpointer_request(checkpointer);
  CHECK(position == job.node->header().log_length);
  CHECK(writer.step());
  CHECK(job.node->header().mark == position + 1);
  CHECK(!writer.step());  // once
  hvdft_checkpointer_wait(checkpointer, from, 0, 600000);
  CHECK(hvdft_checkpointer_next(checkpointer, &from, &event) == 1);
  CHECK(event.type == HVDFT_EV_CHECKPOINT && event.detail == position && event.rank == 0);
  CHECK(hvdft_checkpointer_next(checkpointer, &from, &event) == 0);
  CHECK(from == hvdft_checkpointer_event_count(checkpointer));
}

}  // namespace

int main() {
  Job job(1);
  auto* checkpointer = hvdft_checkpointer_open(job.dir.c_str(), "steps");
  CHECK(checkpointer != nullptr);
  CHECK(hvdft_checkpointer_open(job.dir.c_str(), "another") == nullptr);
  ask_for_marks(job, checkpointer);
  job.become(0, 0);
  CHECK(hvdft_checkpointer_loops(checkpointer, 0) == 0);
  uint64_t begin, cut = 0;
  CHECK(hvdft_worker_loop_begin(0, &begin) == HVDFT_OK);
  CHECK(hvdft_checkpointer_loops(checkpointer, 0) == 1);
  CHECK(copied(checkpointer, 0) == 0 && copied(checkpointer, 1) == 0);
  take(++cut);
  take(++cut);
  interrupt_the_reader(checkpointer, &cut);
  interrupt_the_writer(checkpointer, &cut);
  CHECK(hvdft_checkpointer_ended_well(checkpointer) == 0);
  job.node->rank(0).state = HVDFT_DONE;
  CHECK(hvdft_checkpointer_ended_well(checkpointer) == 1);
  job.node->stop(0, 1, "no");
  CHECK(hvdft_checkpointer_ended_well(checkpointer) == 0);
  hvdft_checkpointer_close(checkpointer);
}
