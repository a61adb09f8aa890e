// Chooses what is trained: weights of a raised graph become States that programs write to.
#include "core/passes/train/parameters.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/graph/gradient.h"
#include "core/mesh/file_layout.h"

namespace plait {
namespace {

bool is_table(const Node& node, size_t operand) {
  return operand == 0 && (node.op == "plait.Embedding" || node.op == "Gather");
}

/// By value: whether it depends on rows of a table, as a token's hidden state does, or on inputs.
std::vector<bool> stream_of(const Graph& graph) {
  std::vector<bool> stream(static_cast<size_t>(graph.value_count()));
  for (ValueId id : graph.inputs) stream[static_cast<size_t>(id)] = is_float(graph.value(id).type.dtype);
  for (const Node& node : graph.nodes) {
    const bool begins = is_table(node, 0) && graph.value(node.inputs[0]).constant;
    if (!begins && std::none_of(node.inputs.begin(), node.inputs.end(),
                                [&](ValueId id) { return id != no_value && stream[static_cast<size_t>(id)]; }))
      continue;
    for (ValueId id : node.outputs)
      if (id != no_value && is_float(graph.value(id).type.dtype)) stream[static_cast<size_t>(id)] = true;
  }
  return stream;
}

/// By value: whether the results' gradient reaches it; excludes tables of angles, scales of quantised weights and the
/// like.
std::vector<bool> learning_of(const Graph& graph, const OpSet& ops) {
  std::vector<bool> learns(static_cast<size_t>(graph.value_count()));
  for (ValueId id : graph.outputs) learns[static_cast<size_t>(id)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const OpSchema* schema = ops.find(node.op);
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id != no_value && learns[static_cast<size_t>(id)]; }))
      continue;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != no_value && !(schema && !fixed_operand(*schema, k).empty()))
        learns[static_cast<size_t>(node.inputs[k])] = true;
  }
  return learns;
}

/// Whether a tensor of one element is the weight of a single feature, as the bias of a head with one output: then the
/// result has one feature too. Others are scalar scales or offsets, of which exporters write many that were not
/// trained.
bool of_one_feature(const Graph& graph, const Node& node, const Shape& shape) {
  const std::optional<Dims>& dims = graph.value(node.outputs[0]).type.dims;
  return shape.rank() > 0 && dims && !dims->empty() && dims->back() == Dim(1);
}

/// Constants that may be trained, tensors of the file, in the order in which the graph reads them.
std::vector<ValueId> candidates(const Graph& graph, const OpSet& ops, const std::vector<std::string>& patterns) {
  const std::vector<bool> stream = stream_of(graph), learns = learning_of(graph, ops);
  std::vector<ValueId> out;
  for (const Node& node : graph.nodes) {
    auto in_stream = [&](ValueId id) { return id != no_value && stream[static_cast<size_t>(id)]; };
    if (!std::any_of(node.outputs.begin(), node.outputs.end(), in_stream)) continue;
    const bool meets = std::any_of(node.inputs.begin(), node.inputs.end(), in_stream);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId id = node.inputs[k];
      if (id == no_value || !graph.value(id).constant || !(meets || is_table(node, k))) continue;
      if (!learns[static_cast<size_t>(id)]) continue;
      const Constant& constant = *graph.value(id).constant;
      const std::vector<std::string> names = names_of(constant);
      if (names.empty() || constant.literal || !is_float(constant.dtype())) continue;
      auto fits = [&](auto&& fit) {
        return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return std::any_of(patterns.begin(), patterns.end(),
                             [&](const std::string& one) { return fit(one, name); });
        });
      };
      const bool named = fits(std::equal_to<>());
      if (constant.shape().elements() < 2 && !named && !of_one_feature(graph, node, constant.shape())) continue;
      const bool asked = patterns.empty() || named || fits([](const std::string& pattern, const std::string& name) {
                           return misfit(pattern, name) == 0;
                         });
      if (asked && std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
    }
  }
  return out;
}

/// Whether two constants of equal dims have equal elements; compares a slice first.
bool hold_the_same(const Constant& a, const Constant& b) {
  auto equal = [](Constant x, Constant y, std::optional<int64_t> rows) {
    for (Constant* one : {&x, &y}) {
      if (rows) add_step(*one, {RecipeStep::Kind::slice, {0, 0, *rows}});
      add_step(*one, {RecipeStep::Kind::cast, {}, DType::f32});
    }
    const Tensor of_x = materialize(x), of_y = materialize(y);
    return std::memcmp(of_x.data(), of_y.data(), static_cast<size_t>(of_x.bytes())) == 0;
  };
  return a.shape() == b.shape() && equal(a, b, 1) && equal(a, b, std::nullopt);
}

