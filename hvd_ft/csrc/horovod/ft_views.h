// Outputs of allreduces that are the log's result itself, where TensorFlow reads it: no rank copies
// it. It has to be final there, averages divided; and as nobody reads it at once it is written past
// the processor's cache.
#ifndef HOROVOD_FT_VIEWS_H
#define HOROVOD_FT_VIEWS_H

#include "../message.h"
#include "ft_in_flight.h"

namespace horovod {
namespace common {

// An output of fewer bytes is allocated and copied.
constexpr int64_t kFtViewedBytes = 16 << 10;

// Whether ranks take an op's result as views: the better part of it. `factor`: by which it is
// multiplied.
bool FtIsViewed(const Response& response, double factor);

// Makes the outputs of an op that is viewed and complete; what cannot be a view is copied.
Status FtViewOutputs(InFlightOp& op);

// Makes the outputs that are still to be made, for an op that is copied out.
Status FtAllocateOutputs(InFlightOp& op);

// What a sum is multiplied by in the end, in a process set of `size` ranks.
double FtFactor(const Response& response, int size);

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_VIEWS_H
