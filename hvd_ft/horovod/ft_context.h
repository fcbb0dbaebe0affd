// What Horovod's process sets need to know of the ft backend.
#ifndef HVD_FT_HOROVOD_FT_CONTEXT_H
#define HVD_FT_HOROVOD_FT_CONTEXT_H

#include <string>
#include <vector>

namespace horovod {
namespace common {

// Chooses the ft overloads where Horovod passes an MPIContext or a GlooContext. It holds
// nothing: the state is in libhvd_ft.so.
struct FtContext {};

inline std::string FtProcessSetError(const std::vector<int>& ranks) {
  std::string list;
  for (int rank : ranks) {
    list += (list.empty() ? "" : ", ") + std::to_string(rank);
  }
  return "process set [" + list +
         "] cannot be registered: the ft backend has the global process set only; leave it out, "
         "or run without hvd_ft";
}

} // namespace common
} // namespace horovod

#endif // HVD_FT_HOROVOD_FT_CONTEXT_H
