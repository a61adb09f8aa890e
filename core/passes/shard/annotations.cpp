#include "core/passes/shard/annotations.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/mesh/file_layout.h"
#include "core/passes/base/pass.h"

namespace plait {
namespace {

/// Limit of block combinations that are tried for one weight.
constexpr size_t most_combinations = 1 << 20;

/// The ranks that hold each part of a tensor of the file.
class Held {
 public:
  Held(const ShardingSpec& spec, const Shape& shape) : spec_(&spec), parts_(static_cast<size_t>(shape.rank())) {
    int32_t weight = 1;
    for (auto axis = spec.axes.rbegin(); axis != spec.axes.rend(); ++axis) {
      std::vector<int32_t>& parts = parts_[static_cast<size_t>(axis->axis)];
      parts.assign(static_cast<size_t>(shape[axis->axis]), 0);
      int64_t inner = 1;
      for (auto factor = axis->factors.rbegin(); factor != axis->factors.rend(); ++factor) {
        const int64_t each = factor->size / factor->shards;
        for (size_t i = 0; i < parts.size(); ++i)
          parts[i] += weight * static_cast<int32_t>(static_cast<int64_t>(i) / inner % factor->size / each);
        weight *= static_cast<int32_t>(factor->shards);
        inner *= factor->size;
      }
    }
  }
  /// The contribution of a place along an axis to the part's number.
  int32_t part(size_t axis, int64_t place) const {
    return parts_[axis].empty() ? 0 : parts_[axis][static_cast<size_t>(place)];
  }
  bool by(int64_t device, int32_t part) const {
    const auto& group = spec_->groups[static_cast<size_t>(spec_->holders[static_cast<size_t>(part)])];
    return std::binary_search(group.begin(), group.end(), device);
  }
  /// Whether a device holds some part.
  bool by(int64_t device) const {
    return std::any_of(spec_->groups.begin(), spec_->groups.end(),
                       [&](const auto& group) { return std::binary_search(group.begin(), group.end(), device); });
  }

 private:
  const ShardingSpec* spec_;
  std::vector<std::vector<int32_t>> parts_;  ///< by axis and place; empty if it is not sharded
};

/// Index of a place in a stack of `layout`.
size_t tensor_at(const FileLayout& layout, const std::vector<int64_t>& places) {
  int64_t out = 0;
  for (size_t k = 0; k < layout.stacked; ++k) out = out * layout.sizes[k] + places[k];
  return static_cast<size_t>(out);
}
std::vector<int64_t> places_of(const FileLayout& layout, size_t tensor) {
  std::vector<int64_t> out(layout.stacked);
  auto left = static_cast<int64_t>(tensor);
  for (size_t k = layout.stacked; k-- > 0; left /= layout.sizes[k]) out[k] = left % layout.sizes[k];
  return out;
}

/// Finds the sharding of one weight.
class SeedReader {
 public:
  SeedReader(const Mesh& mesh, const DeviceConfiguration& configuration)
      : mesh_(mesh), tensor_(mesh.parts("tensor")), pipeline_(mesh.parts("pipeline")) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      device_.push_back(configuration.devices == mesh.ranks() ? rank : mesh.block(rank, tensor_));
  }

  /// `held` is by tensor of the layout.
  std::optional<Sharding> read(const FileLayout& layout, const std::vector<const Held*>& held) const {
    const std::vector<bool> ranks = holders(held);
    if (ranks.empty()) return std::nullopt;
    std::optional<Sharding> out = guess(layout, held, std::find(ranks.begin(), ranks.end(), true) - ranks.begin());
    if (out && !agrees(layout, *out, held, ranks)) out.reset();
    return out;
  }

 private:
  /// The ranks that hold some part: whole places of the axis pipeline. Empty: they are not.
  std::vector<bool> holders(const std::vector<const Held*>& held) const {
    std::vector<bool> out;
    std::map<int64_t, bool> by_place;
    for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
      out.push_back(std::any_of(held.begin(), held.end(),
                                [&](const Held* one) { return one->by(device_[static_cast<size_t>(rank)]); }));
      const auto place = by_place.emplace(mesh_.block(rank, pipeline_), out.back()).first;
      if (place->second != out.back()) return {};
    }
    if (std::find(out.begin(), out.end(), true) == out.end()) return {};
    return out;
  }

