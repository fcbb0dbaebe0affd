// The kernels against the obvious loop, and both float16 conversions against each other.
#include "base/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"
#include "protocol/heap.h"
#include "hvd_ft.h"

static float half_value(uint16_t half) {
  int exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

template <typename T>
static void reduces(uint32_t dtype, T a, T b, T c, T sum, T min, T max, T product) {
  CHECK(hvdft::element_bytes(dtype) == sizeof(T));
  for (uint64_t count : {0u, 1u, 7u, 2048u, 5001u}) {
    std::vector<T> x(count, a), y(count, b), z(count, c), out(count + 1);
    const void* inputs[] = {x.data(), y.data(), z.data()};
    const T expected[] = {sum, min, max, product};
    for (uint32_t op = HVDFT_SUM; op <= HVDFT_PRODUCT; ++op) {
      out[count] = a;
      hvdft::reduce(dtype, op, inputs, 3, out.data(), count);
      for (uint64_t i = 0; i < count; ++i) CHECK(out[i] == expected[op]);
      CHECK(out[count] == a);  // nothing beyond the end
      // What a node gives that has no input.
      std::vector<T> nothing(count);
      hvdft::reduce(dtype, op, nullptr, 0, nothing.data(), count);
      const void* with_nothing[] = {nothing.data(), x.data()};
      hvdft::reduce(dtype, op, with_nothing, 2, out.data(), count);
      for (uint64_t i = 0; i < count; ++i) CHECK(out[i] == a);
    }
  }
}

static void every_type_and_operation() {
  reduces<uint8_t>(HVDFT_UINT8, 200, 100, 3, 47, 3, 200, 96);  // wraps around
  reduces<int8_t>(HVDFT_INT8, 100, -3, 50, -109, -3, 100, 104);
  reduces<uint16_t>(HVDFT_UINT16, 65535, 2, 3, 4, 2, 65535, 65530);
  reduces<int16_t>(HVDFT_INT16, 32767, 1, 2, -32766, 1, 32767, -2);
  reduces<int32_t>(HVDFT_INT32, INT32_MAX, 1, 1, INT32_MIN + 1, 1, INT32_MAX, INT32_MAX);
  reduces<int64_t>(HVDFT_INT64, -5, 7, 1ll << 40, (1ll << 40) + 2, -5, 1ll << 40,
                   -35 * (1ll << 40));
  reduces<float>(HVDFT_FLOAT32, 1.5f, -2.0f, 4.0f, 3.5f, -2.0f, 4.0f, -12.0f);
  reduces<double>(HVDFT_FLOAT64, 1.5, -2.0, 4.0, 3.5, -2.0, 4.0, -12.0);
  reduces<uint16_t>(HVDFT_FLOAT16, 0x3e00, 0xc000, 0x4400, 0x4300, 0xc000, 0x4400, 0xca00);
  reduces<uint16_t>(HVDFT_BFLOAT16, 0x3fc0, 0xc000, 0x4080, 0x4060, 0xc000, 0x4080, 0xc140);
  bool out = false, yes = true, no = false;
  const void* inputs[] = {&yes, &no};
  hvdft::reduce(HVDFT_BOOL, HVDFT_SUM, inputs, 2, &out, 1);
  CHECK(out);
  hvdft::reduce(HVDFT_BOOL, HVDFT_PRODUCT, inputs, 2, &out, 1);
  CHECK(!out);
}

static uint16_t bfloat_sum(std::vector<uint16_t> values) {
  std::vector<const void*> inputs;
  for (const uint16_t& value : values) inputs.push_back(&value);
  uint16_t out = 0;
  hvdft::reduce(HVDFT_BFLOAT16, HVDFT_SUM, inputs.data(), static_cast<int>(inputs.size()), &out, 1);
  return out;
}

// Every bfloat16 stays what it is, a NaN some NaN; a sum is rounded once, ties to even.
static void bfloat16_is_rounded_once() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    auto value = static_cast<uint16_t>(bits);
    bool nan = (value & 0x7fff) > 0x7f80;
    uint16_t out = bfloat_sum({value});
    CHECK(nan ? (out & 0x7fff) > 0x7f80 : out == value);
  }
  CHECK(bfloat_sum({0x4380, 0x3f80, 0x3f80}) == 0x4381);  // 256 + 1 + 1
  CHECK(bfloat_sum({0x4380, 0x3f80}) == 0x4380);          // 257: to the even one below
  CHECK(bfloat_sum({0x4381, 0x3f80}) == 0x4382);          // 259: to the even one above
  CHECK(bfloat_sum({0x7f7f, 0x7f7f}) == 0x7f80);          // infinity
}