class Maker {
 public:
  Maker(Graph& graph, const CompileOptions& options, ShardSeeds& seeds)
      : graph_(graph),
        builder_(options.ops, graph, knowledge_),
        old_(graph.nodes.size()),
        dtype_(options.trained_dtype()),
        seeds_(seeds) {}

  void add(std::vector<ValueId> ids) {
    find_copies(ids);
    std::map<std::vector<std::string>, std::vector<ValueId>> of_tensor;
    std::vector<std::vector<std::string>> order;
    for (ValueId id : ids) {
      std::vector<std::string> names = names_of(*graph_.value(id).constant);
      std::vector<ValueId>& group = of_tensor[names];
      if (group.empty()) order.push_back(names);
      group.push_back(id);
    }
    for (const auto& names : order) add_tensor(of_tensor[names]);
    // Moves States and their steps to the front.
    std::rotate(graph_.nodes.begin(), graph_.nodes.begin() + static_cast<std::ptrdiff_t>(old_), graph_.nodes.end());
  }

  std::vector<Trainable> take() { return std::move(made_); }

 private:
  /// A head that is a copy of the token embedding table is tied to it.
  void find_copies(std::vector<ValueId>& ids) {
    const Head head = find_head(graph_);
    if (head.node < 0) return;
    const ValueId w = graph_.nodes[static_cast<size_t>(head.node)].inputs[1];
    auto table = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
      return is_table(node, 0) && std::find(ids.begin(), ids.end(), node.inputs[0]) != ids.end();
    });
    auto found = std::find(ids.begin(), ids.end(), w);
    if (found == ids.end() || table == graph_.nodes.end()) return;
    const ValueId id = table->inputs[0];
    const auto &of_table = graph_.value(id).constant, &of_head = graph_.value(w).constant;
    if (names_of(*of_table) == names_of(*of_head) || !hold_the_same(*of_table, *of_head)) return;
    copies_[id].push_back(w);
    ids.erase(found);
  }

  /// Values made from the same tensor, or stack of tensors.
  void add_tensor(const std::vector<ValueId>& ids) {
    std::vector<std::vector<ValueId>> alike;
    for (ValueId id : ids) {
      auto same = std::find_if(alike.begin(), alike.end(), [&](const std::vector<ValueId>& group) {
        return graph_.value(group[0]).constant->steps == graph_.value(id).constant->steps;
      });
      if (same == alike.end()) alike.push_back({id});
      else same->push_back(id);
    }
    for (size_t i = 0; i < alike.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (!are_apart(*graph_.value(alike[i][0]).constant, *graph_.value(alike[j][0]).constant))
          return add_whole(alike);
    for (const std::vector<ValueId>& group : alike) {
      const Trainable one = parameter_of(group[0], *graph_.value(group[0]).constant, alike.size() > 1);
      for (int32_t stage : stages_of(group)) {
        const ValueId state = add_state(one, group[0], stage);
        if (auto seed = seeds_.find(group[0]); seed != seeds_.end()) seeds_.insert_or_assign(state, seed->second);
        for (ValueId id : group) replace(id, state, stage);
      }
    }
  }

  /// The pipeline stages whose nodes read the values or their copies, ascending. Each has a State of its own, of one key.
  std::vector<int32_t> stages_of(const std::vector<ValueId>& ids) const {
    std::set<ValueId> read;
    for (ValueId id : ids) {
      read.insert(id);
      if (auto copies = copies_.find(id); copies != copies_.end())
        read.insert(copies->second.begin(), copies->second.end());
    }
    std::set<int32_t> out;
    for (const Node& node : graph_.nodes)
      if (node.stage >= 0 &&
          std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return read.contains(id); }))
        out.insert(node.stage);
    return out.empty() ? std::vector<int32_t>{0} : std::vector<int32_t>(out.begin(), out.end());
  }

  /// A State of the tensor in the file's layout; nodes compute the values from it.
  void add_whole(const std::vector<std::vector<ValueId>>& alike) {
    Constant whole = *graph_.value(alike[0][0]).constant;
    whole.steps.clear();
    std::vector<ValueId> all;
    for (const std::vector<ValueId>& group : alike) all.insert(all.end(), group.begin(), group.end());
    const Trainable one = parameter_of(all[0], whole, false);
    for (int32_t stage : stages_of(all)) {
      const ValueId state = add_state(one, all[0], stage);
      for (const std::vector<ValueId>& group : alike) {
        ValueId now = state;
        for (const RecipeStep& step : graph_.value(group[0]).constant->steps) now = add_step(now, step);
        for (ValueId id : group) replace(id, now, stage);
      }
    }
  }

  ValueId add_step(ValueId id, const RecipeStep& step) {
    using Kind = RecipeStep::Kind;
    Attributes attributes;
    switch (step.kind) {
      case Kind::transpose:
        attributes.set("perm", step.numbers);
        return builder_.add("Transpose", {id}, std::move(attributes));
      case Kind::slice:
        return builder_.add("Slice", {id, builder_.integers({step.numbers[1]}), builder_.integers({step.numbers[2]}),
                                      builder_.integers({step.numbers[0]})});
      case Kind::reshape: return builder_.add("Reshape", {id, builder_.integers(step.numbers)});
      case Kind::cast: return id;  // trained weights have one dtype
      case Kind::part:             // comes with sharding
      case Kind::reinterpret: break;
    }
    throw Error(Code::unsupported,
                cat("the weight ", quote(graph_.value(id).name), " is read as bits of another type"),
                "leave it out of what is trained");
  }

  Trainable parameter_of(ValueId id, Constant constant, bool is_part) {
    // Starts unrounded, also where products round it.
    std::erase_if(constant.steps, [](const RecipeStep& step) { return step.kind == RecipeStep::Kind::cast; });
    if (constant.dtype() != dtype_) plait::add_step(constant, {RecipeStep::Kind::cast, {}, dtype_});
    Trainable one;
    const std::vector<std::string> names = names_of(constant);
    one.parameter.name = names[0];
    // Parts of a packed tensor are distinguished by their steps.
    one.parameter.key = store_keys::parameter(is_part ? cat(names[0], " | ", text(constant.steps)) : names[0]);
    one.parameter.shape = constant.shape();
    one.parameter.decays = constant.shape().rank() > 1;
    one.parameter.origin = std::make_shared<Constant>(std::move(constant));
    for (ValueId copy : copies_[id]) one.parameter.copies.push_back(graph_.value(copy).constant);
    return one;
  }

  /// The first takes the name of the value.
  ValueId add_state(Trainable one, ValueId of, int32_t stage) {
    one.value = add_parameter(graph_, builder_, one.parameter);
    graph_.nodes.back().stage = stage;
    if (const std::string name = graph_.value(of).name; !name.empty()) {
      graph_.value(of).name.clear();
      graph_.value(one.value).name = name;
    }
    made_.push_back(one);
    return one.value;
  }

  /// What nodes of a stage read, and nodes of none.
  void replace(ValueId id, ValueId by, int32_t stage) {
    std::vector<ValueId> all = copies_[id];
    all.push_back(id);
    for (Node& node : graph_.nodes)
      if (node.stage == stage || node.stage < 0)
        for (ValueId& input : node.inputs)
          if (std::find(all.begin(), all.end(), input) != all.end()) input = by;
    for (ValueId& output : graph_.outputs)
      if (std::find(all.begin(), all.end(), output) != all.end()) output = by;
  }

  Graph& graph_;
  Knowledge knowledge_;
  GraphBuilder builder_;
  const size_t old_;
  const DType dtype_;
  ShardSeeds& seeds_;
  std::map<ValueId, std::vector<ValueId>> copies_;
  std::vector<Trainable> made_;
};

