// A new node's arena, filled from another's by the calls that agents make (hvd_ft_rejoin.h).
#include "replication/node_copy.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arena/memory.h"
#include "arena/records.h"
#include "check.h"
#include "fresh_directory.h"
#include "hvd_ft_rejoin.h"
#include "oplog/log_store.h"
#include "protocol/node_order.h"

using namespace hvdft;

namespace {

constexpr int kRanks = 8, kNodes = 3;
constexpr uint64_t kLimit = 192 << 20, kGeneration = 3;
constexpr int kFirst[] = {0, 4, 6, 8};  // 4-2-2

struct Place {
  std::string dir = fresh_directory();
  hvdft_rejoining* handle = nullptr;
  std::unique_ptr<Node> node;

  explicit Place(int number) {
    CHECK(Node::create(dir, "copy", kRanks, kNodes, number, kFirst[number],
                       kFirst[number + 1] - kFirst[number], kLimit) == HVDFT_OK);
    handle = hvdft_rejoin_open(dir.c_str(), "copy");
    node = Node::open(dir, "copy", Node::kAgent);
    CHECK(handle != nullptr && node != nullptr);
  }
  ~Place() {
    hvdft_rejoin_close(handle);
    std::remove((dir + "/node.arena").c_str());
    std::remove(dir.c_str());
  }
};

// Ops of these sizes: gathered ones, and others; the result of op i is full of bytes i + 1.
const std::vector<uint64_t> kOps = {40, 12 << 20, 16 << 10, 200000, 0, 5 << 20, 96, 300000, 0};
constexpr uint64_t kComplete = 6;  // ops; the next is under way

void append_all(Node& node, LogStore& store) {
  for (uint64_t id = 0; id < kOps.size(); ++id) {
    uint32_t kind = kOps[id] > 0 ? HVDFT_REDUCE : id == 4 ? HVDFT_REQUESTS : HVDFT_TUNED;
    OpHead op{kind, HVDFT_FLOAT32, HVDFT_SUM, 0, kOps[id], 4, 4, 0};
    op.gathered = kOps[id] <= 16 << 10;
    CHECK(store.append(op, "respsig") == HVDFT_OK);
    std::memset(node.heap() + node.record(id)->result_offset, static_cast<int>(id + 1), kOps[id]);
  }
  store.publish();
}

void fill(const Place& from, const Place& to, bool whole = true) {
  auto at = [](const Place& place, uint64_t offset) {
    return static_cast<char*>(hvdft_rejoin_at(place.handle, offset));
  };
  std::vector<uint64_t> ranges(200);
  int64_t count = hvdft_rejoin_ranges(from.handle, kComplete, ranges.data(), 100);
  CHECK(count > 1 && count < 100);
  CHECK(hvdft_rejoin_ranges(from.handle, kComplete, nullptr, 0) == count);
  CHECK(hvdft_rejoin_make_room(to.handle, at(from, 0)) == HVDFT_OK);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(at(to, ranges[2 * i]), at(from, ranges[2 * i]), ranges[2 * i + 1]);
  }
  std::string head(1, ' ');  // as it comes over a network: at an odd address
  head.append(at(from, 0), hvdft_rejoin_head_bytes());
  int code = hvdft_rejoin_adopt(to.handle, head.data() + 1, kGeneration, 1000);
  CHECK((code == HVDFT_OK) == whole);
  CHECK(!whole || check_log(*to.node) == HVDFT_OK);
}

void resume(const Place& place) {
  hvdft_rejoin_resume at{kComplete, 9, 5};
  hvdft_rejoin_resume_at(place.handle, &at);
}

bool all_bytes(const char* data, uint64_t bytes, uint64_t value) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(data[i]) != value) return false;
  }
  return true;
}

void has_the_log(const Node& node, const Node& other) {
  const NodeHeader &h = node.header(), &theirs = other.header();
  CHECK(h.log_length.load() == kOps.size() && h.event_count.load() == theirs.event_count.load());
  for (uint32_t kind = 0; kind < kNoteKinds; ++kind) {  // ops 4 and 8
    CHECK(h.notes[kind][0].load() == 4 * kind + 4 + 1 && h.notes[kind][1].load() == 0);
  }
  CHECK(node.event_slots()[0].event.time_ns == 1001);  // by this host's clock
  CHECK(h.file.node == 1 && h.file.first_local == 4 && h.file.locals == 2);
  for (uint64_t id = 2; id < kOps.size(); ++id) {
    const Record &mine = *node.record(id), &its = *other.record(id);
    RingPlan plan = node.plan(mine);
    NodeOrder order = node.order(mine, plan);
    CHECK(mine.id == id && mine.first_segment == its.first_segment);
    CHECK(mine.first_given == order.first_given && mine.first_taken == order.first_taken);
    CHECK(plan.gathered() == (kOps[id] <= 16 << 10) && mine.partial_offset == its.partial_offset);
    bool complete = id < kComplete;
    CHECK(!complete || all_bytes(node.heap() + mine.result_offset, kOps[id], id + 1));
  }
  CHECK(node.record(0) != nullptr && node.record(1) == nullptr);  // kept, dropped
}

