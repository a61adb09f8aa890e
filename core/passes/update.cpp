// The end of a training step as graphs: the norm of all gradients, and the optimizer's step for each parameter.
#include "core/graph/graph_builder.h"
#include "core/passes/train_parameters.h"

namespace plait {
namespace {

ValueId gradient_of(Graph& graph, GraphBuilder& builder, const TrainedParameter& parameter) {
  return add_state(graph, builder, parameter.key + ".gradient", parameter.shape);
}

}  // namespace

Graph norm_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters) {
  Graph graph;
  Knowledge knowledge;
  GraphBuilder builder(ops, graph, knowledge, "norm");
  ValueId sum = no_value;
  Attributes whole;
  whole.set("keepdims", int64_t{0});
  for (const TrainedParameter& parameter : parameters) {
    const ValueId square = builder.add("ReduceSumSquare", {gradient_of(graph, builder, parameter)}, whole);
    sum = sum == no_value ? square : builder.plus(sum, square);
  }
  graph.outputs = {builder.add("Sqrt", {sum})};
  return graph;
}

Graph update_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters,
                   const OptimizerOptions& optimizer) {
  Graph graph;
  Knowledge knowledge;
  GraphBuilder builder(ops, graph, knowledge, "update");
  const bool adam = optimizer.kind == OptimizerKind::adamw;
  std::vector<const char*> names{"scale", "rate"};
  if (adam) names.insert(names.end(), {"correction1", "correction2"});
  for (const char* name : names) graph.inputs.push_back(graph.add_value(name, {DType::f32, Dims{}}));
  for (const TrainedParameter& parameter : parameters) {
    auto state = [&](const char* what) { return add_state(graph, builder, parameter.key + what, parameter.shape); };
    Attributes attributes;
    attributes.set("decay", parameter.decays ? optimizer.weight_decay : 0.0);
    std::vector<ValueId> operands{add_parameter(graph, builder, parameter), state(".first")};
    if (adam) {
      operands.push_back(state(".second"));
      attributes.set("beta1", optimizer.beta1);
      attributes.set("beta2", optimizer.beta2);
      attributes.set("epsilon", optimizer.epsilon);
    } else {
      attributes.set("momentum", optimizer.momentum);
    }
    operands.push_back(gradient_of(graph, builder, parameter));
    const size_t updated = operands.size();
    operands.insert(operands.end(), graph.inputs.begin(), graph.inputs.end());
    const auto made = builder.add_all(adam ? "plait.AdamW" : "plait.SGD", std::move(operands),
                                      std::vector<bool>(updated, true), std::move(attributes));
    graph.outputs.insert(graph.outputs.end(), made.begin(), made.end());
  }
  return graph;
}

}  // namespace plait
