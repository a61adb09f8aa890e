#pragma once
// Index operands: i32 or i64.
#include <cstring>

#include "core/exec/kernel.h"

namespace plait::cpu {

inline bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

/// Index i of an i32 or i64 tensor.
inline int64_t read_index(const TensorView& tensor, int64_t i) {
  if (tensor.dtype == DType::i32) {
    int32_t out;
    memcpy(&out, tensor.data + i * 4, sizeof out);
    return out;
  }
  int64_t out;
  memcpy(&out, tensor.data + i * 8, sizeof out);
  return out;
}

}  // namespace plait::cpu