void its_ranks_begin_anew(const Node& node) {
  for (int r = 4; r < 6; ++r) {
    const RankBlock& block = node.rank(r);
    CHECK(block.loops[0].published.load() == 0 && block.slot_bytes.load() == 0);
    CHECK(block.mail_sequence.load() == kGeneration << 40);
    CHECK(block.mail_taken.load() == block.mail_sequence.load());
  }
  const RankBlock &trains = node.rank(4), &done = node.rank(5), &other = node.rank(0);
  CHECK(trains.state.load() == HVDFT_RESTARTING && trains.pid.load() == 0);
  CHECK(trains.incarnation.load() == 2 && trains.contributed.load() == position(kComplete, 0));
  CHECK(done.state.load() == HVDFT_DONE && done.contributed.load() == position(8, 0));
  CHECK(other.state.load() == HVDFT_RUNNING && other.asleep.load() == 0);
  CHECK(other.contributed.load() == position(7, 2));
  OpMoments at;  // of the other host's clock
  CHECK(!other.op_times.read(7, &at) && !other.ring_times.read(7, &at));
}

// Nobody reduces again what is complete, and everything after it is open.
void its_claims_are_those_of_the_op_under_way(const Node& node) {
  uint64_t first = node.record(kComplete)->first_segment;
  CHECK(node.header().final_segments.load() == first && first > kClaims);
  for (uint64_t n = first - kClaims; n < first + kClaims; ++n) {
    CHECK(reduced(node.header().claims[n % kClaims].word.load(), n) == (n < first));
  }
}

void goes_on(Node& node, uint64_t kept_bytes) {
  LogStore store(node);
  CHECK(store.length() == kOps.size() && store.gone() == 2);
  CHECK(store.append({HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 900000, 4, 4, 0}, "respsig") ==
        HVDFT_OK);
  const Record& next = *node.record(kOps.size());
  for (uint64_t id = 2; id < kOps.size(); ++id) {
    const Record& record = *node.record(id);
    RingPlan plan = node.plan(record);
    uint64_t partial = plan.gathered() ? plan.gather().bytes() : record.heap_bytes();
    for (ByteRange theirs :
         {ByteRange{record.result_offset, record.result_offset + record.heap_bytes()},
          ByteRange{record.partial_offset, record.partial_offset + partial}}) {
      CHECK(overlap(theirs, {next.result_offset, next.result_offset + 900000}).bytes() == 0);
    }
  }
  store.publish_room();
  CHECK(node.header().kept_bytes.load() == kept_bytes);
}

// Rank 5 has left in its second loop and returns, and so does rank 4 if its place has a host of its
// own; else it stays out, as it was on its way. Rank 6 is present, rank 7 may have to leave.
void ranks_return() {
  Place old(0), fresh(1);
  Node& node = *old.node;
  {
    LogStore store(node);
    append_all(node, store);
  }
  Roster& roster = node.header().rosters[0];
  roster.present[0].store(0b01001111);
  roster.mark.store(pack_mark(1, -1));
  roster.since.store(3);
  for (int r = 4; r < kRanks; ++r) {
    RankBlock& block = node.rank(r);
    block.state.store(r == 5 ? HVDFT_DONE : HVDFT_REPLAYING);
    block.returns.store(r == 4 || r == 6 ? kReturns : 0);
    block.loops_done.store(loops_ended(1));
    block.left_at.store(4);
    block.sessions.store(1);
    for (int loop : {0, 1}) {
      block.loops[loop].begin.store(2);
      block.loops[loop].published.store(12);
      block.loops[loop].ended.store(1);
      block.loops[loop].claimed[0].store(4096);
    }
  }
  hvdft_rejoin_lose(fresh.handle);
  fill(old, fresh);
  auto of = [&](int rank, int leaving) {
    return static_cast<Renewal>(hvdft_rejoin_renewal(old.handle, rank, leaving));
  };
  CHECK(of(5, 0) == Renewal::kReturns && of(5, 1) == Renewal::kGoesOn);
  CHECK(of(4, 0) == Renewal::kReturns && of(4, 1) == Renewal::kStaysOut);
  CHECK(of(6, 0) == Renewal::kGoesOn && of(7, 1) == Renewal::kGoesOn);
  for (const Place* place : {&old, &fresh}) {
    hvdft_rejoin_renew(place->handle, 5, static_cast<int>(Renewal::kReturns));
    hvdft_rejoin_renew(place->handle, 4, static_cast<int>(Renewal::kStaysOut));
    hvdft_rejoin_renew(place->handle, 6, static_cast<int>(Renewal::kGoesOn));
    resume(*place);
    const Node& n = *place->node;
    const RankBlock& back = n.rank(5);
    CHECK(back.state.load() == HVDFT_RESTARTING && back.returns.load() == kReturns);
    CHECK(back.left_at.load() == 0 && back.sessions.load() == 0 && back.pid.load() == 0);
    CHECK(back.loops[1].begin.load() == 0 && back.loops[1].published.load() == 0);
    CHECK(back.loops[1].ended.load() == 0);
    CHECK(n.rank(4).state.load() == HVDFT_DONE && n.rank(4).returns.load() == 0);
    CHECK(n.rank(6).state.load() == HVDFT_REPLAYING && n.rank(6).returns.load() == 0);
    CHECK(n.rank(6).loops[1].published.load() == 12);
  }
  // Earlier loops can be brought back; the memory of slots is counted as long as it is there.
  CHECK(node.rank(5).loops[0].published.load() == 12);
  CHECK(node.rank(5).loops[1].claimed[0].load() == 4096);
  CHECK(fresh.node->rank(5).contributed.load() == position(kComplete, 0));
}

