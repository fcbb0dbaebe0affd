// A directory for arenas: below HVDFT_TEST_DIR, whose owner clears up after a test that is
// killed, or in shared memory.
#ifndef HVD_FT_TESTS_FRESH_DIRECTORY_H
#define HVD_FT_TESTS_FRESH_DIRECTORY_H

#include <cstdlib>
#include <string>

#include "check.h"

inline std::string fresh_directory() {
  const char* above = std::getenv("HVDFT_TEST_DIR");
  std::string name = std::string(above ? above : "/dev/shm") + "/hvdft-test-XXXXXX";
  CHECK(mkdtemp(name.data()) != nullptr);
  return name;
}

#endif  // HVD_FT_TESTS_FRESH_DIRECTORY_H
