// Pass shard_rows: gives each rank of the mesh's axis `data` a row of its own. The graph's row becomes the
// concatenation of all rows, each with t tokens and r labels; ops that read across a row do so within each row.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/graph_builder.h"
#include "core/mesh/placement.h"
#include "core/passes/train/train.h"
#include "core/passes/base/evaluate.h"

namespace plait {
namespace {

class Spreading {
 public:
  Spreading(Graph& graph, const OpSet& ops, int64_t rows)
      : graph_(graph), ops_(ops), rows_(rows), builder_(ops, graph, knowledge_, "rows") {}

  void run() {
    for (const char* name : {"t", "r", "places"})
      if (auto symbol = graph_.symbols.find(name)) substitute(graph_, *symbol, Dim(rows_) * Dim::symbol(*symbol));
    const size_t old = graph_.nodes.size();
    for (size_t i = 0; i < old; ++i)
      if (reads_across(graph_.nodes[i])) separate(Node(graph_.nodes[i]));
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  /// Whether a value is [1, all rows' tokens, ...].
  bool is_row(ValueId id) const {
    if (id == no_value) return false;
    const auto& dims = graph_.value(id).type.dims;
    return dims && dims->size() > 1 && (*dims)[0] == Dim(1) && !(*dims)[1].is_constant() &&
           (*dims)[1].divided(Dim(rows_));
  }

  /// Whether the node needs whole rows.
  bool reads_across(const Node& node) const {
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return is_row(id); })) return false;
    const std::optional<NodeRule> rule = rule_of(graph_, ops_, node);
    if (!rule)
      throw Error(Code::unsupported, cat(describe(graph_, node), " has no dims rule, so rows cannot be separated"),
                  "train without the axis data");
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (!is_row(node.inputs[k])) continue;
      const std::vector<Factor>& tokens = rule->rule.operands[k].dims[1].factors;
      if (std::any_of(tokens.begin(), tokens.end(), [](const Factor& factor) { return factor.whole; })) return true;
    }
    return false;
  }

  /// The node on [rows, t, ...].
  void separate(Node node) {
    std::vector<bool> made, joined;
    for (ValueId id : node.outputs) made.push_back(id != no_value), joined.push_back(is_row(id));
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId& id : inputs)
      if (is_row(id)) {
        Dims dims = builder_.dims(id);
        dims[0] = Dim(rows_);
        dims[1] = *dims[1].divided(Dim(rows_));
        id = builder_.reshaped(id, dims);
      }
    const std::vector<ValueId> results = builder_.add_all(node.op, std::move(inputs), made, node.attributes);
    for (size_t k = 0; k < results.size(); ++k)
      if (made[k])
        graph_.replace_uses(node.outputs[k],
                            joined[k] ? builder_.reshaped(results[k], builder_.dims(node.outputs[k])) : results[k]);
  }

  Graph& graph_;
  const OpSet& ops_;
  const int64_t rows_;
  Knowledge knowledge_;
  GraphBuilder builder_;
};

}  // namespace

void shard_rows(Graph& graph, PassContext& context) {
  if (const AxisList data = context.options.mesh.parts("data"); !data.empty())
    Spreading(graph, context.options.ops, context.options.mesh.blocks(data)).run();
}

}  // namespace plait
