// The mirror's tree: its shape, and that each node of it has everything that it has in a star.
#include <cstring>
#include <string>
#include <vector>

#include "hvd_ft_checkpoints.h"
#include "joined_nodes.h"
#include "protocol/roster.h"
#include "worker/messages.h"

using namespace hvdft;

namespace {

constexpr int kNodes = 7, kOfNode = 2, kSize = kNodes * kOfNode;

void its_shape() {
  for (int nodes = 1; nodes <= 40; ++nodes) {
    for (int most = 1; most <= 41; ++most) {
      MirrorTree tree(nodes, most);
      CHECK(tree.parent(0) == -1 && tree.end(0) == nodes);
      int deepest = 0, full = 1, levels = 0;
      for (int n = 1; n < nodes; ++n) {
        CHECK(tree.parent(n) < n && n < tree.end(n) && tree.end(n) <= tree.end(tree.parent(n)));
        int depth = 0;
        for (int at = n; at > 0; at = tree.parent(at)) ++depth;
        deepest = std::max(deepest, depth);
      }
      for (int n = 0; n < nodes; ++n) {
        std::vector<int> children = tree.children(n);
        CHECK(static_cast<int>(children.size()) <= most);
        for (int child : children) CHECK(tree.parent(child) == n);
      }
      // No deeper than it has to be.
      for (int width = most; full < nodes; width *= most) {
        full += width;
        ++levels;
      }
      CHECK(deepest == levels);
    }
  }
  CHECK(MirrorTree(9, 8).children(0).size() == 8);  // a star
}

hvdft_event event_of(int rank, uint32_t type, uint64_t detail, uint32_t incarnation = 0) {
  return {1, type, static_cast<uint32_t>(rank), incarnation, 0, detail};
}

// Every node knows how every rank fares.
void facts(JoinedNodes& job) {
  for (int r = 0; r < kSize; ++r) {
    RankBlock& mine = job.node_of(r).rank(r);
    mine.contributed = position(static_cast<uint64_t>(r) + 1, 3);
    mine.step = static_cast<uint64_t>(100 + r);
    mine.state = HVDFT_RUNNING;
    mine.since_ns = 5;
  }
  job.carry();
  for (int n = 0; n < kNodes; ++n) {
    for (int r = 0; r < kSize; ++r) {
      const RankBlock& seen = job.node(n).rank(r);
      CHECK(seen.state == HVDFT_RUNNING && seen.step == static_cast<uint64_t>(100 + r));
      CHECK(seen.contributed == position(static_cast<uint64_t>(r) + 1, 3));
      CHECK(seen.since_ns == 5);  // all have one clock here
    }
  }
}

// To rank 0's node only; and back what it answers, to the rank's node.
void announcements(JoinedNodes& job) {
  auto tell = [&](int r, uint64_t sequence) {
    RankBlock& mine = job.node_of(r).rank(r);
    std::string what = "of rank " + std::to_string(r);
    mine.mail_term = 4;
    mine.mail_bytes = what.size();
    std::memcpy(job.node_of(r).mail(r), what.data(), what.size());
    mine.mail_sequence = sequence;
    mine.enter_request = static_cast<uint64_t>(50 + r);
    mine.loops[0].published = static_cast<uint64_t>(2 * r + 40);
    mine.loops[0].begin = 3;
    publish_fingerprints(job.node_of(r).fingerprints(r), cut_key(0, 9), "prints", 6);
  };
  for (int r = kOfNode; r < kSize; ++r) tell(r, 2);
  job.carry();
  for (int r = kOfNode; r < kSize; ++r) {
    RankBlock& seen = job.node(0).rank(r);
    std::string what = "of rank " + std::to_string(r);
    CHECK(seen.mail_term == 4 && seen.mail_sequence == 2 && seen.mail_bytes == what.size());
    CHECK(std::string(job.node(0).mail(r), seen.mail_bytes) == what);
    CHECK(seen.enter_request == static_cast<uint64_t>(50 + r) && seen.loops[0].begin == 3);
    const Fingerprints* prints = job.node(0).fingerprints(r);
    CHECK(prints[0].cut == cut_key(0, 9) || prints[1].cut == cut_key(0, 9));
    for (int n = 1; n < kNodes; ++n) {
      if (job.node(n).is_local(r)) continue;
      CHECK(job.node(n).rank(r).mail_backed == 0);  // it takes no memory on the way
      CHECK(job.node(n).rank(r).fingerprints_backed == 0);
      CHECK(job.node(n).rank(r).loops[0].begin == 0);
    }
    seen.entered = static_cast<uint64_t>(50 + r);
    seen.mail_taken = 2;
  }
  job.carry();
  for (int r = kOfNode; r < kSize; ++r) {
    const RankBlock& mine = job.node_of(r).rank(r);
    CHECK(mine.entered == static_cast<uint64_t>(50 + r) && mine.mail_taken == 2);
  }
}

// Of rank 0 to all, as all compare with it.
void of_rank_0(JoinedNodes& job) {
  publish_fingerprints(job.node(0).fingerprints(0), cut_key(0, 11), "zero's", 6);
  job.node(0).rank(0).loops[0].begin = 3;
  job.node(0).rank(0).loops[0].passed_cut = 11;
  job.node(0).header().oldest[0] = cut_key(0, 17);
  job.carry();
  for (int n = 1; n < kNodes; ++n) {
    const Fingerprints* seen = job.node(n).fingerprints(0);
    CHECK(seen[0].cut == cut_key(0, 11) || seen[1].cut == cut_key(0, 11));
    CHECK(job.node(n).rank(0).loops[0].passed_cut == 11);
    CHECK(oldest_in(job.node(n).header(), 0) == 17);
  }
}

void the_log(JoinedNodes& job) {
  NodeHeader& zero = job.node(0).header();
  uint64_t begin = zero.log_length, kept = zero.kept;
  for (uint64_t bytes : {100, 0, 2000}) {
    OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, bytes, 4, 4, 0};
    CHECK(job.log(0).append(op, "respsig") == HVDFT_OK);
  }
  job.log(0).publish();
  zero.term.fetch_add(1);
  zero.mark = begin + 2;
  job.carry();
  for (int n = 1; n < kNodes; ++n) {
    const NodeHeader& h = job.node(n).header();
    CHECK(h.log_length == begin + 3 && h.term == zero.term && h.mark == begin + 2);
    for (uint64_t id = begin; id < begin + 3; ++id) {
      const Record &mine = *job.node(0).record(id), &copy = *job.node(n).record(id);
      CHECK(copy.first_segment == mine.first_segment &&
            copy.op.result_bytes == mine.op.result_bytes);
    }
  }
  CHECK(job.log(0).keep(begin) == HVDFT_OK);
  job.log(0).drop(begin + 1);
  job.log(0).decided(begin + 2);
  job.carry();
  for (int n = 1; n < kNodes; ++n) {
    const NodeHeader& h = job.node(n).header();
    CHECK(h.decided_before == begin + 2 && h.kept == kept + 1);
    CHECK(job.node(n).record(begin) != nullptr && job.node(n).record(begin + 1) == nullptr);
  }
}