// A rank may have more loops than a new arena has memory for.
void later_loops_are_copied() {
  Place from(0), to(1);
  LogStore store(*from.node);
  append_all(*from.node, store);
  for (int r : {1, 4, 7}) {
    CHECK(grow_loops(*from.node, r, 150) == HVDFT_OK);
    from.node->rank(r).loops[150].begin = 5;
  }
  fill(from, to);
  for (int r : {1, 7}) CHECK(to.node->rank(r).loop(150).begin == 5);
  CHECK(to.node->rank(4).loop(150).begin == 0);  // one of its own, which begins anew
  struct stat info{};
  CHECK(fstat(to.node->fd(), &info) == 0);
  CHECK(static_cast<uint64_t>(info.st_blocks) * 512 >= memory_now(*to.node).control);
}

}  // namespace

int main() {
  later_loops_are_copied();
  ranks_return();
  Place old(0), fresh(1);
  Node& node = *old.node;
  {
    LogStore store(node);
    append_all(node, store);
    CHECK(store.keep(0) == HVDFT_OK);
    store.drop(1);
    store.decided(2);
    store.publish_room();
  }
  node.header().pair_log.received.publish({kComplete, 3});
  node.header().term.store(7);
  node.header().mark.store(4);
  node.push_event({1, HVDFT_EV_STARTED, 0, 0, 0, 0});
  node.rank(0).state.store(HVDFT_RUNNING);
  node.rank(0).asleep.store(77);
  node.rank(0).contributed.store(position(7, 2));
  node.rank(0).op_times.begin(7, 1, 2);
  node.rank(0).ring_times.begin(7, 1, 2);
  node.rank(4).state.store(HVDFT_RUNNING);
  node.rank(4).pid.store(4711);
  node.rank(4).incarnation.store(2);
  node.rank(4).loops[0].published.store(12);
  node.rank(4).contributed.store(position(7, 0));
  node.rank(5).state.store(HVDFT_DONE);
  node.rank(5).contributed.store(position(8, 0));

  hvdft_rejoin_lose(fresh.handle);
  hvdft_rejoin_state state[2];
  hvdft_rejoin_look(old.handle, &state[0]);
  hvdft_rejoin_look(fresh.handle, &state[1]);
  CHECK(state[0].lost == 0 && state[0].log_length == kOps.size() && state[0].op == kComplete);
  CHECK(state[0].term == 7 && state[0].mark == 4 && state[0].events == 1 && state[1].lost == 1);
  hvdft_rejoin verdict;
  hvdft_rejoin_verdict(state, 2, &verdict);
  CHECK(verdict.needed && verdict.possible && verdict.op == kComplete && verdict.log_from == 0);

  // What is damaged is not taken over.
  auto* damaged = const_cast<Record*>(node.record(5));
  damaged->op.factor += 1;
  CHECK(hvdft_rejoin_open(old.dir.c_str(), "copy") == nullptr);
  fill(old, fresh, false);
  damaged->op.factor -= 1;
  // The second time after a death in the middle of the first.
  for (int attempt = 0; attempt < 2; ++attempt) fill(old, fresh);
  hvdft_rejoin_note(fresh.handle, kComplete);
  hvdft_rejoin_look(fresh.handle, &state[1]);
  CHECK(state[1].lost == 1 && state[1].done_over == kComplete + 1);
  resume(fresh);
  hvdft_rejoin_look(fresh.handle, &state[1]);
  CHECK(state[1].lost == 0 && state[1].op == kComplete);
  CHECK(state[1].term == 7 && state[1].mark == 4);  // these come from rank 0's node

  has_the_log(*fresh.node, node);
  its_ranks_begin_anew(*fresh.node);
  its_claims_are_those_of_the_op_under_way(*fresh.node);
  goes_on(*fresh.node, node.header().kept_bytes.load());

  void* data;
  CHECK(hvdft_rejoin_result(fresh.handle, 5, &data) == 5 << 20);
  CHECK(hvdft_rejoin_result(fresh.handle, 1, &data) == HVDFT_EINVAL);
}
