// Outputs of allreduces that are the result in the log itself: TensorFlow reads the result in
// place, and no rank copies it. So the result must be final there, with averages divided. It is
// written past the processor's cache, because it is not read at once.
#ifndef HOROVOD_FT_VIEWS_H
#define HOROVOD_FT_VIEWS_H

#include "../message.h"
#include "ft_in_flight.h"

namespace horovod {
namespace common {

// An output of fewer bytes is allocated and copied.
constexpr int64_t kFtViewedBytes = 16 << 10;

// Whether ranks take an op's result as views: if most of it can be. `factor`: what the result is
// multiplied by.
bool FtIsViewed(const Response& response, double factor);

// Makes the outputs of a complete op with views; outputs that cannot be views are copied.
Status FtViewOutputs(InFlightOp& op);

// Makes the remaining outputs of an op that is copied out.
Status FtAllocateOutputs(InFlightOp& op);

// What a sum is multiplied by in the end, in a process set of `size` ranks.
double FtFactor(const Response& response, int size);

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_VIEWS_H
