// How the coordinator counts announcements of requests by number, and how these are written.
#include "horovod/agree/ft_counts.h"

#include "check.h"
#include "horovod/agree/ft_numbers.h"

using namespace horovod::common;

namespace {

using Ranks = std::vector<int>;

using Named = std::vector<FtCounts::Named>;

bool yes() { return true; }
bool no() { return false; }

// All orders in which ranks announce two tensors: each is complete with its last rank, and only
// then, and can be announced again.
void complete_when_all_have_announced() {
  Ranks order{0, 1, 2, 10, 11, 12};  // rank r announces tensor "a" (r) or "b" (10 + r)
  uint64_t orders = 0;
  do {
    FtCounts counts;
    counts.Start(3);
    Named named;
    for (int step = 0; step < 2; ++step) {
      int seen[2] = {0, 0};
      for (int each : order) {
        uint32_t number = each < 10 ? 7 : 3;
        CHECK(counts.Has(number) == (seen[each / 10] > 0));
        bool complete = counts.Count(number, each < 10 ? "a" : "b", each % 10, yes, named);
        CHECK(complete == (++seen[each / 10] == 3));
        CHECK(counts.Has(number) == !complete);
      }
      CHECK(counts.Tensors().empty() && named.empty());
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 720);
}

Ranks ranks_of(const Named& named, uint32_t number) {
  Ranks ranks;
  for (auto& each : named) {
    if (each.number == number) ranks.push_back(each.rank);
  }
  return ranks;
}

void one_that_asks_otherwise_moves_the_others() {
  FtCounts counts;
  counts.Start(3);
  Named named;
  counts.Move("t", named);
  CHECK(named.empty());
  CHECK(!counts.Count(5, "t", 2, yes, named) && !counts.Count(5, "t", 0, no, named));
  CHECK(!counts.Count(5, "t", 0, yes, named));  // the same rank again
  CHECK(named.empty() && counts.Tensors().at("t") == 5);
  CHECK(!counts.Count(6, "t", 1, yes, named));  // by another number
  CHECK((ranks_of(named, 5) == Ranks{0, 2}) && ranks_of(named, 6) == Ranks{1});
  CHECK(!counts.Has(5) && !counts.Has(6) && counts.Tensors().empty());

  named.clear();
  CHECK(!counts.Count(5, "t", 1, yes, named));
  counts.Move("t", named);  // a rank has announced it by name
  CHECK(ranks_of(named, 5) == Ranks{1} && !counts.Has(5));

  named.clear();
  CHECK(!counts.Count(5, "t", 0, no, named));  // it is counted by name
  CHECK(ranks_of(named, 5) == Ranks{0} && !counts.Has(5));
}

// A new term, or a set with another number of ranks.
void a_start_voids_everything() {
  FtCounts counts;
  counts.Start(2);
  Named named;
  CHECK(!counts.Count(1, "t", 0, yes, named));
  counts.Start(1);
  CHECK(!counts.Has(1) && counts.Tensors().empty());
  CHECK(counts.Count(1, "t", 0, yes, named));
}

void numbers_come_back() {
  using Numbers = std::vector<uint32_t>;
  for (const Numbers& numbers :
       {Numbers{}, Numbers{0}, Numbers{5, 6, 7}, Numbers{9, 3, 4, 0, 2}, Numbers{65535, 1}}) {
    std::string written = FtWriteNumbers(numbers) + "rest";
    Numbers read, sorted = numbers;
    std::sort(sorted.begin(), sorted.end());
    CHECK(FtReadNumbers(written.data(), read) == written.size() - 4 && read == sorted);
  }
  Numbers step(500);
  for (uint32_t n = 0; n < 500; ++n) step[n] = 499 - n;
  CHECK(FtWriteNumbers(step).size() == 16);  // the tensors of a step
}

}  // namespace

int main() {
  complete_when_all_have_announced();
  one_that_asks_otherwise_moves_the_others();
  a_start_voids_everything();
  numbers_come_back();
}