  bool holds(const FileLayout& layout, const std::vector<const Held*>& held, int64_t rank,
             const std::vector<int64_t>& places) const {
    const Held& one = *held[tensor_at(layout, places)];
    int32_t part = 0;
    for (size_t k = layout.stacked; k + 1 < places.size(); ++k) part += one.part(k - layout.stacked, places[k]);
    return one.by(device_[static_cast<size_t>(rank)], part);
  }

  /// The first rank has the first block of every dim; its neighbour along a mesh axis has, in the dim sharded by it, the
  /// block that begins at that rank's first element.
  std::optional<Sharding> guess(const FileLayout& layout, const std::vector<const Held*>& held, int64_t first) const {
    std::vector<std::vector<std::pair<int64_t, AxisId>>> cuts(layout.dims.size());  // offset, and the mesh axis
    for (AxisId axis : tensor_) {
      const int64_t rank = mesh_.group(first, {{axis}})[1];
      if (holds(layout, held, rank, layout.base)) continue;
      bool found = false;
      for (size_t d = 0; d < layout.dims.size() && !found; ++d) {
        int64_t inner = 1;
        for (const FileLayout::Digit& digit : layout.dims[d]) inner *= digit.size;
        for (const FileLayout::Digit& digit : layout.dims[d]) {
          inner /= digit.size;
          std::vector<int64_t> places = layout.base;
          for (int64_t i = 1; i < digit.size && !found; ++i) {
            places[digit.axis] += digit.stride;
            found = holds(layout, held, rank, places);
            if (found) cuts[d].emplace_back(i * inner, axis);
          }
          if (found) break;
        }
      }
      if (!found) return std::nullopt;
    }
    Sharding out = Sharding::replicated(layout.dims.size());
    for (size_t d = 0; d < cuts.size(); ++d) {
      std::sort(cuts[d].rbegin(), cuts[d].rend());
      for (const auto& [where, axis] : cuts[d]) out.dims[d].push_back(axis);
    }
    return out;
  }

  /// Whether each element is held by exactly the ranks of the sharding, of those in `holders`.
  bool agrees(const FileLayout& layout, const Sharding& sharding, const std::vector<const Held*>& held,
              const std::vector<bool>& holders) const {
    const std::optional<std::vector<CutAxis>> cut = cut_in_file(layout, sharding, mesh_);
    if (!cut) return false;
    std::vector<std::vector<int64_t>> blocks;  // by axis and rank
    for (const CutAxis& axis : *cut) {
      blocks.emplace_back();
      for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) blocks.back().push_back(mesh_.block(rank, axis.axes));
    }
    for (size_t tensor = 0; tensor < held.size(); ++tensor) {
      const std::vector<int64_t> stack = places_of(layout, tensor);
      // The existing parts, and the ranks that should hold each.
      std::map<int32_t, std::set<std::vector<bool>>> all;
      std::vector<bool> ranks(static_cast<size_t>(mesh_.ranks()), true);
      auto keep = [&](size_t k, int32_t block, std::vector<bool> of) {
        for (size_t rank = 0; rank < of.size(); ++rank) of[rank] = of[rank] && blocks[k][rank] == block;
        return of;
      };
      bool absent = false;
      for (size_t k = 0; k < stack.size(); ++k) {
        const int32_t block = (*cut)[k].blocks[static_cast<size_t>(stack[k])];
        absent = absent || block < 0;
        ranks = keep(k, block, std::move(ranks));
      }
      if (absent) continue;
      all[0].insert(ranks);
      for (size_t k = stack.size(); k < cut->size(); ++k) {
        std::set<std::pair<int32_t, int32_t>> pairs;  // of part and block
        std::pair<int32_t, int32_t> last{-1, -1};     // neighbours are mostly equal
        for (size_t i = 0; i < (*cut)[k].blocks.size(); ++i) {
          const std::pair one(held[tensor]->part(k - stack.size(), static_cast<int64_t>(i)), (*cut)[k].blocks[i]);
          if (one.second >= 0 && one != last) pairs.insert(last = one);
        }
        std::map<int32_t, std::set<std::vector<bool>>> more;
        size_t count = 0;
        for (const auto& [part, sets] : all)
          for (const std::vector<bool>& set : sets)
            for (const auto& [added, block] : pairs) {
              if (++count > most_combinations) return false;
              more[part + added].insert(keep(k, block, set));
            }
        all = std::move(more);
      }
      for (const auto& [part, sets] : all)
        for (const std::vector<bool>& set : sets)
          for (size_t rank = 0; rank < set.size(); ++rank)
            if (holders[rank] && held[tensor]->by(device_[rank], part) != set[rank]) return false;
    }
    return true;
  }

  const Mesh& mesh_;
  const AxisList tensor_;        ///< mesh axes that shard weights
  const AxisList pipeline_;      ///< those that distribute layers
  std::vector<int64_t> device_;  ///< by rank
};

