// Numbers in an announcement, as ranges: in a training step nearly all tensors have consecutive
// numbers.
#ifndef HOROVOD_FT_NUMBERS_H
#define HOROVOD_FT_NUMBERS_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace horovod {
namespace common {

// 8 bytes, and 8 for each range; the numbers come out in ascending order.
inline std::string FtWriteNumbers(std::vector<uint32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<uint32_t> words{0, 0};
  for (uint32_t number : numbers) {
    if (words[0] > 0 && words[words.size() - 2] + words.back() == number) {
      ++words.back();
    } else {
      words.insert(words.end(), {number, 1});
      ++words[0];
    }
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]};
}

// Appends them to `numbers`, and returns how many bytes they took.
inline uint64_t FtReadNumbers(const void* data, std::vector<uint32_t>& numbers) {
  auto* at = static_cast<const char*>(data);
  auto word = [&](uint64_t index) {
    uint32_t value;
    std::memcpy(&value, at + index * sizeof value, sizeof value);
    return value;
  };
  uint64_t ranges = word(0), words = 2 + 2 * ranges;
  for (uint64_t i = 2; i < words; i += 2) {
    for (uint32_t n = 0; n < word(i + 1); ++n) {
      numbers.push_back(word(i) + n);
    }
  }
  return words * sizeof(uint32_t);
}

} // namespace common
} // namespace horovod

#endif // HOROVOD_FT_NUMBERS_H
