// The context that Horovod hands to the classes of the ft backend. Its type selects the ft
// overloads where Horovod passes an MPIContext or a GlooContext.
#ifndef HVD_FT_HOROVOD_FT_CONTEXT_H
#define HVD_FT_HOROVOD_FT_CONTEXT_H

namespace horovod {
namespace common {

class FtEngine;

struct FtContext {
  FtContext();
  FtEngine& engine; // never deleted: Horovod's thread may outlive static objects
};

} // namespace common
} // namespace horovod

#endif // HVD_FT_HOROVOD_FT_CONTEXT_H
