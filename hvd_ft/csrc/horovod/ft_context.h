// What Horovod's process sets need to know of the ft backend.
#ifndef HVD_FT_HOROVOD_FT_CONTEXT_H
#define HVD_FT_HOROVOD_FT_CONTEXT_H

namespace horovod {
namespace common {

// Chooses the ft overloads where Horovod passes an MPIContext or a GlooContext. It holds
// nothing: the state is in libhvd_ft.so and in FtFollower.
struct FtContext {};

} // namespace common
} // namespace horovod

#endif // HVD_FT_HOROVOD_FT_CONTEXT_H
