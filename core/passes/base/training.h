#pragma once
// What training asks of the passes, and what they found: for core/train, which runs the programs.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/base/adapters.h"

namespace plait {

enum class OptimizerKind {
  adamw,      ///< Loshchilov and Hutter 2019
  sgd,        ///< with momentum, as PyTorch's: no dampening, no Nesterov
  adafactor,  ///< Shazeer and Stern 2018, with PyTorch's floors; keeps a row and a column in the place of a matrix
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< of AdamW
  double momentum = 0;                                ///< of SGD
  double beta2_decay = -0.8;  ///< of Adafactor: step t's squares have the share t^beta2_decay of the mean
  /// Of weights of two dims and more; biases, norms and sinks do not decay. Decoupled: w -= rate decay w.
  double weight_decay = 0.01;
};

/// Low-rank adapters: y = x w^T + alpha / rank (x a^T) b^T, with a [rank, k] and b [n, rank] (Hu et al. 2022).
struct LoraOptions {
  int64_t rank = 0;  ///< 0: none; else a and b alone are trained
  double alpha = 16;
  double dropout =
      0;  ///< share of x's features that an adapter does not see, others for each token, step and adapter
  /// Roles (AdapterSite), or patterns ("*", "?") of names of weights, of the file's nodes or of modules, of those that get one;
  /// none: all Linears but the head.
  std::vector<std::string> targets;
  /// Not empty: these and no others, by the names that adapters get ("model.layers.0.self_attn.q_proj"), of an adapter that is
  /// there already.
  std::vector<std::string> modules = {};
  uint64_t seed =
      0;  ///< of dropout, and of a, which begins uniform in +-1 / sqrt(k) (as nn.Linear does); b begins as zeros
};

/// Prefix tuning: keys and values before the first token of every document, in every layer (Li and Liang 2021). What follows
/// has positions as behind so many tokens, and windows count them.
struct PrefixOptions {
  int64_t tokens = 0;  ///< 0: none; else they alone are trained
  uint64_t seed = 0;   ///< of what they begin as
};
/// What a layer's part is called: f32 [tokens, g d].
std::string prefix_name(size_t layer, bool values);

/// What the backward pass reads of the forward pass is kept, or computed once more (core/passes/train/recompute.cpp).
enum class Recompute {
  off,        ///< all of it is kept
  selective,  ///< norms, activations and the like are computed again
  rounded,    ///< those, too; results of products that round their operands to bf16 are kept so
  full,       ///< all but the residual stream is
};

struct TrainingOptions {
  OptimizerOptions optimizer;
  LoraOptions lora;
  PrefixOptions prefix;  ///< not with low-rank adapters
  /// Whether adapters are trained, and no weights.
  bool has_adapters() const { return lora.rank || prefix.tokens; }
  /// Trains this adapter further, as the options say but for what the adapter is.
  void begin_with(const AdapterWeights& adapter);
  /// Patterns of names of weights that are trained, where there are no adapters; none: all.
  std::vector<std::string> trained;
  int64_t row_tokens = 512;  ///< of one micro-batch, and one data rank
  /// What the ranks along the mesh's axis `data` share out, instead of each having all of it (ZeRO, Rajbhandari et al. 2020):
  /// 1: what the optimizer keeps; 2: the sums of gradients, too; 3: the weights, too, as FSDP does.
  int zero = 0;
  Recompute recompute = Recompute::off;
  /// Ranks say what is at most half as large together, up to so many bytes at once; 0: each array by itself.
  int64_t bucket_bytes = 256 << 10;
  /// What collectives that go on beside the arithmetic may keep in memory beyond what a run needs else; 0: none does.
  int64_t overlap_bytes = int64_t{64} << 20;
  bool host_loss = false;  ///< also programs whose loss the host computes
  /// The name of an output that is the graph's own loss, one float: the graph, whatever it is, is then trained as it stands, and
  /// takes its own inputs. "": the loss of the next token, of a recognised decoder.
  std::string loss = {};
  bool gradients =
      true;  ///< false: nothing is trained; programs say the losses of weights as they are, and of adapters
};

/// An array that an optimizer keeps for a parameter, of its dtype, zeros at first.
struct OptimizerState {
  std::string suffix;     ///< in the Store, behind the parameter's key
  std::vector<int> dims;  ///< those of the parameter that it has, ascending

  Shape shape(const Shape& parameter) const {
    Shape out;
    for (int dim : dims) out.push_back(parameter[dim]);
    return out;
  }
};
/// AdamW: ".first", ".second"; SGD: ".first"; Adafactor: ".row" without the last dim and ".column" without the one before
/// it, of vectors ".second".
std::vector<OptimizerState> optimizer_states(OptimizerKind kind, int rank);

/// A weight that is trained. It lives in the Store under `key`, its gradient's sum under key + ".gradient", of the same
/// shape; what the optimizer keeps is beside them (optimizer_states). All of it is of one dtype, f32, or f64 where all is.
struct TrainedParameter {
  std::string key;
  std::string name;  ///< of the file's tensor, or of the adapter: "model.layers.0.self_attn.q_proj.lora_A.weight"
  Shape shape;
  /// What it begins as; with its steps, the way back into the file.
  std::shared_ptr<const Constant> origin;
  /// Other tensors of the file that hold the same: exporters write a table that is also the head twice.
  std::vector<std::shared_ptr<const Constant>> copies;
  /// Of an adapter: the weight beside which it stands, where that can take it in; null for one that is quantised, computed,
  /// or read by others, too.
  std::shared_ptr<const Constant> base;
  /// Of an adapter of a part of a packed module, as AdapterWeights::Pair.
  int64_t begin = 0, rows = 0;
  bool decays = false;

  DType dtype() const { return origin->dtype(); }
};

/// One that is in the graph: the value that its State is.
struct Trainable {
  TrainedParameter parameter;
  ValueId value = no_value;
};

}  // namespace plait