// An op that is truncated in the message that brings it goes on to the nodes below all the same:
// ranks that are done do not hold the log back.
void what_is_truncated_at_once(JoinedNodes& job) {
  NodeHeader& zero = job.node(0).header();
  uint64_t begin = zero.log_length;
  OpHead op{HVDFT_REDUCE, HVDFT_FLOAT32, HVDFT_SUM, 0, 100, 4, 4, 0};
  for (int i = 0; i < 3; ++i) CHECK(job.log(0).append(op, "respsig") == HVDFT_OK);
  job.log(0).publish();
  job.carry_at_once([&] {
    for (uint64_t id = job.log(0).gone(); id < begin + 2; ++id) job.log(0).drop(id);
    job.log(0).decided(begin + 2);
  });
  for (int n = 1; n < kNodes; ++n) {
    CHECK(job.node(n).header().log_length == begin + 3);
    CHECK(job.node(n).header().decided_before == begin + 2);
  }
}

// Those for all are heard once everywhere, others by rank 0's node alone, in their order.
void events(JoinedNodes& job) {
  auto heard = [&](int n) { return job.node(n).header().event_count.load(); };
  std::vector<uint64_t> before;
  for (int n = 0; n < kNodes; ++n) before.push_back(heard(n));
  uint64_t reported = job.node(0).header().report_count;
  uint64_t detail = 0;
  for (int n = 0; n < kNodes; ++n) {
    int r = n * kOfNode;
    job.node(n).push_event(event_of(r, HVDFT_EV_STARTED, ++detail));
    job.node(n).push_event(event_of(r, HVDFT_EV_CHECKPOINT, ++detail));
    job.carry();
  }
  for (int n = 0; n < kNodes; ++n) {
    CHECK(heard(n) == before[static_cast<size_t>(n)] + kNodes + 1);  // and the other of its own
  }
  CHECK(job.node(0).header().report_count == reported + 2 * kNodes);
  for (uint64_t i = 0; i < 2 * kNodes; ++i) {
    hvdft_event event;
    CHECK(job.node(0).report().read(reported + i, &event, 1) == 1 && event.detail == i + 1);
  }
}

// The agents die when a node on the way has heard it, and rank 0's node has not.
void an_event_that_was_on_its_way() {
  JoinedNodes job(4, 1, 1);
  job.renew();
  job.carry();
  job.node(3).push_event(event_of(3, HVDFT_EV_SHARE, 7));
  job.pass(3, 2);
  CHECK(job.node(2).header().event_count == 1 && job.node(0).header().event_count == 0);
  job.renew();
  job.carry();
  for (int n = 0; n < 4; ++n) CHECK(job.node(n).header().event_count == 1);
  CHECK(job.node(0).header().report_count == 1);
}

