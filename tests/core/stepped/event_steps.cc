// An event that is overwritten at any step of its reader: it is read whole, or known as lost.
#include "steps.h"

using namespace hvdft;

namespace {

hvdft_event event_of(uint64_t n) {
  auto word = static_cast<uint32_t>(n + 1);
  return {n + 1, HVDFT_EV_SNAPSHOT, word, word, 0, n + 1};
}

}  // namespace

int main() {
  uint64_t number = 0, whole = 0;
  for (bool interrupted = true; interrupted; ++number) {
    Job job(1);
    EventList list = job.node->events();
    for (uint64_t n = 0; n < kEvents; ++n) list.push(event_of(n));
    hvdft_event event;
    interrupted = interrupted_at(
        number, [&] { CHECK(list.read(0, &event, 1) == 1); },
        [&] { list.push(event_of(kEvents)); });
    if (event.type == HVDFT_EV_LOST) continue;
    CHECK(event.time_ns == 1 && event.rank == 1 && event.incarnation == 1 && event.detail == 1);
    ++whole;
  }
  CHECK(number > 6 && whole > 0);
}
