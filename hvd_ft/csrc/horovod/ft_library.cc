#include "ft_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace horovod {
namespace common {

namespace {

template <typename F> void Resolve(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) {
    throw std::runtime_error(std::string("the core library has no ") + name +
                             "; run 'hvdft build-horovod' to build both from one version");
  }
}

FtLibrary Load() {
  const char* path = std::getenv("HOROVOD_FT_LIBRARY");
  if (path == nullptr) {
    throw std::runtime_error("HOROVOD_FT_LIBRARY is not set: the ft backend needs an agent; "
                             "start the script with 'hvdft run'");
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("the core library cannot be loaded: ") + dlerror());
  }
  FtLibrary ft;
#define HVDFT_RESOLVE(name) Resolve(library, "hvdft_" #name, ft.name);
  HVDFT_FUNCTIONS(HVDFT_RESOLVE)
#undef HVDFT_RESOLVE
  return ft;
}

} // namespace

const FtLibrary& ft() {
  static const FtLibrary library = Load();
  return library;
}

} // namespace common
} // namespace horovod
