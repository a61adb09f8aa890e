#pragma once
// Adapters that are there already, low-rank ones (LoRA, Hu et al. 2022) and prefixes (Li and Liang 2021), and the room that a
// decoder which generates has for the former.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// What keys and values of a prefix are: all layers' alike, as PEFT has them.
struct PrefixShape {
  int64_t layers = 0, kv_heads = 0, size = 0;
  int64_t width() const { return kv_heads * size; }  ///< of one layer's keys of a token, and of its values
  Shape dims(int64_t tokens) const { return {tokens, layers * 2 * width()}; }
  bool operator==(const PrefixShape&) const = default;
};

/// What the matrices of a module are called behind its name, as PEFT calls them: pair.a and pair.b, of a product and of a table.
constexpr std::string_view lora_a = ".lora_A.weight", lora_b = ".lora_B.weight";
constexpr std::string_view table_a = ".lora_embedding_A", table_b = ".lora_embedding_B";

/// An adapter: y = x w^T + alpha / rank (x a^T) b^T for the products that it names, where x of a table's is one at the token's
/// place and zero elsewhere; or a prefix, keys and values that stand before the first token in every attention layer.
struct AdapterWeights {
  struct Pair {
    Tensor a, b;  ///< f32 [rank, k], [n, rank]
    bool of_table = false;
    /// Of a part of a packed module: b's first row in the module's, and how many that has; 0: b is all of it.
    int64_t begin = 0, rows = 0;
  };
  int64_t rank = 0;
  double alpha = 0;
  std::map<std::string, Pair> modules;  ///< by "model.layers.0.self_attn.q_proj"
  /// f32 [tokens, layers * 2 * g * d]: of each layer the keys, as they lie in the cache, before the values. Absent: no prefix.
  Tensor prefix;
  PrefixShape prefix_shape = {};
  int64_t prefix_tokens() const { return prefix.present() ? prefix.shape()[0] : 0; }
};

/// Room for adapters that come and go while a decoder runs: fixed when it is compiled.
struct AdapterCapacity {
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

struct Decoder;

/// Throws Error(unsupported) for a decoder that takes no prefix: with states, or layers that differ in these sizes.
PrefixShape prefix_shape(const Decoder& decoder);
/// Throws Error(invalid_argument) for a prefix of another shape than the decoder's, too.
void check_prefix(const AdapterWeights& adapter, const Decoder& decoder);

}  // namespace plait
