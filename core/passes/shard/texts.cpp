// Parses users' sharding options: recipe names, and patterns over weight names.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/shard/search.h"

namespace plait {
namespace {

/// Names of a weight: as a value, and in the file, where it may be stacked of several tensors.
void add_names(const Constant& constant, std::set<std::string>& out) {
  if (!constant.initializer.empty()) out.insert(constant.initializer);
  for (const Constant& part : constant.parts) add_names(part, out);
}

Error different_requests(const std::string& what, std::string_view text) {
  return {Code::invalid_argument, cat("seeds ", quote(text), " ", what, ", whose ranks work on different requests"),
          "weights are sharded along the axis tensor; in training also along data"};
}

class Overrides {
 public:
  Overrides(const Graph& graph, const Mesh& mesh, bool training)
      : graph_(graph), mesh_(mesh), axes_(mesh.parts("tensor")) {
    if (training)
      for (AxisId axis : mesh.parts("data")) axes_.push_back(axis);
    for (const Node& node : graph.nodes)
      for (ValueId id : node.inputs) {
        if (id == no_value || !graph.value(id).constant || names_.contains(id)) continue;
        std::set<std::string>& names = names_[id];
        if (!graph.value(id).name.empty()) names.insert(graph.value(id).name);
        add_names(*graph.value(id).constant, names);
      }
  }

  void apply(const std::string& text, ShardSeeds& seeds) const {
    const size_t equals = text.rfind('=');
    const std::string pattern(trimmed(std::string_view(text).substr(0, equals)));
    const Sharding sharding = parse(text, std::string_view(text).substr(equals + 1));
    std::set<size_t> ranks;
    bool fits = false;
    for (const auto& [id, names] : names_) {
      if (std::none_of(names.begin(), names.end(),
                       [&](const std::string& name) { return misfit(pattern, name) == 0; }))
        continue;
      const Type& type = graph_.value(id).type;
      ranks.insert(type.dims->size());
      if (type.dims->size() != sharding.dims.size()) continue;
      check(text, *names.begin(), type, sharding);
      seeds[id] = sharding;
      fits = true;
    }
    if (ranks.empty()) throw nothing_fits(text, pattern);
    if (!fits)
      throw Error(Code::invalid_argument,
                  cat("seeds ", quote(text), " have ", sharding.dims.size(), " dimensions, but the weights that fit ",
                      quote(pattern), " have ", *ranks.begin(),
                      ranks.size() > 1 ? cat(" to ", *ranks.rbegin()) : std::string()),
                  "write one entry per dimension, \"-\" for one that is not sharded");
  }

 private:
  Sharding parse(const std::string& text, std::string_view written) const {
    Sharding out;
    try {
      out = parse_sharding(written, mesh_);
    } catch (const Error& error) {
      throw Error(error.code(), cat("seeds ", quote(text), ": ", error.message()),
                  error.hint().empty() ? cat("the mesh is ", quote(mesh_.text())) : error.hint());
    }
    for (AxisId axis : out.axes())
      if (std::find(axes_.begin(), axes_.end(), axis) == axes_.end())
        throw different_requests(cat("shard weights along ", mesh_.text({&axis, 1})), text);
    if (!out.pending.empty())
      throw Error(Code::invalid_argument, cat("seeds ", quote(text), ": a weight is not a partial sum"),
                  "write only the brackets");
    return out;
  }

  void check(const std::string& text, const std::string& name, const Type& type, const Sharding& sharding) const {
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      if (const int64_t parts = mesh_.blocks(sharding.dims[d]); !divides((*type.dims)[d], parts))
        throw Error(Code::invalid_argument,
                    cat("seeds ", quote(text), " shard dimension ", d, " of ", quote(name), " into ", parts,
                        " parts, but its sizes are ", plait::text(*type.dims, graph_.symbols)),
                    "a part of an axis cuts it into fewer: tensor=4 is tensor.0 and tensor.1, of 2 each");
  }

  Error nothing_fits(const std::string& text, const std::string& pattern) const {
    std::set<std::pair<size_t, std::string>> near;
    for (const auto& [id, names] : names_)
      for (const std::string& name : names) near.emplace(misfit(pattern, name), name);
    std::vector<std::string> most;
    for (const auto& [letters, name] : near)
      if (most.size() < 3) most.push_back(quote(name));
    return {Code::invalid_argument, cat("seeds ", quote(text), ": no weight's name fits ", quote(pattern)),
            cat("names that are near: ", join(most, ", "))};
  }

