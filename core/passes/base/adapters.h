#pragma once
// Adapters: trained low-rank ones (LoRA, Hu et al. 2022) and prefixes (Li and Liang 2021), and a generating decoder's
// capacity for the former.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// Shape of a prefix's keys and values, the same in all layers, as in PEFT.
struct PrefixShape {
  int64_t layers = 0, kv_heads = 0, size = 0;
  int64_t width() const { return kv_heads * size; }  ///< of one layer's keys of a token, and of its values
  Shape dims(int64_t tokens) const { return {tokens, layers * 2 * width()}; }
  bool operator==(const PrefixShape&) const = default;
};

/// Suffixes of a module's matrices in PEFT: pair.a and pair.b, of a projection and of a table.
constexpr std::string_view lora_a = ".lora_A.weight", lora_b = ".lora_B.weight";
constexpr std::string_view table_a = ".lora_embedding_A", table_b = ".lora_embedding_B";

/// An adapter: y = x w^T + alpha / rank (x a^T) b^T for the projections that it names, where a table's x is the
/// one-hot token; or a prefix, keys and values before the first token in every attention layer.
struct AdapterWeights {
  struct Pair {
    Tensor a, b;  ///< f32 [rank, k], [n, rank]
    bool of_table = false;
    /// For a part of a packed module: first row and number of rows of b in it; rows 0: b is the whole.
    int64_t begin = 0, rows = 0;
  };
  int64_t rank = 0;
  double alpha = 0;
  std::map<std::string, Pair> modules;  ///< by "model.layers.0.self_attn.q_proj"
  /// f32 [tokens, layers * 2 * g * d]: per layer the keys, in the cache's layout, then the values. Absent: no prefix.
  Tensor prefix;
  PrefixShape prefix_shape = {};
  int64_t prefix_tokens() const { return prefix.present() ? prefix.shape()[0] : 0; }
};

/// Capacity for adapters that are loaded while a decoder runs: fixed when it is compiled.
struct AdapterCapacity {
  int64_t slots = 0;  ///< adapters at once; 0: the decoder is compiled without
  int64_t rank = 0;   ///< maximum rank
  /// Which Linears may be adapted: all but the head, those with names that match a pattern, and those with these
  /// names.
  bool all = false;
  std::vector<std::string> targets, modules;
};

/// A Linear that may be adapted. Number i has the Store's arrays "adapter.a.<i>" f32 [slots, rank, k] and
/// "adapter.b.<i>" f32 [slots, n, rank], zero-padded.
struct AdaptedLinear {
  std::string module;
  int64_t k = 0, n = 0;
};

struct Decoder;

/// Throws Error(unsupported) for a decoder without prefix support: with states, or layers that differ in these sizes.
PrefixShape prefix_shape(const Decoder& decoder);
/// Also throws Error(invalid_argument) for a prefix of another shape than the decoder's.
void check_prefix(const AdapterWeights& adapter, const Decoder& decoder);

}  // namespace plait
