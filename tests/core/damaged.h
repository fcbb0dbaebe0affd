// Damage, the same every time: bits that flip, words that are something else, ends that are
// missing. An input that crashes a reader, or that it does not get over, is named.
#ifndef HVD_FT_TESTS_DAMAGED_H
#define HVD_FT_TESTS_DAMAGED_H

#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace hvdft {

// What is tried now, for whoever looks at a crash.
inline char trying[64];

// Names the input, then dies of the signal as if nothing had caught it.
inline void name_input(int number) {
  (void)!write(STDERR_FILENO, trying, strnlen(trying, sizeof trying));
  signal(number, SIG_DFL);
  raise(number);
}

// A reader has so many seconds of a CPU for one input: more, and it hangs.
inline void begin_input(const char* reader, uint64_t number) {
  std::snprintf(trying, sizeof trying, "input %lu of %s:\n", number, reader);
  itimerval limit{{0, 0}, {60, 0}};
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
}

inline void catch_crashes() {
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGVTALRM}) signal(number, name_input);
}

class Damage {
 public:
  explicit Damage(uint64_t seed) : draw_(seed) {}

  uint64_t below(uint64_t end) { return draw_() % end; }

  // Changes a word, at any address, or a bit, or a byte of [data, data + bytes).
  void damage(char* data, uint64_t bytes) {
    if (bytes == 0) return;
    uint64_t at = below(bytes);
    switch (below(4)) {
      case 0:
        data[at] = static_cast<char>(data[at] ^ 1 << below(8));
        return;
      case 1:
        data[at] = static_cast<char>(draw_());
        return;
      default:
        damage_word(data, bytes);
    }
  }

  // A stream: some of its bytes are others, are missing, come twice, or it ends early.
  std::string damaged(const std::string& sound) {
    std::string stream = sound;
    for (uint64_t left = 1 + below(3); left > 0 && !stream.empty(); --left) {
      uint64_t at = below(stream.size()), bytes = below(std::min<uint64_t>(64, stream.size() - at));
      switch (below(8)) {
        case 0:
          stream.resize(at);
          break;
        case 1:
          stream.erase(at, bytes);
          break;
        case 2:
          stream.insert(at, stream.substr(below(stream.size()), bytes));
          break;
        default:
          damage(stream.data(), stream.size());
      }
    }
    return stream;
  }

 private:
  void damage_word(char* data, uint64_t bytes) {
    uint64_t size = below(2) == 0 ? 8 : 4;
    if (bytes < size) return;
    uint64_t at = below(bytes / 4 - size / 4 + 1) * 4, word = 0;
    std::memcpy(&word, data + at, size);
    const uint64_t others[] = {0,          1,
                               word + 1,   word - 1,
                               word * 2,   below(4096),
                               UINT64_MAX, uint64_t{1} << below(64),
                               draw_(),    UINT64_MAX - below(4096)};
    word = others[below(sizeof others / sizeof *others)];
    std::memcpy(data + at, &word, size);
  }

  std::mt19937_64 draw_;
};

}  // namespace hvdft

#endif  // HVD_FT_TESTS_DAMAGED_H
