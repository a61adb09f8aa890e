#pragma once
// Options of the training passes and their results, for core/train, which runs the programs.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/base/adapters.h"

namespace plait {

/// Input of the programs of a graph with its own loss: what the loss counts, a scalar of its dtype.
constexpr const char* loss_weight_input = "plait.loss_weight";

enum class OptimizerKind {
  adamw,      ///< Loshchilov and Hutter 2019
  sgd,        ///< with momentum, as PyTorch's: no dampening, no Nesterov
  adafactor,  ///< Shazeer and Stern 2018, with PyTorch's floors; keeps a row and a column instead of a matrix
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< of AdamW
  double momentum = 0;                                ///< of SGD
  double beta2_decay = -0.8;  ///< of Adafactor: step t's squares have the weight t^beta2_decay in the mean
  /// Only for weights of two dims and more, not biases, norms and sinks. Decoupled: w -= rate decay w.
  double weight_decay = 0.01;
};

/// Low-rank adapters: y = x w^T + alpha / rank (x a^T) b^T, with a [rank, k] and b [n, rank] (Hu et al. 2022).
struct LoraOptions {
  int64_t rank = 0;  ///< 0: no LoRA; otherwise only a and b are trained
  double alpha = 16;
  double dropout =
      0;  ///< dropout of x before a, different for each token, step and adapter
  /// Roles (AdapterSite), or patterns ("*", "?") of names of weights, nodes or modules to adapt; empty: all Linears
  /// but the head.
  std::vector<std::string> targets;
  /// Not empty: exactly these adapters, by name ("model.layers.0.self_attn.q_proj"), of an existing adapter.
  std::vector<std::string> modules = {};
  uint64_t seed =
      0;  ///< of dropout, and of a, which starts uniform in +-1 / sqrt(k) (as nn.Linear); b starts as zeros
};

/// Prefix tuning: keys and values before the first token of every document, in every layer (Li and Liang 2021).
/// Positions and windows count the prefix.
struct PrefixOptions {
  int64_t tokens = 0;  ///< 0: no prefix; otherwise only it is trained
  uint64_t seed = 0;   ///< of its initial values
};
/// Name of a layer's part: f32 [tokens, g d].
std::string prefix_name(size_t layer, bool values);

/// Which activations are kept for the backward pass or recomputed (core/passes/train/recompute.cpp).
enum class Recompute {
  off,        ///< all are kept
  selective,  ///< norms, activation functions and the like are recomputed
  rounded,    ///< as selective; results of products that round their operands to bf16 are kept as bf16
  full,       ///< only the residual stream is kept
};

/// Of a mesh with the axis pipeline.
struct PipelineOptions {
  std::string schedule = "1f1b";  ///< a name of schedule_rows(), with its number, or the text of a Schedule (core/schedule)
  std::string stages = "auto";    ///< "auto": balanced; "file": as its annotations; or the layers of each stage: "9,9"
  std::string seats = {};         ///< pipeline ranks of each stage, "15:1", where the schedule takes them; "": its own
  /// At least so many in a step; 0: four for each pipeline rank. Of a graph with its own loss, which then must be a mean over
  /// the batch, exactly so many; 0: one.
  int64_t micro_batches = 0;
  /// Whether `schedule` is the text of lists: that has several lines, a name has one.
  bool lists() const { return schedule.find('\n') != std::string::npos; }
};

struct TrainingOptions {
  OptimizerOptions optimizer;
  LoraOptions lora;
  PrefixOptions prefix;  ///< not with low-rank adapters
  /// Whether adapters are trained instead of weights.
  bool has_adapters() const { return lora.rank || prefix.tokens; }
  /// Continues training this adapter: sets the options that describe it.
  void begin_with(const AdapterWeights& adapter);
  /// Patterns of names of weights to train, without adapters; empty: all.
  std::vector<std::string> trained;
  int64_t row_tokens = 512;  ///< of one micro-batch and data rank
  /// What is sharded over the mesh's axis `data` (ZeRO, Rajbhandari et al. 2020): 1: optimizer state; 2: also summed
  /// gradients; 3: also weights, as FSDP.
  int zero = 0;
  Recompute recompute = Recompute::off;
  /// Maximum bytes of a bucket of collectives; larger arrays than half of it are not bucketed. 0: no buckets.
  int64_t bucket_bytes = 256 << 10;
  /// Memory that asynchronous collectives may keep in addition to the run's; 0: no asynchronous collectives.
  int64_t overlap_bytes = int64_t{64} << 20;
  PipelineOptions pipeline = {};
  bool host_loss = false;  ///< also make programs for a loss that the host computes
  /// Name of an output that is the graph's own loss, one float: the graph is then trained as written, with its own
  /// inputs. "": next-token loss of a recognised decoder.
  std::string loss = {};
  bool gradients =
      true;  ///< false: only programs for losses, of weights and adapters as they are
};

/// An array that an optimizer keeps for a parameter, of its dtype, initially zero.
struct OptimizerState {
  std::string suffix;     ///< of the key in the Store, after the parameter's key
  std::vector<int> dims;  ///< dims of the parameter that it has, ascending

  Shape shape(const Shape& parameter) const {
    Shape out;
    for (int dim : dims) out.push_back(parameter[dim]);
    return out;
  }
};
/// AdamW: ".first", ".second"; SGD: ".first"; Adafactor: ".row" without the last dim and ".column" without the one
/// before it; for vectors ".second".
std::vector<OptimizerState> optimizer_states(OptimizerKind kind, int rank);

/// A trained weight. In the Store it is `key`, its summed gradient key + ".gradient", of the same shape; optimizer
/// state: see optimizer_states. All have one dtype, f32, or f64 in f64 training.
struct TrainedParameter {
  std::string key;
  std::string name;  ///< of the file's tensor, or of the adapter: "model.layers.0.self_attn.q_proj.lora_A.weight"
  Shape shape;
  /// Initial value; its steps lead back into the file.
  std::shared_ptr<const Constant> origin;
  /// Other tensors of the file with the same contents: exporters write a tied table twice.
  std::vector<std::shared_ptr<const Constant>> copies;
  /// Of an adapter: the weight into which it can be merged; null if that is quantised, computed, or has other
  /// readers.
  std::shared_ptr<const Constant> base;
  /// Of an adapter of a part of a packed module, as AdapterWeights::Pair.
  int64_t begin = 0, rows = 0;
  bool decays = false;

  DType dtype() const { return origin->dtype(); }
};

/// A parameter in the graph, and the value of its State.
struct Trainable {
  TrainedParameter parameter;
  ValueId value = no_value;
};

}  // namespace plait
