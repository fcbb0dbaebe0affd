// Stops the job, with one line that gives the reason, when the backend cannot go on.
#ifndef HOROVOD_FT_STOP_H
#define HOROVOD_FT_STOP_H

#include <string>

namespace horovod {
namespace common {

// Stops the job and waits for the end. A thrown error would bury that line under the errors of all
// tensors in flight.
[[noreturn]] void FtStop(const std::string& message);

// Checks the return value of a function of the core: an error stops the job.
void FtCheck(int code);

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_STOP_H
