#include "ft_stop.h"

#include <unistd.h>

#include "ft_library.h"

namespace horovod {
namespace common {

namespace {

[[noreturn]] void AwaitEnd() {
  for (;;) {
    pause(); // the agent is about to kill this process
  }
}

} // namespace

void FtStop(const std::string& message) {
  ft().worker_fatal(message.c_str());
  AwaitEnd();
}

void FtCheck(int code) {
  if (code == HVDFT_ESTOPPED) {
    AwaitEnd();
  }
  if (code < 0 && code != HVDFT_AGAIN) {
    FtStop(ft().error());
  }
}

} // namespace common
} // namespace horovod
