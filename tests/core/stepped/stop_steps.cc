// The job is stopped by a process that is killed at any store while it does so, or while another
// one does so too: it is stopped all the same, and the text that counts is one process's, whole.
#include <cstring>

#include "steps.h"

using namespace hvdft;

namespace {

// As worker and agent of a rank, which are processes of their own, and the leader of its node.
constexpr Node::Role kRoles[] = {Node::kWorker, Node::kAgent, Node::kLeader};

std::unique_ptr<Node> open(const Job& job, Node::Role role) {
  auto node = Node::open(job.dir, "steps", role);
  CHECK(node != nullptr);
  return node;
}

std::string text_of(int rank, Node::Role role) {
  return "rank " + std::to_string(rank) + " in role " + std::to_string(role) + " wants it";
}

void stop(const Node& node, int rank, Node::Role role) {
  node.stop(rank, 10 * rank + role, text_of(rank, role).c_str());
}

// Whether the job is stopped by that one; if it is not, then by nobody.
bool is_stopped_by(const Node& node, int rank, Node::Role role) {
  const StopText* why = node.stopped();
  if (why == nullptr || why->rank != static_cast<uint32_t>(rank)) return false;
  return why->code == 10 * rank + role && text_of(rank, role) == why->text;
}

bool one_is_killed(uint64_t at, Node::Role role, int next_rank, Node::Role next_role) {
  Job job(2);
  auto first = open(job, role), next = open(job, next_role);
  bool killed = killed_at(at, [&] { stop(*first, 0, role); });
  bool was_stopped = job.node->stopped() != nullptr;
  CHECK(was_stopped ? is_stopped_by(*job.node, 0, role) : killed);
  stop(*next, next_rank, next_role);
  CHECK(was_stopped ? is_stopped_by(*job.node, 0, role)
                    : is_stopped_by(*job.node, next_rank, next_role));
  return killed;
}

// The next incarnation of the rank is in the dead one's place, which may have written half a text.
bool one_is_interrupted(uint64_t at, Node::Role role, int other_rank, Node::Role other_role) {
  Job job(2);
  auto first = open(job, role), other = open(job, other_role);
  std::memset(job.node->rank(0).stops[0].text, 'x', kStopTextBytes);
  bool interrupted = interrupted_at(
      at, [&] { stop(*first, 0, role); }, [&] { stop(*other, other_rank, other_role); });
  CHECK(is_stopped_by(*job.node, 0, role) || is_stopped_by(*job.node, other_rank, other_role));
  return interrupted;
}

// What counts stays as it is, whoever stops the job once more, with a longer text.
void the_first_one_counts() {
  Job job(2);
  CHECK(job.node->stopped() == nullptr);
  auto worker = open(job, Node::kWorker);
  stop(*worker, 0, Node::kWorker);
  std::string longer(2 * kStopTextBytes, 'y');
  watched(
      [&] {
        worker->stop(0, 77, longer.c_str());
        job.node->stop(0, 78, longer.c_str());
        job.node->stop(1, 79, longer.c_str());
      },
      [&] { CHECK(is_stopped_by(*job.node, 0, Node::kWorker)); });
  Job other(2);
  other.node->stop(1, 79, longer.c_str());
  CHECK(std::strlen(other.node->stopped()->text) == kStopTextBytes - 1);
}

}  // namespace

int main() {
  uint64_t most = 0;
  for (Node::Role role : kRoles) {
    for (Node::Role other_role : kRoles) {
      for (int other_rank : {0, 1}) {
        uint64_t steps =
            through([&](uint64_t at) { return one_is_killed(at, role, other_rank, other_role); });
        CHECK(steps > 1);
        most = std::max(most, steps);
        if (other_rank == 0 && other_role == role) continue;  // it is one process, with a lock
        steps = through(
            [&](uint64_t at) { return one_is_interrupted(at, role, other_rank, other_role); });
        CHECK(steps > 3);
      }
    }
  }
  the_first_one_counts();
  std::printf("killed at each of %lu stores\n", most);
}
