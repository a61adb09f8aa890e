#pragma once
// Low-rank adapters (LoRA, Hu et al. 2022) that are there already, and the room that a decoder which generates has for them.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// An adapter: y = x w^T + alpha / rank (x a^T) b^T for the Linears that it names.
struct AdapterWeights {
  struct Pair {
    Tensor a, b;  ///< f32 [rank, k], [n, rank]
  };
  int64_t rank = 0;
  double alpha = 0;
  std::map<std::string, Pair> modules;  ///< by "model.layers.0.self_attn.q_proj"
};

/// Room for adapters that come and go while a decoder runs: fixed when it is compiled.
struct AdapterRoom {
  int64_t slots = 0;  ///< adapters at once; 0: the decoder is compiled without
  int64_t rank = 0;   ///< of the largest
  /// Which Linears may be adapted: all but the head, those whose names fit a pattern, and those that are called so.
  bool all = false;
  std::vector<std::string> targets, modules;
};

/// A Linear that may be adapted. Number i has the Store's arrays "adapter.a.<i>" f32 [slots, rank, k] and "adapter.b.<i>"
/// f32 [slots, n, rank], zeros where an adapter has less.
struct AdaptedLinear {
  std::string module;
  int64_t k = 0, n = 0;
};

}  // namespace plait
