// What the backend does when it cannot go on: the job ends, with one line that tells why.
#ifndef HOROVOD_FT_STOP_H
#define HOROVOD_FT_STOP_H

#include <string>

namespace horovod {
namespace common {

// Stops the job and waits for the end. An error thrown instead would bury that one line under
// the errors of every tensor in flight.
[[noreturn]] void FtStop(const std::string& message);

// Looks at what a function of the core returned: an error stops the job.
void FtCheck(int code);

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_STOP_H
