#pragma once
// A decoder described by what it is made of: no code for a model, only a row of choices.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/named_blob.h"

namespace plait::decoder {

/// Rotary position embedding (RoFormer, arXiv:2104.09864).
struct Rope {
  double base = 10000;
  int64_t dims = 0;          ///< of each head that are rotated, from the first
  bool interleaved = false;  ///< pairs are neighbours; otherwise halves
  double factor = 1;         ///< positions are divided by it (linear scaling)
  double amplitude = 1;      ///< of cos and sin (LongRoPE, YaRN)
  /// Llama 3's scaling: low frequencies are divided by `factor`, high ones are kept, those between are blended.
  struct Llama3 {
    double factor = 1, low = 1, high = 4, context = 8192;
    bool operator==(const Llama3&) const = default;
  };
  std::optional<Llama3> llama3 = {};
  std::vector<float> factors = {};  ///< divides each frequency; empty: 1
  bool operator==(const Rope&) const = default;
};

enum class Norm { rms, layer };
/// How a layer's halves x + f(norm(x)) are joined.
enum class Join {
  serial,        ///< x + attention, then x + MLP
  parallel,      ///< x + attention + MLP, of two norms
  parallel_one,  ///< of one norm
};

/// A mixture of experts in the place of a layer's MLP (Mixtral, arXiv:2401.04088): gated MLPs, of which each token is given to those
/// that a router scores best.
struct Experts {
  int64_t count = 0, used = 0, ffn = 0;  ///< used: by a token
  bool normalised = true;  ///< the shares of those that are used sum to 1; otherwise they are of a softmax over all
  int64_t shared_ffn = 0;  ///< of an MLP that all tokens pass, with a gate of its own (Qwen 2); 0: none
  /// The weights of all experts are one array of floats: "mlp.experts.gate_up" [count, 2 ffn, h], rows of both in turn, and
  /// "mlp.experts.down" [count, h, ffn].
  bool stacked = false;
  std::vector<bool> layers = {};  ///< those that have experts; the others have the MLP
};

/// Sizes and choices. `windows` and `ropes` have an element for each layer.
struct DecoderSpec {
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocabulary = 0, context = 0;
  Norm norm = Norm::rms;
  double epsilon = 1e-6;
  double norm_offset = 0;  ///< added to the norms' weights (Gemma: 1)
  bool pre_norms = true, post_norms = false;
  bool qk_norm = false, qk_norm_whole = false;  ///< whole: over all heads together (OLMo 2), otherwise within each
  Join join = Join::serial;
  std::string activation = "silu";  ///< silu, gelu, gelu_tanh, quick_gelu, relu, relu2, sigmoid, tanh, linear
  bool gated = true;
  double embed_scale = 1, query_scale = 1;
  std::vector<double> query_scales;         ///< of each layer; empty: query_scale
  double attention_cap = 0, logit_cap = 0;  ///< c tanh(x / c); 0: none
  std::vector<int64_t> windows;             ///< 0: all tokens
  std::vector<Rope> ropes;                  ///< dims 0: none
  int64_t positions = 0;                    ///< learned position embeddings; 0: none
  bool tied = true;
  std::optional<Experts> experts = {};  ///< nothing: all layers have the MLP

  bool has_experts(int64_t layer) const { return experts && experts->layers[static_cast<size_t>(layer)]; }
  int64_t layers() const { return static_cast<int64_t>(windows.size()); }
};

/// A Linear's or table's weight as a file has it.
struct Weight {
  Tensor tensor;  ///< [n, k], or [k, n] if `inputs_first`; a norm's or bias's [n]
  bool inputs_first = false;
  /// Codes in blocks: `tensor` is u8 [n, k / block, block * bits / 8], lowest bits first.
  struct Blocks {
    int64_t bits = 4, block = 32;
    Tensor scales;                     ///< f32 [n, k / block]
    std::optional<Tensor> zeros = {};  ///< f32 [n, k / block]; nothing: 2^(bits - 1)
  };
  std::optional<Blocks> blocks = {};
};

/// Finds weights by the names that transformers gives the modules of Llama and Gemma, model.layers.0.self_attn.q_proj.weight, and of
/// experts those of Qwen: model.layers.0.mlp.experts.3.up_proj.weight, mlp.gate, mlp.shared_expert. Nothing if the model has none of
/// that name. Throws Error(bad_model) for one that cannot be read.
using Weights = std::function<std::optional<Weight>(const std::string& name)>;

/// The model's file and those of its weights, as a directory with model.onnx has them, in opset 23; arithmetic is f32, weights stay as
/// they are. Throws Error(bad_model) naming a weight that is missing or has other sizes than the spec.
std::vector<NamedBlob> write_decoder(const DecoderSpec& spec, const Weights& weights);

}  // namespace plait::decoder
