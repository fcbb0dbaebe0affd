// Preloaded into Intel MPI's mpiexec, which has no option for it: what would listen on all
// interfaces listens on one address (hvd_ft/mpi/listening.py). The programs that it starts get
// neither this library nor its variables.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

namespace {

in_addr only = {INADDR_ANY};

__attribute__((constructor)) void begin() {
  const char* address = std::getenv("HVDFT_LISTEN");
  if (address != nullptr) inet_pton(AF_INET, address, &only);
  const char* others = std::getenv("HVDFT_PRELOAD");
  if (others != nullptr) {
    setenv("LD_PRELOAD", others, 1);
  } else {
    unsetenv("LD_PRELOAD");
  }
  unsetenv("HVDFT_LISTEN");
  unsetenv("HVDFT_PRELOAD");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(int fd, const sockaddr* address,
                                                           socklen_t bytes) noexcept {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  static const auto next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  sockaddr_in wanted;
  if (bytes != sizeof wanted || address->sa_family != AF_INET) return next(fd, address, bytes);
  std::memcpy(&wanted, address, sizeof wanted);
  if (wanted.sin_addr.s_addr == INADDR_ANY) wanted.sin_addr = only;
  return next(fd, reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted);
}
