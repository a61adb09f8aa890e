// Compiles a graph into the programs of a trainer.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/compile.h"
#include "core/passes/lower/lower.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/train/parameters.h"
#include "core/passes/train/train.h"

namespace plait {
namespace {

// Prepares a recognised decoder for training.
constexpr Pass training_passes[] = {
    {"drop_cache", drop_cache},  // attention of whole documents, without a cache
    {"in_double", in_double},    // all in f64, if requested
    {"adapt", adapt},            // adapters next to Linears, if requested
    {"shard_rows", shard_rows},  // a row per data rank
};
// A graph with its own loss.
constexpr Pass own_loss_passes[] = {
    {"fold", fold},
    {"scan", scan},
    {"own_loss", prepare_own_loss},
};
constexpr Pass gradient_passes[] = {
    {"train", train},  // the loss, gradients, and gradient accumulation
};
// Losses and gradients, after sharding.
constexpr Pass accumulate_passes[] = {
    {"fuse_training", fuse_training},
    {"recompute", recompute},  // what the backward pass reads, instead of keeping it
    {"fuse_sums", fuse_sums},  // after it, since it keeps sums and products
};
// The same if the host computes the loss.
constexpr Pass host_accumulate_passes[] = {
    {"recompute", recompute},
    {"fuse_sums", fuse_sums},
};
// Of every program, on several ranks.
constexpr Pass collective_passes[] = {
    {"bucket", bucket},    // merges small collectives
    {"overlap", overlap},  // runs them during computation
};

/// Whether the graph quantises activations.
bool rounds_activations(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear";
  });
}

Graph first_outputs(Graph graph, size_t count) {
  graph.outputs.resize(count);
  graph.remove_dead();
  return graph;
}

Graph without_output(Graph graph, size_t output) {
  graph.outputs.erase(graph.outputs.begin() + static_cast<std::ptrdiff_t>(output));
  graph.remove_dead();
  return graph;
}

/// One call of compile_training.
class TrainingCompiler {
 public:
  TrainingCompiler(const CompileOptions& options, const TrainingOptions& training)
      : options_(options), training_(training), context_{options, {}, {}, false} {
    context_.training = &training;
  }

  TrainingModel compile(Graph graph) {
    prepare(graph);
    if (on_mesh()) context_.seeds = seeds_for(graph, options_, true);
    std::optional<Graph> of_host;
    if (training_.host_loss && !own_loss()) of_host = graph_of_host_loss(graph);
    run_passes(gradient_passes, graph, context_);
    model_.mesh = options_.mesh;
    find_spread_inputs(graph);
    if (on_mesh()) model_.places = shard_training(graph, of_host ? &*of_host : nullptr, context_);
    for (Row& row : rows(graph, of_host)) model_.programs[row.program] = finish(row);
    model_.parameters = std::move(context_.parameters);
    model_.decoder = std::move(context_.decoder);
    model_.plan = std::move(context_.plan);
    return std::move(model_);
  }

 private:
  /// A program to compile. Each graph is changed only by its own passes.
  struct Row {
    TrainingProgram program;
    Graph graph;
  };

  bool own_loss() const { return !training_.loss.empty(); }
  bool on_mesh() const { return options_.mesh.ranks() > 1; }

  /// Up to the graph of the forward pass.
  void prepare(Graph& graph) {
    if (own_loss()) return run_passes(own_loss_passes, graph, context_);
    if (!run_recognition(graph, context_))
      throw Error(Code::unsupported,
                  cat("the model cannot be trained, for it is not recognised: ", context_.decoder.why_not),
                  !options_.exact_activations && rounds_activations(graph)
                      ? "its file rounds activations: give the option activations=exact, which takes them as they are"
                      : "see `plait inspect`; a graph with its own loss among its outputs is trained with "
                        "that (loss)");
    run_passes(training_passes, graph, context_);
    for (const char* name : {"t", "r", "places"})
      if (auto id = graph.symbols.find(name)) graph.symbols[*id].typical = training_.row_tokens;
  }

