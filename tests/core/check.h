// The least that a test in C++ needs: a check that names what failed, and where.
#ifndef HVD_FT_TESTS_CHECK_H
#define HVD_FT_TESTS_CHECK_H

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

#endif  // HVD_FT_TESTS_CHECK_H