// What comes from below faster than it can go on waits there, but for some.
void a_slow_edge_upwards() {
  JoinedNodes job(3, 1, 1);
  job.carry();
  RankBlock& mine = job.node(2).rank(2);
  auto announce = [&](uint64_t sequence) {
    CHECK(!job.congested(1));
    mine.mail_bytes = kMailBytes / 2 + 1;
    mine.mail_sequence = sequence;
    job.pass(2, 1);
  };
  for (uint64_t sequence : {2, 4}) announce(sequence);
  CHECK(job.congested(1));
  std::string unsent(MirrorNews::kMostWaiting + 1, 'x');
  job.collect_behind(1, &unsent);
  CHECK(unsent.size() == MirrorNews::kMostWaiting + 1 && job.congested(1));
  job.pass(1, 0);
  CHECK(!job.congested(1) && job.node(0).rank(2).mail_sequence == 4);
}

// Which node below rank 0's its node is below, or is; 0 of rank 0's node.
int tree_root(const JoinedNodes& job, int rank) {
  int node = rank / kOfNode;
  while (node > 0 && job.tree().parent(node) > 0) node = job.tree().parent(node);
  return node;
}

// What has come from below goes up before the last word.
void the_last_words(JoinedNodes& job) {
  for (int n = 1; n < kNodes; ++n) {
    for (int child : job.tree().children(n)) {
      RankBlock& mine = job.node(child).rank(child * kOfNode);
      mine.mail_sequence.fetch_add(2);
      std::vector<FrameKind> kinds;
      JoinedNodes::each_frame(job.last_words(n, job.tree().parent(n), child),
                              [&](FrameKind kind) { kinds.push_back(kind); });
      CHECK(std::count(kinds.begin(), kinds.end(), FrameKind::kMail) == 1);
      CHECK(kinds.back() == FrameKind::kBye);
    }
  }
}

// From one rank to another one, over whatever nodes are between; and a rank that is done has not
// sent what has not arrived.
void message(JoinedNodes& job, int source, int dest) {
  MessageHead head{};
  std::strcpy(head.form, "uint8 [70000]");
  head.bytes = 70000;
  Messages sender(job.node_of(source), source), receiver(job.node_of(dest), dest);
  std::string data(head.bytes, static_cast<char>('a' + source)), got(head.bytes, ' ');
  CHECK(sender.send(dest, head, data.data()) == 1);
  job.node_of(source).rank(source).state = HVDFT_DONE;
  hvdft_message found;
  for (int rounds = 0; receiver.find(source, 0, &found) == HVDFT_AGAIN; ++rounds) {
    CHECK(job.node_of(dest).rank(source).state != HVDFT_DONE && rounds < 100);
    job.carry_once();
  }
  CHECK(receiver.take(source, found.number, got.data()) == HVDFT_OK && got == data);
  job.carry();
  CHECK(job.node_of(dest).rank(source).state == HVDFT_DONE);
  auto origin = PairFile::open(job.node_of(source), source, dest, false);
  CHECK(origin && origin->header().receiver.count == 1);
  job.node_of(source).rank(source).state = HVDFT_RUNNING;
  job.carry();
  // Those of two nodes below the same one do not come further up.
  bool meets_at_zero = tree_root(job, source) != tree_root(job, dest);
  CHECK((PairFile::open(job.node(0), source, dest, false) != nullptr) == meets_at_zero);
}

// Up, down, to a neighbour, over rank 0's node and not. Each in a job of its own: every node on the
// way maps 128 GiB of addresses for a log, of which the thread sanitizer has few.
void messages() {
  for (int below : {1, 2}) {
    for (auto [from, to] : {std::pair(3, 0), {0, 3}, {1, 2}, {2, 1}, {2, 3}, {3, 1}}) {
      JoinedNodes job(4, kOfNode, below);
      message(job, from * kOfNode, to * kOfNode + 1);
    }
  }
}

void memory_and_the_end(JoinedNodes& job) {
  hvdft_observer* observer = hvdft_observer_open(job.node(0).dir().c_str());
  for (int n = 1; n < kNodes; ++n) {
    hvdft_memory seen;
    CHECK(hvdft_observer_memory(observer, n * kOfNode, 0, &seen) == 1 && seen.limit > 0);
  }
  hvdft_observer_close(observer);
  job.node(kNodes - 1).stop(kSize - 1, 5, "enough");
  job.carry();
  for (int n = 0; n < kNodes; ++n) {
    const StopText* why = job.node(n).stopped();
    CHECK(why != nullptr && why->rank == kSize - 1 && why->code == 5);
  }
}

}  // namespace

int main() {
  its_shape();
  an_event_that_was_on_its_way();
  a_slow_edge_upwards();
  messages();
  for (int below : {1, 2, 3, kNodes}) {
    JoinedNodes job(kNodes, kOfNode, below);
    for (bool again : {false, true}) {
      if (again) job.renew();
      facts(job);
      announcements(job);
      of_rank_0(job);
      the_log(job);
      what_is_truncated_at_once(job);
      events(job);
    }
    memory_and_the_end(job);
    the_last_words(job);
  }
}