// float16 goes there and back for every value, in blocks of eight (the processor's
// conversion) and alone (ours); a sum is rounded once, to the nearest, ties to even.
static void float16_is_rounded_once() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    auto half = static_cast<uint16_t>(bits);
    std::vector<uint16_t> in(9, half), out(9);
    const void* inputs[] = {in.data()};
    hvdft::reduce(HVDFT_FLOAT16, HVDFT_SUM, inputs, 1, out.data(), 9);
    bool nan = std::isnan(half_value(half));
    CHECK(nan ? std::isnan(half_value(out[8])) : out[8] == half);
    CHECK(nan ? std::isnan(half_value(out[0])) : out[0] == half);
  }
  for (uint32_t a = 0; a < 65536; a += 7) {
    std::vector<uint16_t> x(9, static_cast<uint16_t>(a)), y(9), out(9);
    for (uint32_t b = 0; b < 65536; b += 517) {
      y.assign(9, static_cast<uint16_t>(b));
      const void* inputs[] = {x.data(), y.data(), x.data()};
      hvdft::reduce(HVDFT_FLOAT16, HVDFT_SUM, inputs, 3, out.data(), 9);
      bool nan = std::isnan(half_value(out[0]));
      CHECK(nan ? std::isnan(half_value(out[8])) : out[8] == out[0]);
    }
  }
  // 2048 + 1 + 1: rounding after each addition would lose both ones.
  std::vector<uint16_t> big{0x6800}, one{0x3c00}, out{0};
  const void* inputs[] = {big.data(), one.data(), one.data()};
  hvdft::reduce(HVDFT_FLOAT16, HVDFT_SUM, inputs, 3, out.data(), 1);
  CHECK(half_value(out[0]) == 2050.0f);
}

// However many inputs and elements there are, and however the result is written.
template <typename T>
static void finishes(uint32_t dtype, double factor) {
  constexpr uint64_t most = 5003;
  for (int n_inputs = 1; n_inputs <= 9; ++n_inputs) {
    std::vector<std::vector<T>> values(static_cast<size_t>(n_inputs));
    std::vector<const void*> inputs;
    for (size_t k = 0; k < values.size(); ++k) {
      for (uint64_t i = 0; i < most; ++i) {
        values[k].push_back(static_cast<T>(static_cast<T>(i * 7 % 1001) / T(3) + T(k)));
      }
      inputs.push_back(values[k].data());
    }
    for (uint64_t count : {1u, 15u, 16u, 2048u, 2049u, 5003u}) {
      for (bool past_cache : {false, true}) {
        alignas(64) T out[most + 1];
        out[count] = T(77);
        hvdft::Finish finish;
        finish.factor = factor;
        finish.past_cache = past_cache;
        hvdft::reduce(dtype, HVDFT_SUM, inputs.data(), n_inputs, out, count, finish);
        for (uint64_t i = 0; i < count; ++i) {
          T sum = values[0][i];
          for (size_t k = 1; k < values.size(); ++k) sum = static_cast<T>(sum + values[k][i]);
          CHECK(out[i] == static_cast<T>(sum * static_cast<T>(factor)));
        }
        CHECK(out[count] == T(77));
      }
    }
  }
}

static void the_heap_gives_back_and_grows_together() {
  hvdft::Heap heap(1024);
  uint64_t a = heap.allocate(100), b = heap.allocate(1), c = heap.allocate(0);
  CHECK(a == 0 && b == 128 && c == 192);
  heap.release(b, 1);
  heap.release(a, 100);
  CHECK(heap.allocate(192) == 0);  // the two have become one
  CHECK(heap.allocate(800) == hvdft::Heap::kFull);
  CHECK(heap.allocate(768) == 256);
  CHECK(heap.top() == 1024);
}

int main() {
  every_type_and_operation();
  bfloat16_is_rounded_once();
  float16_is_rounded_once();
  for (double factor : {1.0, 1.0 / 3}) {
    finishes<float>(HVDFT_FLOAT32, factor);
    finishes<double>(HVDFT_FLOAT64, factor);
  }
  finishes<int32_t>(HVDFT_INT32, 1);
  finishes<uint8_t>(HVDFT_UINT8, 1);
  the_heap_gives_back_and_grows_together();
}
