// Elementwise reduction of several inputs into one result, always in the order given, so
// that a sum does not depend on who computed it or when.
#ifndef HVD_FT_REDUCE_H
#define HVD_FT_REDUCE_H

#include <cstdint>

namespace hvdft {

// Bytes of one element of Horovod's DataType `dtype`; 0 if there is no such type.
uint64_t element_bytes(uint32_t dtype);

// How a result is written.
struct Finish {
  double factor = 1;        // float32 and float64 are multiplied by it
  bool past_cache = false;  // not read soon; it begins at a multiple of 16 bytes
};

// result[i] = inputs[0][i] op inputs[1][i] op … for i in [0, count). float16 and bfloat16 are
// summed in float32 and rounded once. Integers wrap around. Pointers are aligned to the element.
// Without an input: the neutral element of the reduction.
void reduce(uint32_t dtype, uint32_t op, const void* const* inputs, int n_inputs, void* result,
            uint64_t count, const Finish& finish = {});

}  // namespace hvdft

#endif  // HVD_FT_REDUCE_H