Error unfit(const Mesh& mesh, std::span<const DeviceConfiguration> configurations) {
  std::vector<std::string> known;
  for (const DeviceConfiguration& one : configurations)
    known.push_back(cat(quote(one.name), " of ", one.devices, " devices"));
  return Error(Code::invalid_argument,
               cat("the mesh ", quote(mesh.text()), " has ", mesh.ranks(), " ranks, and the file is annotated for ",
                   known.empty() ? "none" : join(known, ", ")),
               "choose a mesh of as many ranks as there are devices");
}

std::string describe(const ShardingSpec& spec) {
  std::vector<std::string> groups;
  for (size_t i = 0; i < spec.holders.size() && i < 8; ++i) {
    std::vector<std::string> devices;
    for (int32_t device : spec.groups[static_cast<size_t>(spec.holders[i])]) devices.push_back(cat(device));
    groups.push_back(join(devices, "+"));
  }
  return cat(spec.holders.size(), " parts on devices ", join(groups, ", "), spec.holders.size() > 8 ? ", ..." : "");
}

/// The tensor with each factor of an axis as a dim of its own, as the spec shards them.
Constant factored(const Constant& tensor, const ShardingSpec& spec) {
  Constant out{tensor.initializer, tensor.source, {}};
  RecipeStep reshape{RecipeStep::Kind::reshape, {}};
  for (int k = 0; k < tensor.source.shape().rank(); ++k) {
    auto axis = std::find_if(spec.axes.begin(), spec.axes.end(), [&](const auto& one) { return one.axis == k; });
    if (axis == spec.axes.end()) reshape.numbers.push_back(tensor.source.shape()[k]);
    else
      for (const ShardingSpec::Factor& factor : axis->factors) reshape.numbers.push_back(factor.size);
  }
  out.steps.push_back(std::move(reshape));
  return out;
}

class Annotations {
 public:
  Annotations(const Graph& graph, const Mesh& mesh, const DeviceConfiguration& configuration,
              std::vector<std::string>& notes)
      : graph_(graph), mesh_(mesh), reader_(mesh, configuration), notes_(notes) {
    for (const ShardingSpec& spec : configuration.tensors) specs_.emplace(spec.tensor, &spec);
  }

  ShardSeeds run() {
    std::set<ValueId> seen;
    for (const Node& node : graph_.nodes)
      for (ValueId id : node.inputs)
        if (id != no_value && graph_.value(id).constant && seen.insert(id).second) read(id);
    return std::move(seeds_);
  }

 private:
  void read(ValueId id) {
    const Constant& constant = *graph_.value(id).constant;
    if (!annotated(constant)) return;
    const std::optional<FileLayout> layout = file_layout(constant);
    if (!layout) return pass_over(constant, "its steps leave no places that could be followed");
    std::vector<const Held*> held;
    for (const Constant* tensor : layout->tensors) held.push_back(held_of(*tensor));
    if (std::count(held.begin(), held.end(), nullptr))
      return pass_over(constant, "other parts of it are not annotated");
    if (std::optional<Sharding> seed = reader_.read(*layout, held)) {
      seeds_.emplace(id, std::move(*seed));
      return;
    }
    for (const Constant* tensor : layout->tensors) check(*tensor);
    pass_over(constant, "the annotated parts are no equal blocks of it");
  }

  bool annotated(const Constant& constant) const {
    return specs_.contains(constant.initializer) || std::any_of(constant.parts.begin(), constant.parts.end(),
                                                                [&](const auto& part) { return annotated(part); });
  }

  const Held* held_of(const Constant& tensor) {
    auto spec = specs_.find(tensor.initializer);
    if (spec == specs_.end()) return nullptr;
    return &held_.try_emplace(tensor.initializer, *spec->second, tensor.source.shape()).first->second;
  }

