#pragma once
// Passes rewrite a graph. One runner names, times, verifies and dumps each.
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/load_progress.h"
#include "core/base/log.h"
#include "core/exec/kernel.h"
#include "core/graph/device_configuration.h"
#include "core/graph/infer.h"
#include "core/graph/schema.h"
#include "core/passes/base/decoder.h"
#include "core/passes/base/shard_plan.h"
#include "core/passes/base/stages.h"
#include "core/passes/base/training.h"

namespace plait {

class Device;

struct CompileOptions {
  const OpSet& ops;
  const KernelTable& kernels;
  Log* log = nullptr;
  std::set<std::string> off;  ///< names of passes to skip, for debugging
  /// Called with the graph after each pass, if set.
  std::function<void(std::string_view pass, const Graph& graph)> dump;
  /// Of a decoder. none or f32: weights as the file stores them; arithmetic and cache in f32, as in files with bf16
  /// weights and a Cast. bf16: weights of Linears and Embeddings and the cache are stored as bf16, and a kernel may
  /// round a Linear's activations to bf16 where the processor multiplies these faster. f64, only for training:
  /// trained weights and all arithmetic, in reference kernels; so it shows differences larger than rounding.
  DType dtype = DType::none;
  /// Advances by one per pass and per lowered program; cancels the compilation. May be null.
  LoadProgress* progress = nullptr;
  /// For decoders whose file rounds activations to 8 bits: multiply with unrounded activations, which is more precise
  /// than the file. Otherwise the graph runs as written.
  bool exact_activations = false;
  /// The decoder's mesh, and the rank to compile for; ranks differ only in their shards.
  Mesh mesh = {};
  int64_t rank = 0;
  int64_t local_rank = 0;               ///< among the ranks of its machine, for `make_device`
  std::vector<std::string> seeds = {};  ///< requested shardings: see `seeds_for` (core/passes/shard/annotations.h)
  /// Capacity for adapters next to the Linears of a decoder that generates; Linears do not change.
  AdapterCapacity adapters = {};
  /// Device configurations of the file; must outlive the options.
  std::span<const DeviceConfiguration> configurations = {};
  DeviceKind device = DeviceKind::host;  ///< whose kernels are chosen
  /// Makes the rank's device; null: `default_device()`. Called when arrays are made, not by passes.
  std::function<std::shared_ptr<Device>(int64_t local_rank)> make_device = {};
  StageOptions stages = {};  ///< of a pipeline

  /// The rank's device as a Store takes it.
  std::shared_ptr<Device> own_device() const { return make_device ? make_device(local_rank) : nullptr; }
  /// Of trained weights, whatever dtype they are stored in.
  DType trained_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

/// Limits evaluation within one compilation: a small file can ask for years of work, and for any amount of memory in
/// small pieces. A step is an element read or written, or a multiplication.
struct EvaluationBudget {
  int64_t steps = int64_t{1} << 33;         ///< about 10 s; masks probed over thousands of tokens take 2^31
  int64_t kept_bytes = int64_t{512} << 20;  ///< of constants that folding computes
};

/// What passes know in addition to the graph, passed from one to the next.
struct PassContext {
  const CompileOptions& options;
  Knowledge knowledge;  ///< symbolic contents of small integer values; kept by `fold`
  Decoder decoder;      ///< what `raise` recognised
  /// Whether `fold` leaves quantised matrices for `raise` to find instead of dequantising them.
  bool keep_quantised = false;
  /// Shared, so that const contexts can use it up.
  std::shared_ptr<EvaluationBudget> budget = std::make_shared<EvaluationBudget>();
  ShardPlan plan = {};                            ///< of `shard`; empty on one rank
  const TrainingOptions* training = nullptr;      ///< null: the graph is not trained
  std::vector<Trainable> adapters = {};           ///< added by `adapt`
  std::vector<TrainedParameter> parameters = {};  ///< parameters with gradients, found by `train`
  bool host_loss = false;                         ///< `train` makes the gradients of the logits an input, and no loss
  ShardSeeds seeds = {};                          ///< of the weights of a graph trained on several ranks
  AxisList sequence = {};  ///< of a graph that is trained: axes over which its tokens are sharded between products
  std::vector<int64_t> stage_units =
      {};  ///< units of each stage (core/passes/stage/stage.h), if pass `stage` is not to decide
  std::vector<StageCut> cut = {};                   ///< by stage, made by `stage`; empty: there is one
  std::map<std::string, int32_t> file_stages = {};  ///< nonzero pipeline stages of the file's nodes, by name
};

struct Pass {
  std::string_view name;
  void (*run)(Graph& graph, PassContext& context);
  bool in_bodies = false;  ///< also runs on the bodies of nodes, innermost first, each a graph of its own
};

/// Runs the passes in order, each followed by the verifier and the dump, if set. An Error keeps its code and message
/// and gets the prefix "pass <name>: ".
void run_passes(std::span<const Pass> passes, Graph& graph, PassContext& context);

}  // namespace plait