/// No candidate fits the patterns. The hint has names that would.
Error nothing_to_train(const Graph& graph, const OpSet& ops, const std::vector<std::string>& patterns) {
  const std::vector<ValueId> all = candidates(graph, ops, {});
  if (all.empty())
    return {Code::invalid_argument, "there is nothing to train: the model has no float weights",
            "a quantised model is trained with adapters (option lora)"};
  std::string asked, known;
  for (const std::string& one : patterns) asked += cat(asked.empty() ? "" : ", ", quote(one));
  constexpr size_t shown = 5;
  for (size_t i = 0; i < std::min(shown, all.size()); ++i)
    known += cat(i ? ", " : "", names_of(*graph.value(all[i]).constant).front());
  if (all.size() > shown) known += cat(", ... (", all.size(), ")");
  return {Code::invalid_argument, cat("there is nothing to train: no float weight has a name like ", asked),
          cat("names of weights are ", known)};
}

}  // namespace

std::vector<Trainable> make_parameters(Graph& graph, PassContext& context, const std::vector<std::string>& patterns) {
  const std::vector<ValueId> found = candidates(graph, context.options.ops, patterns);
  if (found.empty()) throw nothing_to_train(graph, context.options.ops, patterns);
  Maker maker(graph, context.options, context.seeds);
  maker.add(found);
  return maker.take();
}

}  // namespace plait
