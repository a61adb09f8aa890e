#include "tests/unit/shard/lockstep.h"

#include "core/graph/infer.h"
#include "core/mesh/placement.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/compile.h"
#include "tests/unit/support/models.h"

namespace plait::test {

Raised raised(Graph graph) {
  Raised out;
  CompileOptions options = World::get().options();
  options.dump = [&](std::string_view pass, const Graph& now) {
    if (pass == "raise") out.graph = now;
  };
  out.decoder = recognise(std::move(graph), options);
  return out;
}

Step step_of(const Raised& raised, const std::vector<std::vector<int32_t>>& prompts) {
  constexpr int64_t page = 16;
  Step out;
  std::vector<int32_t> positions, segments, rows, lengths, states;
  std::vector<int64_t> ids;
  std::vector<int32_t> slots, pages;
  int64_t columns = 1, next_page = 0;
  for (const auto& prompt : prompts)
    columns = std::max(columns, (static_cast<int64_t>(prompt.size()) + page - 1) / page);
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> table;
    for (int64_t k = 0; k < columns; ++k) table.push_back(static_cast<int32_t>(next_page++));
    for (size_t at = 0; at < prompts[i].size(); ++at) {
      rows.push_back(static_cast<int32_t>(ids.size()));
      ids.push_back(prompts[i][at]);
      positions.push_back(static_cast<int32_t>(at));
      segments.push_back(static_cast<int32_t>(i));
      lengths.push_back(static_cast<int32_t>(prompts[i].size()));
      slots.push_back(static_cast<int32_t>(table[at / page] * page + static_cast<int64_t>(at) % page));
    }
    pages.insert(pages.end(), table.begin(), table.end());
    states.push_back(-1);
    states.push_back(static_cast<int32_t>(i));
  }
  const auto t = static_cast<int64_t>(ids.size()), n = static_cast<int64_t>(prompts.size());
  auto put = [&](const std::string& name, const std::vector<int32_t>& values, const Shape& shape) {
    out.inputs[name] = Tensor::of<int32_t>(DType::i32, shape, values);
  };
  put("positions", positions, {1, t});
  put("segments", segments, {1, t});
  put("rows", rows, {1, t});
  put("lengths", lengths, {1, t});
  put("states", states, {n, 2});
  for (size_t group = 0; group < raised.decoder.groups.size(); ++group) {
    put(cat("slots.", group), slots, {1, t});
    put(cat("pages.", group), pages, {n, columns});
  }
  out.inputs[raised.graph.value(raised.graph.inputs[0]).name] = Tensor::of<int64_t>(DType::i64, {1, t}, ids);
  out.symbols = {{"t", t}, {"r", t}, {"n", n}, {"m", columns}, {"c", page}, {"u", n}};
  for (size_t pool = 0; pool < raised.decoder.pools.size(); ++pool) out.symbols[cat("p.", pool)] = next_page;
  return out;
}

namespace {

class Lockstep {
 public:
  Lockstep(const Graph& graph, const Mesh& mesh, const Step& step)
      : graph_(graph),
        mesh_(mesh),
        values_(static_cast<size_t>(mesh.ranks())),
        symbols_(static_cast<size_t>(graph.symbols.size()), -1) {
    for (const auto& [name, value] : step.symbols)
      if (auto id = graph.symbols.find(name)) symbols_[static_cast<size_t>(*id)] = value;
    for (auto& values : values_)
      for (ValueId id : graph.inputs) values[id] = step.inputs.at(graph.value(id).name);
  }

  Shards run() {
    for (const Node& node : graph_.nodes) {
      if (collective_kind(node.op)) collective(node);
      else
        for (size_t rank = 0; rank < values_.size(); ++rank)
          compute(rank, at_rank(node, mesh_, static_cast<int64_t>(rank)));
    }
    Shards out;
    for (size_t rank = 0; rank < values_.size(); ++rank) out.push_back(value(rank, graph_.outputs[0]));
    return out;
  }

 private:
  Shape shape(ValueId id) const {
    Shape out;
    for (const Dim& dim : *graph_.value(id).type.dims) out.push_back(dim.evaluate(symbols_));
    return out;
  }

  Tensor value(size_t rank, ValueId id) {
    if (id == no_value) return {};
    auto known = values_[rank].find(id);
    if (known != values_[rank].end()) return known->second;
    const auto constant = at_rank(graph_.value(id).constant, mesh_, static_cast<int64_t>(rank));
    if (!constant) throw Error(Code::internal, cat("value ", id, " is not there yet"));
    return values_[rank][id] = materialize(*constant);
  }

  void compute(size_t rank, const Node& node) {
    if (node.op == "plait.Sizes") {
      SymbolTable symbols = graph_.symbols;
      std::vector<int64_t> sizes;
      for (const Dim& dim : sizes_of(node, symbols)) sizes.push_back(dim.evaluate(symbols_));
      const Shape shape = node.attributes.integer("scalar", 0) ? Shape{} : Shape{static_cast<int64_t>(sizes.size())};
      values_[rank][node.outputs[0]] = Tensor::of<int64_t>(DType::i64, shape, sizes);
      return;
    }
    if (node.op == "plait.State") {
      values_[rank][node.outputs[0]] = Tensor(graph_.value(node.outputs[0]).type.dtype, shape(node.outputs[0]));
      return;
    }
    std::vector<Tensor> inputs;
    std::vector<OutputType> outputs;
    for (ValueId id : node.inputs) inputs.push_back(value(rank, id));
    for (ValueId id : node.outputs)
      outputs.push_back(id == no_value ? OutputType{} : OutputType{graph_.value(id).type.dtype, shape(id)});
    std::vector<Tensor> results = run_op(World::get().kernels, node.op, node.attributes, inputs, outputs, 1);
    for (size_t k = 0; k < results.size(); ++k)
      if (node.outputs[k] != no_value) values_[rank][node.outputs[k]] = std::move(results[k]);
  }

  void collective(const Node& node) {
    Collective step;
    step.kind = collective_kind(node.op).value();
    step.axes = mesh_.parse_axes(node.attributes.string("axes", ""));
    const std::string reduction = node.attributes.string("reduction", "sum");
    step.reduction = reduction == "max" ? PendingKind::max : reduction == "min" ? PendingKind::min : PendingKind::sum;
    step.dim = static_cast<int32_t>(node.attributes.integer("dim", 0));
    step.to_dim = static_cast<int32_t>(node.attributes.integer("to_dim", 0));
    Shards before;
    for (size_t rank = 0; rank < values_.size(); ++rank) before.push_back(value(rank, node.inputs[0]));
    Shards after = perform(step, before, mesh_);
    for (size_t rank = 0; rank < values_.size(); ++rank) {
      EXPECT_EQ(after[rank].shape(), shape(node.outputs[0])) << node.op;
      values_[rank][node.outputs[0]] = std::move(after[rank]);
    }
  }

  const Graph& graph_;
  const Mesh& mesh_;
  std::vector<std::map<ValueId, Tensor>> values_;  ///< by rank
  std::vector<int64_t> symbols_;
};

}  // namespace

Shards run_lockstep(const Graph& graph, const Mesh& mesh, const Step& step) {
  return Lockstep(graph, mesh, step).run();
}

}  // namespace plait::test