  const Graph& graph_;
  const Mesh& mesh_;
  AxisList axes_;  ///< mesh axes that may shard weights
  std::map<ValueId, std::set<std::string>> names_;
};

constexpr std::string_view recipes[] = {"tensor", "expert", "data", "search"}, sequence = "sequence",
                           expert_data = "expert_data";

/// The axes of `expert_data` that shard something.
AxisList axes_of_experts(const Graph& graph, const OpSet& ops, const Mesh& mesh, bool training) {
  if (!training) throw different_requests("give experts out over the axis data", expert_data);
  const AxisList out = mesh.parts("data");
  if (recipe_seeds(graph, ops, mesh, {}, Recipe::tensor, out).empty())
    throw Error(Code::invalid_argument,
                cat("seeds ", quote(expert_data), " shard no weight on the mesh ", quote(mesh.text())),
                "the model needs experts that are stacked in one weight, as many as a part of the axis data divides");
  return out;
}

}  // namespace

std::string recipe_of(std::span<const std::string> texts) {
  std::string recipe;
  for (const std::string& text : texts) {
    if (text == sequence || text == expert_data || text.find('=') != std::string::npos) continue;
    if (std::find(std::begin(recipes), std::end(recipes), text) == std::end(recipes))
      throw Error(Code::invalid_argument, cat("seeds are ", quote(text), ", which is no recipe"),
                  "write tensor, expert, data, search, sequence, expert_data, or PATTERN=SHARDING: "
                  "\"*.q_proj.weight=[tensor, -]\"");
    if (!recipe.empty() && recipe != text)
      throw Error(Code::invalid_argument, cat("seeds name two recipes, ", recipe, " and ", text), "name one");
    recipe = text;
  }
  return recipe.empty() ? "tensor" : recipe;
}

ShardSeeds seeds_of(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const std::string> texts,
                    bool training) {
  const std::string recipe = recipe_of(texts);
  const Overrides overrides(graph, mesh, training);
  ShardSeeds given;
  AxisList expert_axes;
  for (const std::string& text : texts) {
    if (text == expert_data) expert_axes = axes_of_experts(graph, ops, mesh, training);
    else if (text.find('=') != std::string::npos) overrides.apply(text, given);
  }
  const AxisList axes = mesh.parts("tensor");
  ShardSeeds out = given;
  const bool cuts_all = recipe == "tensor" || recipe == "expert";
  out.merge(recipe_seeds(graph, ops, mesh, cuts_all ? axes : AxisList{},
                         recipe == "expert" ? Recipe::expert : Recipe::tensor, expert_axes));
  if (recipe == "search") out = search_seeds(graph, ops, mesh, out).seeds;
  const bool cuts = std::any_of(out.begin(), out.end(), [&](const auto& one) {
    const AxisList by = one.second.axes();
    return std::find_first_of(by.begin(), by.end(), axes.begin(), axes.end()) != by.end();
  });
  if (!cuts && !axes.empty() && recipe != "search")
    throw Error(Code::invalid_argument,
                cat("on the mesh ", quote(mesh.text()), " the recipe ", recipe, " shards no weight: each of the ",
                    mesh.blocks(axes), " ranks along tensor would do the same work"),
                recipe == "data" ? "data needs no axis tensor: --mesh data=N"
                                 : "take fewer ranks, or data=N, which shares requests out");
  return out;
}

AxisList sequence_axes(Graph& graph, const Mesh& mesh, std::span<const std::string> texts) {
  const AxisList axes = mesh.parts("tensor");
  const auto tokens = graph.symbols.find("t");
  if (axes.empty() || !tokens || std::find(texts.begin(), texts.end(), sequence) == texts.end()) return {};
  const int64_t ranks = mesh.blocks(axes);
  substitute(graph, *tokens, Dim(ranks) * Dim::symbol(*tokens));
  Symbol& symbol = graph.symbols[*tokens];
  symbol.typical = std::max<int64_t>(symbol.typical / ranks, 1);
  return axes;
}

}  // namespace plait
