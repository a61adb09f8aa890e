#pragma once
// Passes rewrite a graph. Every one goes through the same runner, which names, times, checks and dumps it.
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
#include "core/passes/base/training.h"

namespace plait {

struct CompileOptions {
  const OpSet& ops;
  const KernelTable& kernels;
  Log* log = nullptr;
  std::set<std::string> off;  ///< names of passes to leave out, for finding faults
  /// Called with the graph after each pass, if set.
  std::function<void(std::string_view pass, const Graph& graph)> dump;
  /// Of a decoder. none or f32: weights as the file stores them, all arithmetic and the cache in f32, which is what
  /// files say that hold bf16 weights behind a Cast. bf16: weights of Linears and Embeddings and the cache are stored as
  /// bf16, and a kernel may round a Linear's activations to bf16 where the processor multiplies these faster. f64, only
  /// for training: what is trained and all arithmetic, in reference kernels; so it shows what differs by more than rounding.
  DType dtype = DType::none;
  /// Advances by one for each pass and each program that is lowered, and ends the work when it was cancelled; may be
  /// null.
  LoadProgress* progress = nullptr;
  /// Of a decoder whose file rounds activations to 8 bits: whether products take them as they are. Closer to
  /// what only the weights give than the file is; otherwise the graph runs as written.
  bool exact_activations = false;
  /// The ranks that a decoder is spread over, and for which of them to compile; all compile the same but for their parts.
  Mesh mesh = {};
  int64_t rank = 0;
  std::vector<std::string> seeds = {};  ///< how: see `seeds_for` (core/passes/shard/annotations.h)
  /// Capacity for adapters next to the Linears of a decoder that generates; Linears do not change.
  AdapterCapacity adapters = {};
  /// Device configurations of the file; must outlive the options.
  std::span<const DeviceConfiguration> configurations = {};
  DeviceKind device = DeviceKind::host;  ///< whose kernels are chosen

  /// Of what is trained, whatever its weights are stored in.
  DType trained_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

/// What running parts of a graph may cost one compilation: a file of some bytes can ask for years of work, and for any
/// amount of memory in small pieces. A step is an element read or written, or a multiplication.
struct EvaluationBudget {
  int64_t steps = int64_t{1} << 33;         ///< about 10 s; masks probed over thousands of tokens take 2^31
  int64_t kept_bytes = int64_t{512} << 20;  ///< of constants that folding computes
};

/// What passes know beyond the graph, handed from one to the next.
struct PassContext {
  const CompileOptions& options;
  Knowledge knowledge;  ///< contents of small integer values, symbolic; kept by `fold`
  Decoder decoder;      ///< what `raise` recognised
  /// Whether `fold` leaves quantised matrices for `raise` to find, rather than computing what they stand for.
  bool keep_quantised = false;
  /// Shared, so that it can be used up where the context is constant.
  std::shared_ptr<EvaluationBudget> budget = std::make_shared<EvaluationBudget>();
  ShardPlan plan = {};                            ///< of `shard`; empty on one rank
  const TrainingOptions* training = nullptr;      ///< null: the graph is not to be trained
  std::vector<Trainable> adapters = {};           ///< that `adapt` added
  std::vector<TrainedParameter> parameters = {};  ///< that `train` found gradients of
  bool host_loss = false;                         ///< `train` asks for the gradients of the logits, and makes no loss
  ShardSeeds seeds = {};  ///< of the weights of a graph that is to be trained on several ranks
};

struct Pass {
  std::string_view name;
  void (*run)(Graph& graph, PassContext& context);
};

/// Runs the passes in order; after each the verifier, and the dump if one is wanted. An Error keeps its code and
/// message and gets "pass <name>: " in front.
void run_passes(std::span<const Pass> passes, Graph& graph, PassContext& context);

}  // namespace plait