  /// Throws if an annotation contradicts the mesh (and not the weight's recipe).
  void check(const Constant& tensor) {
    const ShardingSpec& spec = *specs_.find(tensor.initializer)->second;
    const Constant plain = factored(tensor, spec);
    const Held held(spec, tensor.source.shape());
    if (reader_.read(*file_layout(plain), {&held})) return;
    throw Error(Code::invalid_argument,
                cat("tensor ", quote(spec.tensor), " is annotated to have ", describe(spec),
                    ": no equal blocks along the axis tensor of the mesh ", quote(mesh_.text())),
                cat("blocks go to the ranks in their order, 0 to ", mesh_.ranks() - 1,
                    "; the seeds \"tensor\" leave the file's annotations aside"));
  }

  void pass_over(const Constant& constant, std::string_view why) {
    const std::string& name = constant.parts.empty() ? constant.initializer : constant.parts[0].initializer;
    notes_.push_back(
        cat("the annotation of ", quote(name), " is passed over for \"", text(constant.steps), "\" of it: ", why));
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const SeedReader reader_;
  std::vector<std::string>& notes_;
  std::map<std::string, const ShardingSpec*, std::less<>> specs_;
  std::map<std::string, Held, std::less<>> held_;
  ShardSeeds seeds_;
};

}  // namespace

std::vector<const DeviceConfiguration*> configurations_for(const Mesh& mesh,
                                                           std::span<const DeviceConfiguration> configurations) {
  const int64_t places = mesh.blocks(mesh.parts("tensor"));
  auto order = [&](const DeviceConfiguration& one) {
    if (one.devices == mesh.ranks()) return one.name == mesh.text() ? 0 : 1;
    return one.devices == places ? 2 : 3;
  };
  std::vector<const DeviceConfiguration*> out;
  for (int rank = 0; rank < 3; ++rank)
    for (const DeviceConfiguration& one : configurations)
      if (order(one) == rank) out.push_back(&one);
  return out;
}

Mesh mesh_of(const DeviceConfiguration& configuration) {
  try {
    Mesh named = Mesh::parse(configuration.name);
    if (named.ranks() == configuration.devices) return named;
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    // A plain name.
  }
  return Mesh::parse(cat("tensor=", configuration.devices));
}

ShardSeeds annotated_seeds(const Graph& graph, const Mesh& mesh, std::span<const DeviceConfiguration> configurations,
                           std::vector<std::string>& notes) {
  std::optional<Error> first;
  for (const DeviceConfiguration* one : configurations_for(mesh, configurations)) {
    std::vector<std::string> told;
    try {
      ShardSeeds out = Annotations(graph, mesh, *one, told).run();
      notes.insert(notes.end(), told.begin(), told.end());
      return out;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      if (!first) first = error;
    }
  }
  throw first ? *first : unfit(mesh, configurations);
}

ShardSeeds seeds_for(const Graph& graph, const CompileOptions& options, bool training) {
  const bool asked = std::find(options.seeds.begin(), options.seeds.end(), "file") != options.seeds.end();
  if (asked && options.seeds.size() > 1)
    throw Error(Code::invalid_argument, "seeds \"file\" cannot be combined with others", "use only \"file\"");
  if (!asked && (!options.seeds.empty() || configurations_for(options.mesh, options.configurations).empty()))
    return seeds_of(graph, options.ops, options.mesh, options.seeds, training);
  std::vector<std::string> notes;
  try {
    ShardSeeds out = annotated_seeds(graph, options.mesh, options.configurations, notes);
    if (std::all_of(out.begin(), out.end(), [](const auto& one) { return one.second.is_replicated(); }))
      throw Error(Code::invalid_argument,
                  cat("the file's annotations for the mesh ", quote(options.mesh.text()), " shard no weight"));
    if (options.log && options.rank == 0) {
      for (const std::string& note : notes) options.log->write(LogLevel::warning, note);
      options.log->write(LogLevel::info, "weights are sharded by the file's annotations");
    }
    return out;
  } catch (const Error& error) {
    if (asked || !is_about_input(error.code())) throw;
    if (options.log && options.rank == 0)
      options.log->write(LogLevel::warning, cat("the file's annotations are passed over: ", error.message()));
    return seeds_of(graph, options.ops, options.mesh, options.seeds, training);
  }
}

}  // namespace plait
