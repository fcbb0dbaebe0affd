// Readers of a list of changes are told each item that has changed since they looked, once.
#include "replication/changes.h"

#include <random>
#include <set>
#include <vector>

#include "check.h"

using namespace hvdft;

namespace {

std::vector<int> read(const Changes& changes, uint64_t* since) {
  std::vector<int> found;
  *since = changes.each_since(*since, [&](int item) { found.push_back(item); });
  return found;
}

void the_latest_first() {
  Changes changes(4);
  uint64_t mine = 0;
  CHECK((read(changes, &mine) == std::vector<int>{3, 2, 1, 0}));
  CHECK(read(changes, &mine).empty());
  for (int item : {1, 3, 1, 0, 3}) changes.note(item);
  uint64_t other = mine;
  CHECK((read(changes, &mine) == std::vector<int>{3, 0, 1}));
  CHECK(read(changes, &mine).empty());
  changes.note(0);
  changes.note(0);
  CHECK((read(changes, &mine) == std::vector<int>{0}));
  CHECK((read(changes, &other) == std::vector<int>{0, 3, 1}));
}

// Readers that look now and then, compared with sets.
void random_readers() {
  constexpr int kItems = 50, kReaders = 3;
  std::mt19937 random(1);
  Changes changes(kItems);
  uint64_t since[kReaders] = {};
  std::set<int> expected[kReaders];
  for (auto& all : expected) {
    for (int item = 0; item < kItems; ++item) all.insert(item);
  }
  for (int i = 0; i < 20000; ++i) {
    int item = static_cast<int>(random() % kItems);
    changes.note(item);
    for (auto& all : expected) all.insert(item);
    size_t reader = random() % (4 * kReaders);
    if (reader >= kReaders) continue;
    std::vector<int> found = read(changes, &since[reader]);
    CHECK(found.size() == expected[reader].size());
    CHECK(std::set<int>(found.begin(), found.end()) == expected[reader]);
    expected[reader].clear();
  }
}

}  // namespace

int main() {
  the_latest_first();
  random_readers();
}
