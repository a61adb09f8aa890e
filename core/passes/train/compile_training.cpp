#include "core/passes/train/compile_training.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/lower/lower.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/shard/shard.h"
#include "core/passes/stage/split.h"
#include "core/passes/stage/stage.h"
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
    {"capture_weights", capture_weights},  // of bodies, to train them
};
constexpr Pass stage_passes[] = {
    {"stage", stage},  // of a pipeline, and what crosses between them
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

/// What ranks have in common, and from it the model of each.
class TrainingCompiler {
 public:
  TrainingCompiler(Graph graph, const CompileOptions& options, const TrainingOptions& training)
      : options_(options), training_(training), context_{options, {}, {}, false} {
    context_.training = &training;
    note_file_stages(graph, context_);
    prepare(graph);
    run_passes(stage_passes, graph, context_);
    model_.stages = options_.stages;
    if (on_mesh()) find_shardings(graph);
    std::optional<Graph> of_host;
    if (training_.host_loss && !own_loss()) of_host = graph_of_host_loss(graph);
    run_passes(gradient_passes, graph, context_);
    model_.mesh = options_.mesh;
    find_spread_inputs(graph);
    if (in_stages()) find_holders(graph);
    if (on_mesh()) model_.places = shard_training(graph, of_host ? &*of_host : nullptr, context_);
    rows_ = rows(graph, of_host);
    for (Row& row : rows_) finish(row);
    model_.parameters = std::move(context_.parameters);
    model_.decoder = std::move(context_.decoder);
    model_.plan = std::move(context_.plan);
  }

  TrainingModel model_of(const CompileOptions& own) const {
    const auto seat = static_cast<int32_t>(own.mesh.block(own.rank, own.mesh.parts("pipeline")));
    TrainingModel model = model_;
    if (in_stages() && on_mesh()) model.groups = groups_along(collective_axes_, own.mesh, own.rank);
    for (const Row& row : rows_) {
      if (row.seat >= 0 && row.seat != seat) continue;
      if (row.stages.empty()) model.programs[row.program] = lowered(row, own);
      else model.sections[row.program] = lowered_sections(row, own, seat);
    }
    return model;
  }

 private:
  /// A program of ranks. Each graph is changed only by its own passes.
  struct Row {
    TrainingProgram program;
    Graph graph;
    int32_t seat = -1;                     ///< coordinate along pipeline of the ranks that have it; -1: all
    std::vector<StageGraphs> stages = {};  ///< instead of the graph
  };

  bool own_loss() const { return !training_.loss.empty(); }
  bool in_stages() const { return options_.stages.count() > 1; }
  int32_t seats() const { return static_cast<int32_t>(options_.mesh.blocks(options_.mesh.parts("pipeline"))); }
  static bool is_micro_batch(TrainingProgram program) {
    return program != TrainingProgram::norm && program != TrainingProgram::update;
  }
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

  void find_shardings(Graph& graph) {
    if (!own_loss()) context_.sequence = sequence_axes(graph, options_.mesh, options_.seeds);
    model_.token_multiple = options_.mesh.blocks(context_.sequence);
    context_.seeds = seeds_for(graph, options_, true);
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
      add(TrainingProgram::accumulate, accumulate);
      for (int32_t seat = 0; seat < seats(); ++seat) {
        const std::vector<TrainedParameter> own = parameters_of(seat);
        if (own.empty()) continue;
        const Graph norm = norm_of(own, seat);
        if (!in_stages() && reduces_once() && training_.overlap_bytes > 0)
          add(TrainingProgram::settle, settle_graph(options_.ops, std::move(accumulate), norm));
        out.push_back({TrainingProgram::norm, norm, seat});
        out.push_back({TrainingProgram::update, update_of(own), seat});
      }
    }
    if (in_stages() && on_mesh()) find_groups(out, of_host);
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

  std::vector<TrainedParameter> parameters_of(int32_t seat) const {
    std::vector<TrainedParameter> out;
    for (const TrainedParameter& one : context_.parameters)
      if (model_.holds(one, seat)) out.push_back(one);
    return out;
  }
  /// The first holder of a parameter counts its gradient.
  Graph norm_of(const std::vector<TrainedParameter>& parameters, int32_t seat) const {
    return of_states(norm_graph(options_.ops, parameters, model_.places, [&](const TrainedParameter& one) {
      const auto found = model_.holders.find(one.key);
      return found == model_.holders.end() || found->second.front() == seat;
    }));
  }
  Graph update_of(const std::vector<TrainedParameter>& parameters) const {
    return of_states(update_graph(options_.ops, parameters, training_.optimizer, model_.places));
  }

  /// A parameter is where a stage that reads it is. All that is trained is listed, also what all ranks hold.
  void find_holders(const Graph& graph) {
    std::map<std::string, std::set<int32_t>, std::less<>> found;
    std::vector<std::set<std::string>> read(context_.cut.size());
    for (const Node& node : graph.nodes)
      if (is_state(node)) {
        const auto stage = static_cast<size_t>(std::max(node.stage, 0));
        const std::string key = node.attributes.string("key", "");
        read[stage].insert(key);
        found[key].insert(options_.stages.seats[stage].begin(), options_.stages.seats[stage].end());
      }
    for (const TrainedParameter& one : context_.parameters) {
      const std::set<int32_t>& seats = found[one.key];
      model_.holders[one.key].assign(seats.begin(), seats.end());
      for (size_t stage = 0; stage < read.size(); ++stage)
        if (read[stage].contains(one.key)) context_.cut[stage].parameters.push_back(one.key);
    }
    model_.cut = context_.cut;
    model_.graph_fingerprint = cat(hash_of(text(graph, 0)));
  }

  /// The groups of all stages' programs, in an order that all ranks find alike: those of graphs that are not split yet, and of
  /// norm and update as of all parameters.
  void find_groups(const std::vector<Row>& rows, const std::optional<Graph>& of_host) {
    std::vector<const Graph*> all;
    for (const Row& row : rows)
      if (is_micro_batch(row.program)) all.push_back(&row.graph);
    if (of_host) all.push_back(&*of_host);
    std::vector<Graph> of_parameters;
    if (training_.gradients) of_parameters = {norm_of(context_.parameters, 0), update_of(context_.parameters)};
    for (const Graph& graph : of_parameters) all.push_back(&graph);
    collective_axes_ = collective_axes(all);
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

  void bound(Graph& graph) const {
    if (own_loss()) return;
    // If ranks shard the tokens, "t" is one rank's number.
    const int64_t multiple = model_.token_multiple, tokens = (training_.row_tokens + multiple - 1) / multiple;
    bound_symbol(graph, "t", tokens, tokens);
    bound_symbol(graph, "r", multiple * tokens, multiple * tokens);
  }

  /// Up to what differs between ranks.
  void finish(Row& row) {
    bound(row.graph);
    if (in_stages() && is_micro_batch(row.program)) return cut(row);
    if (on_mesh()) run_passes(collective_passes, row.graph, context_);
  }

  /// Into the sections of stages.
  void cut(Row& row) {
    SplitOptions how{.stages = options_.stages.count(),
                     .whole = options_.stages.whole_backward,
                     .halves = options_.stages.split_backward};
    if (row.program == TrainingProgram::accumulate || row.program == TrainingProgram::backward)
      how.backward = backward_values(row.graph);
    row.stages = split(row.graph, options_.ops, how);
    row.graph = {};
    for (StageGraphs& stage : row.stages) {
      note_edges(stage);
      if (on_mesh())
        for (SectionGraph& section : stage.sections) run_passes(collective_passes, section.graph, context_);
    }
  }

  std::shared_ptr<const Program> lowered(const Row& row, const CompileOptions& own) const {
    auto program = lower(row.graph, own, store_keys::constants_label(program_name(row.program), own.rank));
    plan(*program, on_mesh());
    return program;
  }

  /// The sections of the stages that the ranks of a seat hold.
  std::vector<StageSection> lowered_sections(const Row& row, const CompileOptions& own, int32_t seat) const {
    std::vector<StageSection> out;
    for (const StageGraphs& stage : row.stages) {
      if (!options_.stages.holds(seat, stage.stage)) continue;
      for (const SectionGraph& section : stage.sections) {
        const SlotValues slots{stage.slots, section.slots};
        auto program = lower(section.graph, own,
                             store_keys::constants_label(program_name(row.program), own.rank, stage.stage), &slots);
        plan(*program, on_mesh());
        out.push_back({stage.stage, section.kind, std::move(program), section.results, section.takes, section.gives});
      }
    }
    return out;
  }

  void note_edges(const StageGraphs& stage) {
    for (const SectionGraph& section : stage.sections) {
      if (section.kind != Action::Kind::forward) continue;
      for (const StageMessage& message : section.gives)
        if (const StageEdge edge{stage.stage, message.stage};
            std::find(model_.edges.begin(), model_.edges.end(), edge) == model_.edges.end())
          model_.edges.push_back(edge);
    }
    std::sort(model_.edges.begin(), model_.edges.end(), [](const StageEdge& a, const StageEdge& b) {
      return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    });
  }

  const CompileOptions& options_;
  const TrainingOptions& training_;
  PassContext context_;
  TrainingModel model_;  ///< without programs
  std::vector<Row> rows_;
  std::set<std::string> collective_axes_;  ///< of all stages' programs
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

bool TrainingModel::holds(const TrainedParameter& parameter, int64_t coordinate) const {
  const auto found = holders.find(parameter.key);
  return found == holders.end() || std::find(found->second.begin(), found->second.end(), coordinate) != found->second.end();
}

std::function<TrainingModel(const CompileOptions&)> training_compiler(Graph graph, const CompileOptions& options,
                                                                      const TrainingOptions& training) {
  if (const int64_t ranks = options.mesh.blocks(options.mesh.parts("pipeline")); ranks > 1 && options.stages.count() == 1)
    throw Error(Code::invalid_argument, cat("the mesh ", quote(options.mesh.text()), " has ", ranks,
                                            " ranks along pipeline, and the graph is not cut into stages"));
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.value(id).type.dtype == DType::string)
      throw Error(Code::unsupported, cat("value ", quote(graph.value(id).name), " is of strings, which training does not take"),
                  "train the part of the graph behind what makes numbers of them");
  own_bodies(graph);
  const auto compiler = std::make_shared<const TrainingCompiler>(std::move(graph), options, training);
  return [compiler](const CompileOptions& own) { return compiler->model_of(own); };
}

TrainingModel compile_training(Graph graph, const CompileOptions& options, const TrainingOptions& training) {
  return training_compiler(std::move(graph), options, training)(options);
}

}  // namespace plait
