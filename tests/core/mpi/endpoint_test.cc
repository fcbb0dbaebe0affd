// A connection that breaks without a word, and is made again by MPI, loses what was under way: what
// is sent behind must not be taken for it.
#include "mpi/endpoint.h"

#include "../check.h"
#include "lossy_mpi.h"

using namespace hvdft;

namespace {

constexpr uint64_t kRounds = 40000;  // more than there are tags

void send(Endpoint& from, uint64_t value) {
  Transfer transfer = from.begin_send(&value, sizeof value, 1);
  CHECK(from.complete(&transfer));
}

}  // namespace

int main() {
  Endpoint zero(0, 0), one(0, 0);
  for (uint64_t round = 0; round < kRounds; ++round) {
    send(zero, round);
    uint64_t got = kRounds;
    Transfer transfer = one.begin_receive(&got, sizeof got, 0);
    CHECK(one.complete(&transfer) && got == round);
    posted.clear();
  }
  CHECK(zero.counts(1).begun == kRounds && one.counts(0).arrived == kRounds);

  uint64_t got[2] = {};
  Transfer first = one.begin_receive(&got[0], sizeof got[0], 0);
  Transfer second = one.begin_receive(&got[1], sizeof got[1], 0);
  send(zero, 7);
  underway.clear();  // the connection breaks
  send(zero, 8);
  CHECK(!one.complete(&first) && got[0] == 0);  // it waits, until the watch on links names it
  CHECK(one.complete(&second) && got[1] == 8);
  CHECK(one.complete(&second));  // who asks again does not count it again
  CHECK(one.counts(0).posted == kRounds + 2 && one.counts(0).arrived == kRounds + 1);
}
