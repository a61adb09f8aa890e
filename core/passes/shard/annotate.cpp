// Converts a plan into annotations of the file's tensors.
#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/mesh/file_layout.h"
#include "core/passes/base/pass.h"
#include "core/passes/shard/annotations.h"

namespace plait {
namespace {

using Ranks = std::vector<int32_t>;

/// How one weight uses a tensor.
struct Use {
  Sharding sharding;          ///< of the weight, for messages
  std::vector<CutAxis> axes;  ///< of the tensor
  std::vector<bool> ranks;    ///< those that hold a part of the tensor
};

/// A tensor of the file, and the weights made from it: itself, its transpose, slices.
struct FileTensor {
  std::string name;
  Shape shape;
  std::vector<bool> ranks;  ///< those of the stages that read it
  std::vector<Use> uses;
};

/// Of a graph with stages, by name of a tensor of the file: the stages that read it.
std::map<std::string, std::vector<int32_t>, std::less<>> readers_of(const Graph& graph) {
  std::map<std::string, std::vector<int32_t>, std::less<>> out;
  const auto add = [&](const auto& self, const Constant& constant, int32_t stage) -> void {
    for (const Constant& part : constant.parts) self(self, part, stage);
    if (constant.initializer.empty()) return;
    std::vector<int32_t>& stages = out[constant.initializer];
    const auto place = std::lower_bound(stages.begin(), stages.end(), stage);
    if (place == stages.end() || *place != stage) stages.insert(place, stage);
  };
  for (const Node& node : graph.nodes)
    for (ValueId id : node.inputs)
      if (id != no_value && node.stage >= 0 && graph.value(id).constant)
        add(add, *graph.value(id).constant, node.stage);
  return out;
}

class Annotator {
 public:
  Annotator(const Graph& graph, const Mesh& mesh, std::vector<std::string>& notes, const StageOptions& stages)
      : graph_(graph), mesh_(mesh), notes_(notes), stages_(stages) {
    if (stages.count() > 1) readers_ = readers_of(graph);
  }

  DeviceConfiguration run(const std::map<ValueId, Sharding>& weights) {
    for (const auto& [id, sharding] : weights) add(graph_.value(id), sharding);
    if (computed_)
      notes_.push_back(cat(computed_,
                           " sharded weights are computed at compile time: the file has no tensor to "
                           "annotate"));
    DeviceConfiguration out{mesh_.text(), static_cast<int32_t>(mesh_.ranks()), {}, readers_};
    for (const FileTensor& tensor : tensors_) {
      if (std::optional<ShardingSpec> spec = spec_of(tensor)) out.tensors.push_back(std::move(*spec));
    }
    return out;
  }

 private:
  void add(const Value& value, const Sharding& sharding) {
    const std::optional<FileLayout> layout = file_layout(*value.constant);
    if (!layout && sharding.is_replicated()) return;
    std::optional<std::vector<CutAxis>> cut;
    if (layout) cut = cut_in_file(*layout, sharding, mesh_);
    if (!cut) {
      const Constant& first = first_of(*value.constant);
      notes_.push_back(cat("\"", text(value.constant->steps), "\" of ", quote(first.initializer), " is sharded as ",
                           text(sharding, mesh_),
                           layout ? ", which cuts through elements of the file"
                                  : ": its steps leave no places that could be followed"));
      return;
    }
    for (size_t i = 0; i < layout->tensors.size(); ++i) {
      const Constant& tensor = *layout->tensors[i];
      if (tensor.initializer.empty()) {
        computed_ += i == 0 && !sharding.is_replicated();
        continue;
      }
      auto [place, fresh] = numbers_.emplace(tensor.initializer, tensors_.size());
      if (fresh)
        tensors_.push_back({tensor.initializer, tensor.source.shape(), ranks_that_read(tensor.initializer), {}});
      const std::vector<bool>& readers = tensors_[place->second].ranks;
      Use use{sharding, {cut->begin() + static_cast<std::ptrdiff_t>(layout->stacked), cut->end()}, {}};
      for (int64_t rank = 0; rank < mesh_.ranks(); ++rank)
        use.ranks.push_back(readers[static_cast<size_t>(rank)] && has(*layout, *cut, i, rank));
      tensors_[place->second].uses.push_back(std::move(use));
    }
  }

  std::vector<bool> ranks_that_read(const std::string& tensor) const {
    std::vector<bool> out(static_cast<size_t>(mesh_.ranks()), true);
    const auto found = readers_.find(tensor);
    if (found == readers_.end()) return out;
    for (int64_t rank = 0; rank < mesh_.ranks(); ++rank)
      out[static_cast<size_t>(rank)] = std::any_of(found->second.begin(), found->second.end(), [&](int32_t stage) {
        return stages_.holds(mesh_.block(rank, mesh_.parts("pipeline")), stage);
      });
    return out;
  }

  static const Constant& first_of(const Constant& constant) {
    return constant.parts.empty() ? constant : first_of(constant.parts[0]);
  }

  /// Whether a rank holds a part of tensor `i` of a stack.
  bool has(const FileLayout& layout, const std::vector<CutAxis>& cut, size_t i, int64_t rank) const {
    auto left = static_cast<int64_t>(i);
    bool out = true;
    for (size_t k = layout.stacked; k-- > 0; left /= layout.sizes[k])
      out = out && mesh_.block(rank, cut[k].axes) == cut[k].blocks[static_cast<size_t>(left % layout.sizes[k])];
    return out;
  }

