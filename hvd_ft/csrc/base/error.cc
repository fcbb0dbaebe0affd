#include "base/error.h"

#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "hvd_ft.h"

namespace hvdft {

static thread_local char last_error[1024];

int fail(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return code;
}

}  // namespace hvdft

const char* hvdft_error(void) { return hvdft::last_error; }

#ifndef HVDFT_VERSION
#define HVDFT_VERSION "unknown"
#endif
const char* hvdft_version(void) { return HVDFT_VERSION; }

int hvdft_die_with_parent(void) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) return HVDFT_OK;
  return hvdft::fail(HVDFT_ESYS, "prctl(PR_SET_PDEATHSIG): %s", std::strerror(errno));
}

int hvdft_become_subreaper(void) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return HVDFT_OK;
  return hvdft::fail(HVDFT_ESYS, "prctl(PR_SET_CHILD_SUBREAPER): %s", std::strerror(errno));
}
