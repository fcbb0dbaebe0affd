#include "base/reduce.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hvd_ft.h"

namespace hvdft {
namespace {

// Float16 values are converted to float32 exactly.
struct Sum;
struct Product;
struct Min;
struct Max;
template <typename T, typename Op>
T neutral() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<Op, Sum>) return T(0);
  if constexpr (std::is_same_v<Op, Product>) return T(1);
  constexpr bool endless = Limits::has_infinity;
  if constexpr (std::is_same_v<Op, Min>) return endless ? Limits::infinity() : Limits::max();
  return endless ? -Limits::infinity() : Limits::lowest();
}

constexpr uint64_t kBlock = 2048;  // elements; some blocks fit into the first-level cache

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {
      // Unsigned and at least int wide, so that wrapping around is defined.
      using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};

// A cache line, at a multiple of 16 bytes.
void stream_line(const void* from, void* to) {
  auto* source = static_cast<const __m128i*>(from);
  auto* target = static_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, _mm_load_si128(source + i));
}

// to[i] = inputs[0][i] op … op inputs[N - 1][i], finished. `to` may be one of the inputs.
template <typename T, typename Op, int N>
void pass(const T* const* inputs, T* to, uint64_t n, const Finish& finish) {
  static_assert(N >= 1 && N <= 4);
  const T *a = inputs[0], *b = inputs[N > 1 ? 1 : 0], *c = inputs[N > 2 ? 2 : 0],
          *d = inputs[N > 3 ? 3 : 0];
  const T factor = static_cast<T>(finish.factor);
  auto result = [&](uint64_t i) {
    T sum = a[i];
    if constexpr (N > 1) sum = Op::apply(sum, b[i]);
    if constexpr (N > 2) sum = Op::apply(sum, c[i]);
    if constexpr (N > 3) sum = Op::apply(sum, d[i]);
    if constexpr (std::is_floating_point_v<T>) sum *= factor;
    return sum;
  };
  uint64_t i = 0;
  if (finish.past_cache) {
    constexpr uint64_t line = 64 / sizeof(T);
    for (; i + line <= n; i += line) {
      alignas(64) T some[line];
      for (uint64_t j = 0; j < line; ++j) some[j] = result(i + j);
      stream_line(some, to + i);
    }
  }
#pragma GCC ivdep
  for (; i < n; ++i) to[i] = result(i);
}

template <typename T, typename Op>
void pass_of(int n_inputs, const T* const* inputs, T* to, uint64_t n, const Finish& finish) {
  switch (n_inputs) {
    case 1:
      return pass<T, Op, 1>(inputs, to, n, finish);
    case 2:
      return pass<T, Op, 2>(inputs, to, n, finish);
    case 3:
      return pass<T, Op, 3>(inputs, to, n, finish);
    default:
      return pass<T, Op, 4>(inputs, to, n, finish);
  }
}

// Four inputs at once, then their result with three more, and so on: partial results go to memory
// and back as rarely as possible. Blocks stay in the first-level cache meanwhile.
template <typename T, typename Op>
void reduce_typed(const void* const* inputs, int n_inputs, void* result, uint64_t count,
                  const Finish& finish) {
  T* out = static_cast<T*>(result);
  if (n_inputs == 0) return static_cast<void>(std::fill_n(out, count, neutral<T, Op>()));
  T so_far[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    uint64_t n = std::min(kBlock, count - at);
    for (int k = 0; k < n_inputs;) {
      const T* some[4] = {so_far};
      int some_count = k == 0 ? 0 : 1;
      while (some_count < 4 && k < n_inputs) {
        some[some_count++] = static_cast<const T*>(inputs[k++]) + at;
      }
      bool last = k == n_inputs;
      pass_of<T, Op>(some_count, some, last ? out + at : so_far, n, last ? finish : Finish{});
    }
  }
  if (finish.past_cache) _mm_sfence();  // before the result is published
}

float half_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff, bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000 | mantissa << 13;
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {  // zero or subnormal: mantissa * 2^-24, exact in float32
    float value = static_cast<float>(mantissa) * 0x1p-24f;
    std::memcpy(&bits, &value, 4);
    bits |= sign;
  }
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Rounds to nearest, ties to even, as the processor's conversion does.
uint16_t float_to_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((bits >> 13) & 0x3ff));
  if (bits >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds beyond 65504
  if (bits < 0x38800000) {  // below 2^-14: subnormal; adding 0.5 puts its last bit at bit 0
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    uint32_t shifted;
    std::memcpy(&shifted, &magnitude, 4);
    return static_cast<uint16_t>(sign | (shifted - 0x3f000000));
  }
  uint32_t odd = (bits >> 13) & 1;
  return static_cast<uint16_t>(sign | ((bits + 0xfff + odd - (112u << 23)) >> 13));
}

