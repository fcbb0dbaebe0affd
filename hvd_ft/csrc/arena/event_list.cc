#include "arena/event_list.h"

#include "base/doorbell.h"
#include "hvd_ft_checkpoints.h"

namespace hvdft {

bool is_for_all(const hvdft_event& event) {
  switch (event.type) {
    case HVDFT_EV_FAILED:
    case HVDFT_EV_DIVERGED:
    case HVDFT_EV_CHECKPOINT:
    case HVDFT_EV_SHARE:
    case HVDFT_EV_CHECKPOINTED:
      return true;
    case HVDFT_EV_JOINED:
      return event.incarnation > 0;
    default:
      return false;
  }
}

void EventList::push(const hvdft_event& event) const {
  uint64_t number = count_.fetch_add(1, std::memory_order_acq_rel);
  Event& slot = slots_[number % kEvents];
  withdraw(slot.published);
  write_torn(reinterpret_cast<char*>(&slot.event), reinterpret_cast<const char*>(&event),
             sizeof event);
  slot.published.store(number + 1, std::memory_order_release);
  notify(doorbell_);
}

// Waits for an event that is claimed but not yet written; not for ever, as its writer may have been
// killed in between.
void EventList::await(uint64_t number) const {
  uint64_t end = now_ns() + 1000000000u;
  while (slots_[number % kEvents].published.load(std::memory_order_acquire) < number + 1) {
    uint32_t ticket = doorbell_.load();
    if (now_ns() > end) return;
    if (slots_[number % kEvents].published.load() < number + 1) {
      wait_doorbell(doorbell_, ticket, 100);
    }
  }
}

int EventList::read(uint64_t from, hvdft_event* out, int capacity) const {
  uint64_t count = count_.load(std::memory_order_acquire);
  int n = 0;
  for (uint64_t number = from; number < count && n < capacity; ++number, ++n) {
    await(number);
    const Event& slot = slots_[number % kEvents];
    out[n] = hvdft_event{};  // stays so if it is lost
    if (slot.published.load(std::memory_order_acquire) != number + 1) continue;
    hvdft_event event;
    copy_torn(reinterpret_cast<char*>(&event), reinterpret_cast<const char*>(&slot.event),
              sizeof event);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.published.load(std::memory_order_relaxed) == number + 1) out[n] = event;
  }
  return n;
}

}  // namespace hvdft
