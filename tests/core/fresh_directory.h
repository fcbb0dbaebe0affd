// A directory for arenas: below HVDFT_TEST_DIR, whose owner clears up after a test that is
// killed, or in shared memory.
#ifndef HVD_FT_TESTS_FRESH_DIRECTORY_H
#define HVD_FT_TESTS_FRESH_DIRECTORY_H

#include <cstdlib>
#include <filesystem>
#include <string>

#include "check.h"

inline std::string fresh_directory() {
  const char* above = std::getenv("HVDFT_TEST_DIR");
  std::string name = std::string(above ? above : "/dev/shm") + "/hvdft-test-XXXXXX";
  CHECK(mkdtemp(name.data()) != nullptr);
  return name;
}

inline void remove_directory(const std::string& name) {
  CHECK(std::filesystem::remove_all(name) > 0);
}

#endif  // HVD_FT_TESTS_FRESH_DIRECTORY_H
