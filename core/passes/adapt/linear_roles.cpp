#include "core/passes/adapt/linear_roles.h"

#include <algorithm>
#include <array>

#include "core/passes/base/pass.h"

namespace plait {
namespace {

/// Ops in which tokens depend on other tokens.
bool mixes_tokens(const Node& node) {
  constexpr std::array<std::string_view, 6> ops{"plait.PagedAttention",  "plait.PackedAttention",
                                                "plait.LinearAttention", "plait.PackedLinearAttention",
                                                "plait.CausalConv",      "plait.PackedConv"};
  return std::find(ops.begin(), ops.end(), node.op) != ops.end();
}

class Roles {
 public:
  explicit Roles(const Graph& graph) : graph_(graph), producer_(producers(graph)), readers_(consumers(graph)) {}

  std::map<size_t, std::set<std::string_view>> find() {
    before(graph_.outputs[0], "head");
    for (const Node& node : graph_.nodes)
      if (mixes_tokens(node)) around(node);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].op == "plait.Linear" && !found_.contains(i)) found_[i] = {"feed_forward"};
    return std::move(found_);
  }

 private:
  void around(const Node& node) {
    if (node.op == "plait.PagedAttention") {
      const Node& write = graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(node.inputs[1])])];
      before(node.inputs[0], "query");
      before(write.inputs[2], "key");
      before(write.inputs[3], "value");
    } else if (node.op == "plait.PackedAttention") {
      before(node.inputs[0], "query");
      before(node.inputs[1], "key");
      before(node.inputs[2], "value");
    } else {
      for (ValueId id : node.inputs) before(id, "attention");
    }
    const bool attends = node.op == "plait.PagedAttention" || node.op == "plait.PackedAttention";
    for (ValueId id : node.outputs) behind(id, attends ? "attention_output" : "attention");
  }

  void mark(size_t linear, std::string_view role) {
    found_[linear].insert(role);
    if (role != "head") found_[linear].insert("attention");
  }

  /// A sum of two activations, such as the residual stream and a layer's output.
  bool joins(const Node& node) const {
    return node.op == "Add" && std::none_of(node.inputs.begin(), node.inputs.end(),
                                            [&](ValueId id) { return id == no_value || graph_.value(id).constant; });
  }

  /// The nearest Linears from which the value is computed.
  void before(ValueId id, std::string_view role) {
    const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    if (at < 0 || !seen_.emplace(id, role).second) return;
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    if (node.op == "plait.Linear") return mark(static_cast<size_t>(at), role);
    if (mixes_tokens(node)) return;
    for (ValueId input : node.inputs) before(input, role);
  }

  /// The nearest Linears that read it.
  void behind(ValueId id, std::string_view role) {
    if (id == no_value || !seen_.emplace(id, role).second) return;
    for (const auto& reader : readers_[static_cast<size_t>(id)]) {
      const auto at = static_cast<size_t>(reader);
      const Node& node = graph_.nodes[at];
      if (node.op == "plait.Linear") mark(at, role);
      else if (!mixes_tokens(node) && !joins(node))
        for (ValueId output : node.outputs) behind(output, role);
    }
  }

  const Graph& graph_;
  const std::vector<int32_t> producer_;
  const std::vector<std::vector<int32_t>> readers_;
  std::set<std::pair<ValueId, std::string_view>> seen_;
  std::map<size_t, std::set<std::string_view>> found_;
};

}  // namespace

std::map<size_t, std::set<std::string_view>> linear_roles(const Graph& graph) { return Roles(graph).find(); }

}  // namespace plait
