// libhvd_ft.so, found by the path in HOROVOD_FT_LIBRARY: the same copy that the worker's
// Python has loaded, or there would be two states in one process.
#ifndef HOROVOD_FT_LIBRARY_H
#define HOROVOD_FT_LIBRARY_H

#include "hvd_ft.h"

namespace horovod {
namespace common {

// What the backend calls; hvd_ft.h declares it.
// clang-format off
#define HVDFT_FUNCTIONS(X) \
  X(error) X(worker_open) X(worker_rank) X(worker_size) X(worker_nodes) X(worker_incarnation) \
  X(worker_ticket) X(worker_wait) X(worker_waits) X(worker_notify) X(worker_term) \
  X(worker_entered) X(worker_enter) X(worker_leave) X(worker_caught_up) X(worker_announce) \
  X(worker_take) X(worker_propose) X(worker_log_length) X(worker_cursor) X(worker_next) \
  X(worker_may_pass) X(worker_passed) X(worker_record) X(worker_note) X(worker_begin) X(worker_advance) X(worker_owes) \
  X(worker_executed) X(worker_view) X(worker_view_release) X(worker_before_detach) \
  X(worker_pend) X(worker_owed) X(worker_ended_peer) X(worker_stop_for_peer) X(worker_fatal) \
  X(worker_roster) X(worker_present)
// clang-format on

struct FtLibrary {
#define HVDFT_MEMBER(name) decltype(&hvdft_##name) name;
  HVDFT_FUNCTIONS(HVDFT_MEMBER)
#undef HVDFT_MEMBER
};

// The longest wait of Horovod's thread, for the stall inspector; everything else notifies it.
constexpr int kFtWaitMs = 1000;

// Throws std::runtime_error if the library is not there or is another version.
const FtLibrary& ft();

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_LIBRARY_H
