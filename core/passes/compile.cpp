#include "core/passes/compile.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/lower/lower.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/raise/raise.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/train/parameters.h"
#include "core/passes/train/train.h"

namespace plait {
namespace {

// The passes in order. A plain graph keeps what the file says: only constants and sizes are worked out.
constexpr Pass plain_passes[] = {
    {"fold", fold},  // constants, and shape arithmetic as symbolic sizes
    {"scan", scan},  // into Loop, of types that are known by now: programs have one kind of repetition
};
// A decoder on ragged rows.
constexpr Pass ragged_passes[] = {
    {"interface", interface},  // one symbol each for batch, sequence and past, so that sizes compare
    {"fold", fold},           {"raise", raise},  // canonical ops, cache in pages, tokens as one row
    {"adapt", adapt},                            // an adapter beside Linears, if one is asked for
    {"shard", shard},                            // this rank's part of it, and what the ranks say to each other
    {"fuse", fuse},  // what kernels do better in one go; after all that reasons about single ops
    {"scan", scan},
};

// A decoder that is raised becomes one that is trained.
constexpr Pass training_passes[] = {
    {"drop_cache", drop_cache},    // attention of whole documents, without a cache
    {"in_double", in_double},  // all of it in f64, if that is asked for
    {"adapt", adapt},          // adapters beside Linears, if they are asked for
    {"shard_rows", shard_rows},    // a row for each data rank
};
// A graph with a loss of its own.
constexpr Pass own_loss_passes[] = {
    {"fold", fold},
    {"scan", scan},
    {"own_loss", prepare_own_loss},
};
constexpr Pass gradient_passes[] = {
    {"train", train},  // the loss, gradients, and the sums that they go into
};
// Of what makes losses and gradients together, once each rank has its part; the first of the model's own loss alone.
constexpr Pass accumulate_passes[] = {
    {"fuse_training", fuse_training},
    {"recompute", recompute},  // what the backward pass reads, rather than keeping it
    {"fuse_sums", fuse_sums},  // behind it, for what it keeps are sums and products
};

// Of every program of a trainer.
constexpr Pass training_end_passes[] = {
    {"bucket", bucket},    // what ranks say, in fewer words
    {"overlap", overlap},  // and while they compute
};

void bound(Graph& graph, std::string_view name, int64_t typical, int64_t most) {
  Symbol& symbol = graph.symbols[graph.symbols.intern(name)];
  symbol.typical = typical;
  symbol.bound = most;
}

/// A merged decoder holds two graphs, with and without a past: the one with is tried first.
std::vector<Graph> variants(Graph graph, const CompileOptions& options) {
  ValueId branch = find_interface(graph, options.ops).branch;
  std::vector<Graph> out;
  if (branch != no_value)
    for (uint8_t with_past : {uint8_t{1}, uint8_t{0}}) {
      Graph one = graph;
      Shape shape;
      for (size_t axis = 0; axis < one.value(branch).type.dims->size(); ++axis) shape.push_back(1);
      one.value(branch).constant =
          std::make_shared<Constant>(Constant{{}, Tensor::of<uint8_t>(DType::boolean, shape, {&with_past, 1}), {}});
      one.value(branch).type.dims = Dims(shape.begin(), shape.end());
      std::erase(one.inputs, branch);
      out.push_back(std::move(one));
    }
  else out.push_back(std::move(graph));
  return out;
}

/// The passes up to raise. What is found last is the reason why a graph is not recognised.
bool raised(Graph& graph, PassContext& context) {
  std::vector<Graph> all = variants(std::move(graph), context.options);
  Decoder first;
  for (Graph& one : all) {
    context.decoder = {};
    context.knowledge = {};
    context.keep_quantised = true;
    try {
      run_passes(std::span(ragged_passes).first(3), one, context);
    } catch (const Error& error) {
      if (all.size() == 1) throw;
      context.decoder.why_not = error.message();
    }
    graph = std::move(one);
    if (context.decoder.recognised) return true;
    if (first.why_not.empty()) first = context.decoder;
  }
  context.decoder.why_not = std::move(first.why_not);
  context.decoder.obstacles = std::move(first.obstacles);
  return false;
}

/// Into how many parts the mesh cuts the cache: of its keys in the Store, "cache.k.<pool>.<layer>" and the like.
void count_parts(PassContext& context) {
  if (context.options.mesh.ranks() == 1) return;
  const auto& states = context.plan.states;
  auto parts = [&](const std::string& prefix) {
    int64_t fewest = 0;
    for (auto at = states.lower_bound(prefix); at != states.end() && at->first.starts_with(prefix); ++at) {
      const int64_t blocks = context.options.mesh.blocks(at->second.axes());
      fewest = fewest ? std::min(fewest, blocks) : blocks;
    }
    return std::max<int64_t>(fewest, 1);
  };
  for (size_t i = 0; i < context.decoder.pools.size(); ++i)
    context.decoder.pools[i].parts = std::min(parts(cat("cache.k.", i, ".")), parts(cat("cache.v.", i, ".")));
  for (size_t i = 0; i < context.decoder.states.size(); ++i) {
    auto found = states.find(cat("cache.s.", i));
    if (found != states.end()) context.decoder.states[i].parts = context.options.mesh.blocks(found->second.axes());
  }
}

/// The graph before pass `train` with the gradients of its logits as an input. Which parameters there are does not depend on
/// the loss.
Graph graph_of_host_loss(Graph graph, PassContext context) {
  context.host_loss = true;
  run_passes(gradient_passes, graph, context);
  return graph;
}

}  // namespace

PlainModel compile_plain(Graph graph, const CompileOptions& options) {
  PassContext context{options, {}, {}, false};
  PlainModel out;
  out.interface = find_interface(graph, options.ops);
  free_mask(graph, out.interface);
  run_passes(plain_passes, graph, context);
  auto program = lower(graph, options, "plain");
  plan(*program, options.mesh.ranks() > 1);
  out.program = std::move(program);
  return out;
}

RaggedModel compile_ragged(Graph graph, const CompileOptions& options,
                           const std::function<RaggedBounds(const Decoder&)>& choose) {
  PassContext context{options, {}, {}, false};
  RaggedModel out;
  if (raised(graph, context)) {
    run_passes(std::span(ragged_passes).subspan(3), graph, context);
    count_parts(context);
    RaggedBounds bounds = choose(context.decoder);
    // Where ranks share the tokens out, "t" counts those of one.
    for (const Dim& dim : *graph.value(graph.inputs[0]).type.dims)
      if (auto multiple = dim.single_multiple()) out.token_multiple = multiple->factor;
    bound(graph, "t", 1, (bounds.tokens + out.token_multiple - 1) / out.token_multiple);
    bound(graph, "r", 1, bounds.rows);
    bound(graph, "n", 1, bounds.segments);
    for (size_t pool = 0; pool < bounds.pages.size(); ++pool)
      bound(graph, cat("p.", pool), bounds.pages[pool], bounds.pages[pool]);
    bound(graph, "c", bounds.page_tokens, bounds.page_tokens);
    if (bounds.states) bound(graph, "u", bounds.states, bounds.states);
    // Ranks that hold the same share what was computed while compiling, too.
    const std::string label = cat("ragged.", options.mesh.block(options.rank, options.mesh.parts("tensor")));
    auto program = lower(graph, options, label);
    plan(*program, options.mesh.ranks() > 1);
    out.program = std::move(program);
    if (context.decoder
            .has_hidden) {  // the same nodes without the head: its weights and state are those of `program`
      graph.outputs = {graph.outputs[1]};
      graph.remove_dead();
      auto hidden = lower(graph, options, label);
      plan(*hidden, options.mesh.ranks() > 1);
      out.hidden_program = std::move(hidden);
    }
  }
  out.decoder = std::move(context.decoder);
  out.mesh = options.mesh;
  out.plan = std::move(context.plan);
  return out;
}

/// Whether something is quantised as the graph runs.
static bool rounds_activations(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear";
  });
}

