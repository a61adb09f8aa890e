#include "core/passes/compile.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/choose.h"
#include "core/passes/lower/lower.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/raise/raise.h"
#include "core/passes/shard/shard.h"

namespace plait {
namespace {

// The passes in order. A plain graph keeps the meaning of each of the file's ops: constants and sizes are computed, layouts change,
// and ops run together.
constexpr Pass plain_passes[] = {
    {"fold", fold},  // constants; shape arithmetic as symbolic sizes
    {"in_f32", in_f32},                // ops of 16 bits whose fast kernels are of 32
    {"channels_last", channels_last},  // convolutions, and what is between them
    {"chains", chains},                // element-wise ops in one pass over memory
    {"scan", scan},  // into Loop, of known types: programs have one kind of repetition
};
// Raises a decoder to canonical ops with a paged cache and one row of tokens, or finds the reason why not.
constexpr Pass recognition_passes[] = {
    {"interface", interface},  // one symbol each for batch, sequence and past, so that sizes compare
    {"fold", fold},
    {"raise", raise},
};
// A recognised decoder on ragged rows.
constexpr Pass ragged_passes[] = {
    {"adapt", adapt},    // an adapter next to Linears, if requested
    {"choose", choose},  // tokens, where a device samples
    {"shard", shard},    // this rank's part, and the collectives
    {"fuse", fuse},      // combines ops; after all passes that reason about single ops
    {"scan", scan},
};

/// A merged decoder contains two graphs, with and without a past: the one with is tried first.
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

}  // namespace

void bound_symbol(Graph& graph, std::string_view name, int64_t typical, int64_t bound) {
  Symbol& symbol = graph.symbols[graph.symbols.intern(name)];
  symbol.typical = typical;
  symbol.bound = bound;
}

bool run_recognition(Graph& graph, PassContext& context) {
  std::vector<Graph> all = variants(std::move(graph), context.options);
  Decoder first;
  for (Graph& one : all) {
    context.decoder = {};
    context.knowledge = {};
    context.keep_quantised = true;
    try {
      run_passes(recognition_passes, one, context);
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

namespace {

/// Number of shards of the cache.
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
  for (size_t i = 0; i < context.decoder.pools.size(); ++i) {
    const auto parts_of = [&](store_keys::CacheHalf half) {
      return parts(store_keys::cache_pool(half, static_cast<int64_t>(i)));
    };
    context.decoder.pools[i].parts =
        std::min(parts_of(store_keys::CacheHalf::keys), parts_of(store_keys::CacheHalf::values));
  }
  for (size_t i = 0; i < context.decoder.states.size(); ++i) {
    auto found = states.find(store_keys::cache_states(static_cast<int64_t>(i)));
    if (found != states.end()) context.decoder.states[i].parts = context.options.mesh.blocks(found->second.axes());
  }
}

}  // namespace

PlainModel compile_plain(Graph graph, const CompileOptions& options) {
  PassContext context{options, {}, {}, false};
  context.knowledge.exact = true;
  PlainModel out;
  out.interface = find_interface(graph, options.ops);
  free_mask(graph, out.interface);
  run_passes(plain_passes, graph, context);
  auto program = lower(graph, options, store_keys::constants_label("plain", 0));
  plan(*program, false);
  out.program = std::move(program);
  return out;
}

RaggedModel compile_ragged(Graph graph, const CompileOptions& options,
                           const std::function<RaggedBounds(const Decoder&)>& choose) {
  PassContext context{options, {}, {}, false};
  RaggedModel out;
  if (run_recognition(graph, context)) {
    run_passes(ragged_passes, graph, context);
    count_parts(context);
    RaggedBounds bounds = choose(context.decoder);
    // If ranks shard the tokens, "t" is one rank's number.
    for (const Dim& dim : *graph.value(graph.inputs[0]).type.dims)
      if (auto multiple = dim.single_multiple()) out.token_multiple = multiple->factor;
    bound_symbol(graph, "t", 1, (bounds.tokens + out.token_multiple - 1) / out.token_multiple);
    bound_symbol(graph, "r", 1, bounds.rows);
    bound_symbol(graph, "n", 1, bounds.segments);
    if (context.decoder.chooses) bound_symbol(graph, "e", 1, bounds.edits);
    for (size_t pool = 0; pool < bounds.pages.size(); ++pool)
      bound_symbol(graph, cat("p.", pool), bounds.pages[pool], bounds.pages[pool]);
    bound_symbol(graph, "c", bounds.page_tokens, bounds.page_tokens);
    if (bounds.states) bound_symbol(graph, "u", bounds.states, bounds.states);
    // Ranks with equal parts share compile-time constants too.
    const std::string label =
        store_keys::constants_label("ragged", options.mesh.block(options.rank, options.mesh.parts("tensor")));
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

Decoder recognise(Graph graph, const CompileOptions& options) {
  PassContext context{options, {}, {}, false};
  run_recognition(graph, context);
  return std::move(context.decoder);
}

}  // namespace plait
