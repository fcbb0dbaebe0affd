// A readable fingerprint of an op, which is compared when a restarted rank asks for the op again.
#ifndef HOROVOD_FT_SIGNATURE_H
#define HOROVOD_FT_SIGNATURE_H

#include <string>

#include "../message.h"

namespace horovod {
namespace common {

// One line for one tensor, without what may differ between ranks (an allgather's or alltoall's
// first dimension): "allreduce sum float32 [3, 3] dense/kernel".
std::string FtSignature(const Request& request);

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_SIGNATURE_H