  /// The forward graph with the gradients of its logits as an input. Its parameters do not depend on the loss.
  Graph graph_of_host_loss(Graph graph) const {
    PassContext context = context_;
    context.host_loss = true;
    run_passes(gradient_passes, graph, context);
    return graph;
  }

  void find_spread_inputs(const Graph& graph) {
    const int64_t data_ranks = options_.mesh.blocks(options_.mesh.parts("data"));
    for (ValueId id : graph.inputs)
      if (own_loss() && spread_dim(graph, id, data_ranks, training_) >= 0)
        model_.spread_inputs.insert(graph.value(id).name);
  }

  /// `graph` has as outputs the loss, each label's loss (not with its own loss), and the sums; `of_host` the logits
  /// and the sums.
  std::vector<Row> rows(const Graph& graph, const std::optional<Graph>& of_host) {
    std::vector<Row> out;
    const auto add = [&](TrainingProgram program, Graph one) { out.push_back({program, std::move(one)}); };
    add(TrainingProgram::evaluate, first_outputs(graph, own_loss() ? 1 : 2));
    if (training_.gradients) {
      Graph accumulate = own_loss() ? first_outputs(graph, graph.outputs.size()) : without_output(graph, 1);
      run_passes(accumulate_passes, accumulate, context_);
      const Graph norm = of_states(norm_graph(options_.ops, context_.parameters, model_.places));
      add(TrainingProgram::accumulate, accumulate);
      if (reduces_once() && training_.overlap_bytes > 0)
        add(TrainingProgram::settle, settle_graph(options_.ops, std::move(accumulate), norm));
      add(TrainingProgram::norm, norm);
      add(TrainingProgram::update,
          of_states(update_graph(options_.ops, context_.parameters, training_.optimizer, model_.places)));
    }
    if (of_host) {
      Graph forward = first_outputs(*of_host, 1);
      std::erase_if(forward.inputs, [&](ValueId id) { return forward.value(id).name == "gradients"; });
      add(TrainingProgram::forward, std::move(forward));
    }
    if (of_host && training_.gradients) {
      Graph backward = without_output(*of_host, 0);
      run_passes(host_accumulate_passes, backward, context_);
      add(TrainingProgram::backward, std::move(backward));
    }
    return out;
  }

  Graph of_states(Graph graph) const {
    shard_states(graph, options_, model_.places);
    return graph;
  }

  /// Whether ranks reduce gradients once a step, instead of in each micro-batch.
  bool reduces_once() const {
    return std::any_of(model_.places.begin(), model_.places.end(),
                       [](const auto& place) { return store_keys::is_reduced_gradient(place.first); });
  }

  std::shared_ptr<const Program> finish(Row& row) {
    for (const char* name : {"t", "r"})
      if (!own_loss()) bound_symbol(row.graph, name, training_.row_tokens, training_.row_tokens);
    if (on_mesh()) run_passes(collective_passes, row.graph, context_);
    auto program = lower(row.graph, options_, store_keys::constants_label(program_name(row.program), options_.rank));
    plan(*program, on_mesh());
    row.graph = {};
    return program;
  }

  const CompileOptions& options_;
  const TrainingOptions& training_;
  PassContext context_;
  TrainingModel model_;
};

}  // namespace

std::string_view program_name(TrainingProgram program) {
  switch (program) {
    case TrainingProgram::accumulate: return "accumulate";
    case TrainingProgram::settle: return "settle";
    case TrainingProgram::evaluate: return "evaluate";
    case TrainingProgram::norm: return "norm";
    case TrainingProgram::update: return "update";
    case TrainingProgram::forward: return "forward";
    case TrainingProgram::backward: return "backward";
  }
  return "?";
}

const Program& TrainingModel::program(TrainingProgram name) const {
  const auto found = programs.find(name);
  if (found == programs.end()) throw Error(Code::internal, cat("the trainer has no program ", program_name(name)));
  return *found->second;
}

TrainingModel compile_training(Graph graph, const CompileOptions& options, const TrainingOptions& training) {
  options.mesh.require_axes({"data", "tensor"}, "training");
  return TrainingCompiler(options, training).compile(std::move(graph));
}

}  // namespace plait
