#include "base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace hvdft {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, reflected

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t by_table(const unsigned char* data, uint64_t bytes, uint32_t crc) {
  static constexpr auto table = make_table();
  for (uint64_t i = 0; i < bytes; ++i) crc = crc >> 8 ^ table[(crc ^ data[i]) & 255];
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t by_instruction(const unsigned char* data, uint64_t bytes,
                                                          uint32_t crc) {
  uint64_t wide = crc;
  uint64_t i = 0, word;
  for (; i + sizeof word <= bytes; i += sizeof word) {
    std::memcpy(&word, data + i, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; i < bytes; ++i) crc = _mm_crc32_u8(crc, data[i]);
  return crc;
}

}  // namespace

uint32_t crc32c(const void* data, uint64_t bytes, uint32_t before) {
  static const auto of = __builtin_cpu_supports("sse4.2") ? by_instruction : by_table;
  return ~of(static_cast<const unsigned char*>(data), bytes, ~before);
}

}  // namespace hvdft