void widen(const uint16_t* from, float* to, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) to[i] = half_to_float(from[i]);
}
void narrow(const float* from, uint16_t* to, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) to[i] = float_to_half(from[i]);
}

__attribute__((target("avx,f16c"))) void widen_f16c(const uint16_t* from, float* to, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
  widen(from + i, to + i, n - i);
}
__attribute__((target("avx,f16c"))) void narrow_f16c(const float* from, uint16_t* to, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
  }
  narrow(from + i, to + i, n - i);
}

// bfloat16 is the upper half of float32. Rounds to nearest, ties to even; a NaN stays one.
void widen_bfloat(const uint16_t* from, float* to, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, 4);
  }
}
void narrow_bfloat(const float* from, uint16_t* to, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    bits = is_nan ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1);
    to[i] = static_cast<uint16_t>(bits >> 16);
  }
}

bool has_f16c() {
  unsigned a, b, c = 0, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && __builtin_cpu_supports("avx");
}

// How elements of two bytes become float32 and are rounded to two bytes again.
struct Conversion {
  void (*to_float)(const uint16_t* from, float* to, uint64_t n);
  void (*round)(const float* from, uint16_t* to, uint64_t n);
};

Conversion of_half() {
  static const bool fast = has_f16c();
  return fast ? Conversion{widen_f16c, narrow_f16c} : Conversion{widen, narrow};
}

template <typename Op>
void reduce_short(const Conversion& of, const void* const* inputs, int n_inputs, void* result,
                  uint64_t count) {
  float sum[kBlock], next[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    uint64_t n = std::min(kBlock, count - at);
    if (n_inputs == 0) {
      std::fill_n(sum, n, neutral<float, Op>());
    } else {
      of.to_float(static_cast<const uint16_t*>(inputs[0]) + at, sum, n);
    }
    for (int k = 1; k < n_inputs; ++k) {
      of.to_float(static_cast<const uint16_t*>(inputs[k]) + at, next, n);
      for (uint64_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], next[i]);
    }
    of.round(sum, static_cast<uint16_t*>(result) + at, n);
  }
}

template <typename Op>
void reduce_op(uint32_t dtype, const void* const* inputs, int n, void* result, uint64_t count,
               const Finish& f) {
  switch (dtype) {
    case HVDFT_UINT8:
      return reduce_typed<uint8_t, Op>(inputs, n, result, count, f);
    case HVDFT_INT8:
      return reduce_typed<int8_t, Op>(inputs, n, result, count, f);
    case HVDFT_UINT16:
      return reduce_typed<uint16_t, Op>(inputs, n, result, count, f);
    case HVDFT_INT16:
      return reduce_typed<int16_t, Op>(inputs, n, result, count, f);
    case HVDFT_INT32:
      return reduce_typed<int32_t, Op>(inputs, n, result, count, f);
    case HVDFT_INT64:
      return reduce_typed<int64_t, Op>(inputs, n, result, count, f);
    case HVDFT_FLOAT16:
      return reduce_short<Op>(of_half(), inputs, n, result, count);
    case HVDFT_BFLOAT16:
      return reduce_short<Op>({widen_bfloat, narrow_bfloat}, inputs, n, result, count);
    case HVDFT_FLOAT32:
      return reduce_typed<float, Op>(inputs, n, result, count, f);
    case HVDFT_FLOAT64:
      return reduce_typed<double, Op>(inputs, n, result, count, f);
    case HVDFT_BOOL:
      return reduce_typed<bool, Op>(inputs, n, result, count, f);
    default:
      return;
  }
}

}  // namespace

uint64_t element_bytes(uint32_t dtype) {
  constexpr uint64_t bytes[] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
  return dtype < sizeof(bytes) / sizeof(bytes[0]) ? bytes[dtype] : 0;
}

void reduce(uint32_t dtype, uint32_t op, const void* const* inputs, int n_inputs, void* result,
            uint64_t count, const Finish& f) {
  switch (op) {
    case HVDFT_SUM:
      return reduce_op<Sum>(dtype, inputs, n_inputs, result, count, f);
    case HVDFT_MIN:
      return reduce_op<Min>(dtype, inputs, n_inputs, result, count, f);
    case HVDFT_MAX:
      return reduce_op<Max>(dtype, inputs, n_inputs, result, count, f);
    case HVDFT_PRODUCT:
      return reduce_op<Product>(dtype, inputs, n_inputs, result, count, f);
    default:
      return;
  }
}

}  // namespace hvdft
