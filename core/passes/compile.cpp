#include "core/passes/compile.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/error_kind.h"
#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/choose.h"
#include "core/passes/lower/lower.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/plain/plain.h"
#include "core/passes/raise/raise.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/shard/shard.h"
#include "core/passes/stage/memory_cut.h"
#include "core/passes/stage/split.h"
#include "core/passes/stage/stage.h"

namespace plait {
namespace {

// The passes in order. A plain graph keeps the meaning of each of the file's ops: constants and sizes are computed, layouts change,
// and ops run together.
constexpr Pass plain_passes[] = {
    {"in_codes", in_codes, true},            // what is between DequantizeLinear and QuantizeLinear
    {"fold", fold},                          // constants; shape arithmetic as symbolic sizes
    {"in_f32", in_f32, true},                // ops of 16 bits whose fast kernels are of 32
    {"spell_fused", spell_fused},            // ops of com.microsoft whose steps have faster kernels
    {"attend", attend, true},                // products, softmax and products
    {"channels_last", channels_last, true},  // convolutions, and what is between them
    {"chains", chains, true},                // element-wise ops in one pass over memory
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
};
constexpr Pass cut_passes[] = {
    {"stage", stage},              // of a pipeline, and what crosses between them
    {"stage_pages", stage_pages},  // each with page groups of its own
};
constexpr Pass shard_passes[] = {
    {"shard", shard},  // this rank's part, and the collectives
};
// The whole, or one pipeline stage of it.
constexpr Pass section_passes[] = {
    {"fuse", fuse},  // combines ops; after all passes that reason about single ops
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

void note_file_stages(const Graph& graph, PassContext& context) {
  for (const Node& node : graph.nodes) {
    if (node.stage > 0 && !node.name.empty()) context.file_stages.emplace(node.name, node.stage);
    for (const auto& [attribute, body] : node.bodies) note_file_stages(*body, context);  // of a merged decoder
  }
}

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
      if (!is_about_input(error.code())) throw;
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
  own_bodies(graph);
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

std::set<std::string> collective_axes(std::span<const Graph* const> graphs) {
  std::set<std::string> out;
  for (const Graph* graph : graphs)
    for (const Node& node : graph->nodes)
      if (node.attributes.has("axes") && node.attributes.has("parts")) out.insert(node.attributes.string("axes", ""));
  return out;
}

std::vector<std::vector<int32_t>> groups_along(const std::set<std::string>& axes, const Mesh& mesh, int64_t rank) {
  std::vector<std::vector<int32_t>> out;
  for (const std::string& one : axes) {
    const std::vector<int64_t> ranks = mesh.group(rank, mesh.parse_axes(one));
    out.emplace_back(ranks.begin(), ranks.end());
  }
  return out;
}

namespace {

/// One call of compile_ragged for a recognised decoder.
class RaggedCompiler {
 public:
  using Choose = std::function<RaggedBounds(const Decoder&)>;

  RaggedCompiler(const CompileOptions& options, PassContext& context, const Choose& choose)
      : options_(options), context_(context), choose_(choose) {}

  void compile(Graph graph, RaggedModel& out) {
    out.stages = options_.stages;
    out.section.stage = static_cast<int32_t>(options_.mesh.block(options_.rank, options_.mesh.parts("pipeline")));
    run_passes(ragged_passes, graph, context_);
    if (!in_stages()) {
      place(graph, out);
      return lower_programs(graph, nullptr, out);
    }
    for (const char* name : {"t", "r"})  // cut for steps of tokens that each have logits
      if (auto id = graph.symbols.find(name)) graph.symbols[*id].typical = 16;
    if (options_.stages.rank_bytes.empty()) return lower_stage(cut(std::move(graph), out), out.section.stage, out);
    compile_within(graph, out);
  }

 private:
  bool in_stages() const { return options_.stages.count() > 1; }

  /// Shards the graph, of all stages.
  void place(Graph& graph, RaggedModel& out) {
    run_passes(shard_passes, graph, context_);
    count_parts(context_);
    bound(graph, choose_(context_.decoder), out);
    note_rows(graph, out);
  }

  /// The stages of the graph, sharded.
  std::vector<StageGraphs> cut(Graph graph, RaggedModel& out) {
    run_passes(cut_passes, graph, context_);
    out.graph_fingerprint = cat(hash_of(text(graph, 0)));
    out.cut = context_.cut;
    place(graph, out);
    const Graph* const all = &graph;
    out.groups = groups_along(collective_axes({&all, 1}), options_.mesh, options_.rank);
    return split(graph, options_.ops, {.stages = options_.stages.count(), .whole = false});
  }

  void lower_stage(std::vector<StageGraphs> stages, int32_t stage, RaggedModel& out) {
    StageGraphs& own = stages[static_cast<size_t>(stage)];
    SectionGraph& section = own.sections.front();
    out.section.stage = stage;
    out.section.results = std::move(section.results);
    out.section.takes = std::move(section.takes);
    out.section.gives = std::move(section.gives);
    const SlotValues slots{own.slots, section.slots};
    lower_programs(section.graph, &slots, out);
  }

  /// Looks for a cut whose stages have enough bytes.
  void compile_within(Graph& graph, RaggedModel& out) {
    const RaggedModel empty = out;
    const Decoder decoder = context_.decoder;
    std::optional<MemoryCutSearch> search;
    std::vector<StageBytes> best;
    for (;;) {
      context_.decoder = decoder;
      std::vector<StageBytes> bytes;
      RaggedModel whole = empty;
      const std::vector<StageGraphs> stages = cut(graph, whole);
      for (int32_t stage = 0; stage < options_.stages.count(); ++stage) {
        RaggedModel one = whole;
        lower_stage(stages, stage, one);
        bytes.push_back(bytes_of(*one.program));
        if (stage == empty.section.stage) out = std::move(one);
      }
      out.stage_bytes = bytes;
      if (overuse(bytes) <= 1) return;
      if (best.empty() || overuse(bytes) < overuse(best)) best = bytes;
      if (!options_.stages.layers.empty() || options_.stages.from_file) break;
      if (!search) {
        double cache = 0;
        for (const StageBytes& one : bytes) cache += static_cast<double>(one.cache);
        const std::vector<StageUnits::Unit> units = stage_units(graph, context_).units;
        search.emplace(units, options_.stages.rank_bytes,
                       [this, units, cache](const MemoryCutSearch::Cut& one) { return held_by(units, one, cache); });
      }
      MemoryCutSearch::Cut units;
      std::vector<int64_t> taken;
      for (const StageCut& one : out.cut) units.push_back(one.units);
      for (const StageBytes& one : bytes) taken.push_back(one.all());
      search->add(units, taken);
      const std::optional<MemoryCutSearch::Cut> next = search->next();
      if (!next) break;
      context_.stage_units = *next;
    }
    refuse(best);
  }

  /// By stage of a cut, bytes of a rank's weights and cache. `cache`: of all stages, whose sum is that of the budget.
  std::vector<double> held_by(const std::vector<StageUnits::Unit>& units, const MemoryCutSearch::Cut& cut,
                              double cache) const {
    const double shards = static_cast<double>(options_.mesh.blocks(options_.mesh.parts("tensor")));
    double all = 0;
    for (const StageUnits::Unit& one : units) all += one.cache;
    std::vector<double> out;
    size_t unit = 0;
    for (int64_t count : cut) {
      double& sum = out.emplace_back(0);
      std::map<std::string, double> held;
      for (; count > 0; --count, ++unit) {
        held.insert(units[unit].held.begin(), units[unit].held.end());
        if (all > 0) sum += cache * units[unit].cache / all;
      }
      for (const auto& [name, bytes] : held) sum += bytes / shards;
    }
    return out;
  }

  /// The largest share of its limit that a stage takes.
  double overuse(const std::vector<StageBytes>& bytes) const {
    double out = 0;
    for (size_t stage = 0; stage < bytes.size(); ++stage)
      out = std::max(
          out, static_cast<double>(bytes[stage].all()) / static_cast<double>(options_.stages.rank_bytes[stage]));
    return out;
  }

  [[noreturn]] void refuse(const std::vector<StageBytes>& best) const {
    std::vector<std::string> needs, limits;
    for (size_t stage = 0; stage < best.size(); ++stage) {
      const StageBytes& one = best[stage];
      needs.push_back(cat("stage ", stage, " takes ", human_bytes(one.all()), " (weights ",
                          human_bytes(one.weights + one.adapters), ", cache ", human_bytes(one.cache), ", workspace ",
                          human_bytes(one.workspace), ") of ", human_bytes(options_.stages.rank_bytes[stage])));
      limits.push_back(cat(one.all()));
    }
    throw Error(Code::out_of_memory,
                cat("no cut into pipeline stages fits rank_memory; of the best, ", join(needs, ", ")),
                cat("rank_memory=", join(limits, ","),
                    " fits; or lower cache_bytes or step_tokens, or take more ranks along pipeline or tensor"));
  }

  static StageBytes bytes_of(const Program& program) {
    std::vector<int64_t> bounds;
    for (SymbolId id = 0; id < program.symbols.size(); ++id) bounds.push_back(program.symbols[id].bound);
    StageBytes out;
    std::set<std::string_view> counted;
    for (const StoreEntry& entry : program.entries) {
      if (!counted.insert(entry.key).second) continue;
      int64_t elements = 1;
      for (const Dim& dim : entry.dims) elements *= dim.evaluate(bounds);
      (entry.source                              ? out.weights
       : store_keys::is_adapter_slots(entry.key) ? out.adapters
                                                 : out.cache) += packed_bytes(elements, dtype_bits(entry.dtype));
    }
    out.workspace = program.arena_bytes + planned_slot_bytes(program, SlotPool::action);
    return out;
  }

  void bound(Graph& graph, const RaggedBounds& bounds, RaggedModel& out) {
    // If ranks shard the tokens, "t" is one rank's number.
    for (const Dim& dim : *graph.value(graph.inputs[0]).type.dims)
      if (auto multiple = dim.single_multiple()) out.token_multiple = multiple->factor;
    bound_symbol(graph, "t", 1, (bounds.tokens + out.token_multiple - 1) / out.token_multiple);
    bound_symbol(graph, "r", 1, bounds.rows);
    bound_symbol(graph, "n", 1, bounds.segments);
    if (context_.decoder.interface.given != no_value) bound_symbol(graph, given_symbol, 1, bounds.tokens);
    if (context_.decoder.chooses) bound_symbol(graph, "e", 1, bounds.edits);
    for (size_t pool = 0; pool < bounds.pages.size(); ++pool)
      bound_symbol(graph, cat("p.", pool), bounds.pages[pool], bounds.pages[pool]);
    bound_symbol(graph, "c", bounds.page_tokens, bounds.page_tokens);
    if (bounds.states) bound_symbol(graph, "u", bounds.states, bounds.states);
  }

  static void note_rows(const Graph& graph, RaggedModel& out) {
    std::vector<int64_t> bounds;
    for (SymbolId id = 0; id < graph.symbols.size(); ++id) bounds.push_back(graph.symbols[id].bound);
    for (const Node& node : graph.nodes) {
      if (!is_state(node)) continue;
      const Type& type = graph.value(node.outputs[0]).type;
      RaggedModel::Row row{type.dtype, {}};
      for (size_t dim = 1; dim < type.dims->size(); ++dim) row.part.push_back((*type.dims)[dim].evaluate(bounds));
      out.rows.emplace(node.attributes.string("key", ""), row);
    }
  }

  /// Of the whole graph, or of the rank's stage.
  void lower_programs(Graph& graph, const SlotValues* slots, RaggedModel& out) {
    run_passes(section_passes, graph, context_);
    // Ranks with equal parts share compile-time constants too.
    const std::string label = store_keys::constants_label(
        "ragged", options_.mesh.block(options_.rank, options_.mesh.parts("tensor")), out.section.stage);
    const auto finish = [&] {
      auto program = lower(graph, options_, label, slots);
      plan(*program, options_.mesh.ranks() > 1);
      return program;
    };
    out.program = out.section.program = finish();
    if (!context_.decoder.has_hidden) return;
    out.hidden_program = out.program;
    if (!out.section.gives.empty()) return;  // the head is on another stage
    // The same nodes without the head: its weights and state are those of `program`.
    graph.outputs = {graph.outputs[1]};
    graph.remove_dead();
    out.hidden_program = finish();
  }

  const CompileOptions& options_;
  PassContext& context_;
  const Choose& choose_;
};

}  // namespace

RaggedModel compile_ragged(Graph graph, const CompileOptions& options,
                           const std::function<RaggedBounds(const Decoder&)>& choose) {
  if (const int64_t ranks = options.mesh.blocks(options.mesh.parts("pipeline")); ranks != options.stages.count())
    throw Error(Code::invalid_argument,
                cat("the mesh ", quote(options.mesh.text()), " has ", ranks,
                    " ranks along pipeline, and the graph is cut into ", options.stages.count(), " stages"));
  own_bodies(graph);
  PassContext context{options, {}, {}, false};
  note_file_stages(graph, context);
  give_rows(graph, options.ops);
  RaggedModel out;
  if (run_recognition(graph, context)) RaggedCompiler(options, context, choose).compile(std::move(graph), out);
  out.decoder = std::move(context.decoder);
  out.mesh = options.mesh;
  out.plan = std::move(context.plan);
  return out;
}

DeviceConfiguration planned_configuration(const Graph& file, const Graph& raised, const CompileOptions& options,
                                          std::vector<std::string>& notes) {
  PassContext context{options, {}, {}, false};
  context.decoder.recognised = true;
  note_file_stages(file, context);
  Graph staged = raised;
  stage(staged, context);
  Graph sharded = staged;
  shard(sharded, context);
  return configuration_of(staged, options.mesh, context.plan.weights, notes, options.stages);
}

Decoder recognise(Graph graph, const CompileOptions& options) {
  PassContext context{options, {}, {}, false};
  give_rows(graph, options.ops);
  run_recognition(graph, context);
  return std::move(context.decoder);
}

}  // namespace plait