TrainingModel compile_training(Graph graph, const CompileOptions& options, const TrainingOptions& training) {
  for (const Mesh::Axis& axis : options.mesh.axes())
    if (axis.size > 1 && axis.name != "data" && axis.name != "tensor")
      throw Error(Code::unsupported, cat("training does not use the mesh's axis ", quote(axis.name)),
                  "the axes are data and tensor");
  PassContext context{options, {}, {}, false};
  context.training = &training;
  const bool own_loss = !training.loss.empty();
  if (own_loss) {
    run_passes(own_loss_passes, graph, context);
  } else {
    if (!raised(graph, context))
      throw Error(
          Code::unsupported, cat("the model cannot be trained, for it is not recognised: ", context.decoder.why_not),
          !options.exact_activations && rounds_activations(graph)
              ? "its file rounds activations: give the option activations=exact, which takes them as they are"
              : "`plait inspect` says more; one that has a loss of its own among its outputs is trained with that (loss)");
    run_passes(training_passes, graph, context);
    for (const char* name : {"t", "r", "places"})
      if (auto id = graph.symbols.find(name)) graph.symbols[*id].typical = training.row_tokens;
  }
  const bool alone = options.mesh.ranks() == 1;
  if (!alone) context.seeds = seeds_for(graph, options, true);
  std::optional<Graph> of_host;
  if (training.host_loss && !own_loss) of_host = graph_of_host_loss(graph, context);
  run_passes(gradient_passes, graph, context);
  TrainingModel out;
  out.mesh = options.mesh;
  for (ValueId id : graph.inputs)
    if (const int dim = spread_dim(graph, id, options.mesh.blocks(options.mesh.parts("data")), training);
        own_loss && dim >= 0)
      out.spread_inputs.insert(graph.value(id).name);
  if (!alone) out.places = shard_training(graph, of_host ? &*of_host : nullptr, context);
  // Each has a label of its own: passes add constants to each graph by itself.
  auto finish = [&](Graph& one, const char* label) {
    for (const char* name : {"t", "r"})
      if (!own_loss) bound(one, name, training.row_tokens, training.row_tokens);
    if (!alone) run_passes(training_end_passes, one, context);
    auto program = lower(one, options, cat(label, ".", options.rank));
    plan(*program, options.mesh.ranks() > 1);
    return program;
  };
  Graph evaluate = graph;
  evaluate.outputs.resize(own_loss ? 1 : 2);
  evaluate.remove_dead();
  out.evaluate = finish(evaluate, "evaluate");
  if (training.gradients) {
    if (!own_loss) graph.outputs.erase(graph.outputs.begin() + 1);
    graph.remove_dead();
    run_passes(accumulate_passes, graph, context);
    const Graph accumulate = graph;
    out.accumulate = finish(graph, "train");
    Graph norm = norm_graph(options.ops, context.parameters, out.places);
    shard_states(norm, options, out.places);
    const bool pays_once = std::any_of(out.places.begin(), out.places.end(),
                                       [](const auto& place) { return place.first.ends_with(".reduced"); });
    if (pays_once && training.overlap_bytes > 0) {
      Graph settle = settle_graph(options.ops, accumulate, norm);
      out.settle = finish(settle, "settle");
    }
    out.norm = finish(norm, "norm");
    Graph update = update_graph(options.ops, context.parameters, training.optimizer, out.places);
    shard_states(update, options, out.places);
    out.update = finish(update, "update");
  }
  if (of_host) {
    Graph forward = *of_host;
    forward.outputs.resize(1);
    forward.remove_dead();
    std::erase_if(forward.inputs, [&](ValueId id) { return forward.value(id).name == "gradients"; });
    out.forward = finish(forward, "forward");
    of_host->outputs.erase(of_host->outputs.begin());
    of_host->remove_dead();
    run_passes(std::span(accumulate_passes).subspan(1), *of_host, context);
    if (training.gradients) out.backward = finish(*of_host, "backward");
  }
  out.parameters = std::move(context.parameters);
  out.decoder = std::move(context.decoder);
  out.plan = std::move(context.plan);
  return out;
}

Decoder recognise(Graph graph, const CompileOptions& options) {
  PassContext context{options, {}, {}, false};
  raised(graph, context);
  return std::move(context.decoder);
}

}  // namespace plait
