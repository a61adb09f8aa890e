// Pass stage_pages: the cache's page groups and pools, remade for each pipeline stage, so that a stage holds pages of its own
// layers only.
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/stage/stage.h"

namespace plait {
namespace {

class PageStager {
 public:
  PageStager(Graph& graph, Decoder& decoder) : graph_(graph), decoder_(decoder), producer_(producers(graph)) {}

  void run() {
    find_layers();
    make_groups();
    declare_inputs();
    for (const Writer& writer : writers_) rewrite(writer);
    for (Node& node : graph_.nodes)
      if (node.op == "plait.PagedAttention") node.inputs[5] = tables_[group_of_write_.at(node.inputs[1])];
    for (StateShape& state : decoder_.states)
      state.stage = stage_of_state_.at(store_keys::cache_states(&state - decoder_.states.data()));
  }

 private:
  /// A layer that writes pages.
  struct Writer {
    size_t node = 0;
    int layer = 0;
    int64_t window = 0;
    size_t pool = 0;  ///< before: of its shape
    size_t group = 0, index = 0;
  };

  const Node& maker(ValueId id) const {
    return graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(id)])];
  }

  void find_layers() {
    std::map<std::pair<std::string, std::string>, std::pair<size_t, int>> layers;  // by slots and key: group, layer
    for (size_t g = 0; g < decoder_.groups.size(); ++g)
      for (size_t k = 0; k < decoder_.groups[g].layers.size(); ++k)
        layers[{cat("slots.", g), store_keys::cache_pages(store_keys::CacheHalf::keys, decoder_.groups[g].pool,
                                                          static_cast<int64_t>(k))}] = {g,
                                                                                        decoder_.groups[g].layers[k]};
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (is_state(node)) stage_of_state_.emplace(node.attributes.string("key", ""), node.stage);
      if (node.op != "plait.KvWrite") continue;
      const auto [group, layer] =
          layers.at({graph_.value(node.inputs[4]).name, maker(node.inputs[0]).attributes.string("key", "")});
      const PageGroup& of = decoder_.groups[group];
      writers_.push_back({i, layer, of.window, static_cast<size_t>(of.pool)});
    }
  }

  /// As raise makes them of all layers (Raiser::make_groups).
  void make_groups() {
    const std::vector<PagePoolShape> shapes = std::move(decoder_.pools);
    decoder_.pools.clear();
    decoder_.groups.clear();
    std::map<std::pair<int32_t, size_t>, std::map<int64_t, std::vector<Writer*>>>
        pools;  // by stage and shape, then window
    std::sort(writers_.begin(), writers_.end(), [](const Writer& a, const Writer& b) { return a.layer < b.layer; });
    for (Writer& writer : writers_)
      pools[{graph_.nodes[writer.node].stage, writer.pool}][writer.window].push_back(&writer);
    for (const auto& [where, windows] : pools) {
      size_t share = 0;
      for (const auto& [window, layers] : windows) share = std::gcd(share, layers.size());
      const auto pool = static_cast<int>(decoder_.pools.size());
      decoder_.pools.push_back(shapes[where.second]);
      decoder_.pools.back().layers = static_cast<int64_t>(share);
      for (const auto& [window, layers] : windows)
        for (size_t k = 0; k < layers.size(); ++k) {
          if (k % share == 0) decoder_.groups.push_back({window, pool, {}, where.first});
          decoder_.groups.back().layers.push_back(layers[k]->layer);
          layers[k]->group = decoder_.groups.size() - 1;
          layers[k]->index = k % share;
        }
    }
  }

  /// As many inputs as there are groups now.
  void declare_inputs() {
    std::map<std::string, ValueId> old;
    for (ValueId id : graph_.inputs)
      if (graph_.value(id).name.starts_with("slots.") || graph_.value(id).name.starts_with("pages."))
        old[graph_.value(id).name] = id;
    std::erase_if(graph_.inputs, [&](ValueId id) { return old.contains(graph_.value(id).name); });
    const auto declare = [&](const std::string& stem, size_t group) {
      const std::string name = cat(stem, group);
      const auto found = old.find(name);
      const ValueId id =
          found != old.end() ? found->second : graph_.add_value(name, graph_.value(old.at(cat(stem, 0))).type);
      graph_.inputs.push_back(id);
      return id;
    };
    for (size_t group = 0; group < decoder_.groups.size(); ++group) {
      slots_.push_back(declare("slots.", group));
      tables_.push_back(declare("pages.", group));
    }
  }

  void rewrite(const Writer& writer) {
    Node& node = graph_.nodes[writer.node];
    const int pool = decoder_.groups[writer.group].pool;
    for (const auto half : store_keys::cache_halves) {
      const size_t at = half == store_keys::CacheHalf::keys ? 0 : 1;
      const ValueId id = node.inputs[at];
      Node& state = graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(id)])];
      state.attributes.set("key", store_keys::cache_pages(half, pool, static_cast<int64_t>(writer.index)));
      for (ValueId value : {id, node.outputs[at]})
        graph_.value(value).type.dims->front() = graph_.symbol(cat("p.", pool));
      group_of_write_[node.outputs[at]] = writer.group;
    }
    node.inputs[4] = slots_[writer.group];
  }

  Graph& graph_;
  Decoder& decoder_;
  const std::vector<int32_t> producer_;
  std::vector<Writer> writers_;
  std::map<std::string, int32_t> stage_of_state_;  ///< by key
  std::vector<ValueId> slots_, tables_;            ///< inputs, by group
  std::map<ValueId, size_t> group_of_write_;       ///< by written pages
};

}  // namespace

void stage_pages(Graph& graph, PassContext& context) {
  if (context.options.stages.count() > 1) PageStager(graph, context.decoder).run();
}

}  // namespace plait