  /// Number of places along an axis for which the holders are constant.
  static int64_t unit(const FileTensor& tensor, size_t axis) {
    int64_t out = tensor.shape[static_cast<int>(axis)];
    for (const Use& use : tensor.uses)
      for (size_t i = 1; i < use.axes[axis].blocks.size(); ++i)
        if (use.axes[axis].blocks[i] != use.axes[axis].blocks[i - 1]) out = std::gcd(out, static_cast<int64_t>(i));
    return out;
  }

  /// The ranks that hold an element; all that read the tensor if no weight has it.
  Ranks holders(const FileTensor& tensor, const std::vector<int64_t>& places, bool& contradiction) const {
    std::optional<Ranks> out;
    for (const Use& use : tensor.uses) {
      bool inside = true;
      for (size_t k = 0; k < places.size(); ++k)
        inside = inside && use.axes[k].blocks[static_cast<size_t>(places[k])] >= 0;
      if (!inside) continue;
      Ranks ranks;
      for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
        bool mine = use.ranks[static_cast<size_t>(rank)];
        for (size_t k = 0; k < places.size(); ++k)
          mine = mine && mesh_.block(rank, use.axes[k].axes) == use.axes[k].blocks[static_cast<size_t>(places[k])];
        if (mine) ranks.push_back(static_cast<int32_t>(rank));
      }
      if (out && *out != ranks) contradiction = true;
      if (!out) out = std::move(ranks);
    }
    if (out) return std::move(*out);
    Ranks all;
    for (int32_t rank = 0; rank < mesh_.ranks(); ++rank)
      if (tensor.ranks[static_cast<size_t>(rank)]) all.push_back(rank);
    return all;
  }

  std::optional<ShardingSpec> spec_of(const FileTensor& tensor) {
    const auto rank = static_cast<size_t>(tensor.shape.rank());
    std::vector<int64_t> units, cells;
    int64_t count = 1;
    for (size_t k = 0; k < rank; ++k) {
      units.push_back(unit(tensor, k));
      cells.push_back(tensor.shape[static_cast<int>(k)] / units[k]);
      if (cells[k] > ShardingSpec::most_parts / count) {
        notes_.push_back(
            cat("tensor ", quote(tensor.name), " would have more than ", ShardingSpec::most_parts, " parts"));
        return std::nullopt;
      }
      count *= cells[k];
    }
    ShardingSpec out{tensor.name, {}, {}, {}};
    std::map<Ranks, int32_t> groups;
    bool contradiction = false;
    for (int64_t cell = 0; cell < count; ++cell) {
      std::vector<int64_t> places(rank);
      int64_t left = cell;
      for (size_t k = rank; k-- > 0; left /= cells[k]) places[k] = left % cells[k] * units[k];
      Ranks ranks = holders(tensor, places, contradiction);
      auto [place, fresh] = groups.emplace(ranks, static_cast<int32_t>(out.groups.size()));
      if (fresh) out.groups.push_back(std::move(ranks));
      out.holders.push_back(place->second);
    }
    if (contradiction)
      notes_.push_back(cat("tensor ", quote(tensor.name),
                           " is the source of weights with different shardings; it is "
                           "annotated as ",
                           text(tensor.uses[0].sharding, mesh_), ", which one of them is"));
    for (size_t k = 0; k < rank; ++k) shorten(out, cells, k, units[k]);
    const bool everywhere = out.axes.empty() && out.groups[0].size() == static_cast<size_t>(mesh_.ranks());
    return everywhere ? std::nullopt : std::optional(std::move(out));
  }

  /// Periodic holders along an axis become a factor of the axis: of three concatenated matrices each is sharded.
  static void shorten(ShardingSpec& spec, std::vector<int64_t>& cells, size_t axis, int64_t unit) {
    const int64_t all = cells[axis];
    const int64_t inner = std::accumulate(cells.begin() + static_cast<std::ptrdiff_t>(axis) + 1, cells.end(),
                                          int64_t{1}, std::multiplies<>());
    const auto count = static_cast<int64_t>(spec.holders.size());
    // Part i of the axis and part i + period have the same holders.
    auto repeats = [&](int64_t period) {
      for (int64_t i = 0; i < count; ++i)
        if (const int64_t at = i / inner % all;
            at + period < all &&
            spec.holders[static_cast<size_t>(i)] != spec.holders[static_cast<size_t>(i + period * inner)])
          return false;
      return true;
    };
    int64_t period = 1;
    while (period < all && (all % period || !repeats(period))) ++period;
    std::vector<int32_t> kept;
    for (int64_t i = 0; i < count; ++i)
      if (i / inner % all < period) kept.push_back(spec.holders[static_cast<size_t>(i)]);
    spec.holders = std::move(kept);
    cells[axis] = period;
    if (period == 1) return;
    ShardingSpec::Axis cut{static_cast<int32_t>(axis), {}};
    if (period < all) cut.factors.push_back({all / period, 1});
    cut.factors.push_back({period * unit, period});
    spec.axes.push_back(std::move(cut));
  }

  const Graph& graph_;
  const Mesh& mesh_;
  std::vector<std::string>& notes_;
  const StageOptions& stages_;
  std::map<std::string, std::vector<int32_t>, std::less<>> readers_;  ///< empty: there is one stage
  std::vector<FileTensor> tensors_;
  std::map<std::string, size_t, std::less<>> numbers_;
  int64_t computed_ = 0;
};

}  // namespace

DeviceConfiguration configuration_of(const Graph& graph, const Mesh& mesh, const std::map<ValueId, Sharding>& weights,
                                     std::vector<std::string>& notes, const StageOptions& stages) {
  return Annotator(graph, mesh, notes, stages).run(weights);
}

}  // namespace plait
