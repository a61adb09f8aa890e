// The end of a training step as graphs: the norm of all gradients, and the optimizer's step for each parameter.
#include "core/graph/graph_builder.h"
#include "core/passes/train_parameters.h"

namespace plait {
namespace {

constexpr const char *sums = ".gradient", *reduced = ".reduced", *weights = "", *moments = ".first";

const Sharding* place_of(const StatePlaces& places, const TrainedParameter& parameter, const char* what) {
  auto found = places.find(parameter.key + what);
  return found == places.end() ? nullptr : &found->second;
}

/// What holds the gradient that the optimizer takes.
const char* gradient_of(const TrainedParameter& parameter, const StatePlaces& places) {
  return place_of(places, parameter, reduced) ? reduced : sums;
}

}  // namespace

Graph norm_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters, const StatePlaces& places) {
  Graph graph;
  Knowledge knowledge;
  GraphBuilder builder(ops, graph, knowledge, "norm");
  ValueId sum = no_value;
  Attributes whole;
  whole.set("keepdims", int64_t{0});
  graph.outputs.push_back(no_value);
  for (const TrainedParameter& parameter : parameters) {
    ValueId gradient = add_state(graph, builder, parameter.key + sums, parameter.shape);
    if (gradient_of(parameter, places) == reduced) {
      const ValueId state = add_state(graph, builder, parameter.key + reduced, parameter.shape);
      graph.outputs.push_back(gradient = builder.add("plait.Accumulate", {state, gradient}));
    }
    const ValueId square = builder.add("ReduceSumSquare", {gradient}, whole);
    sum = sum == no_value ? square : builder.plus(sum, square);
  }
  graph.outputs[0] = builder.add("Sqrt", {sum});
  return graph;
}

Graph update_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters,
                   const OptimizerOptions& optimizer, const StatePlaces& places) {
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
    const ValueId w = add_parameter(graph, builder, parameter);
    // A rank that updates less of a weight than it has takes that part, and all parts then go into the weight.
    const Sharding *kept = place_of(places, parameter, weights), *updates = place_of(places, parameter, moments);
    const bool in_parts = kept && *kept != *updates;
    std::vector<ValueId> operands{in_parts ? builder.add("Identity", {w}) : w, state(".first")};
    if (adam) {
      operands.push_back(state(".second"));
      attributes.set("beta1", optimizer.beta1);
      attributes.set("beta2", optimizer.beta2);
      attributes.set("epsilon", optimizer.epsilon);
    } else {
      attributes.set("momentum", optimizer.momentum);
    }
    operands.push_back(state(gradient_of(parameter, places)));
    const size_t updated = operands.size();
    operands.insert(operands.end(), graph.inputs.begin(), graph.inputs.end());
    auto made = builder.add_all(adam ? "plait.AdamW" : "plait.SGD", std::move(operands),
                                std::vector<bool>(updated, true), std::move(attributes));
    if (in_parts) made[0] = builder.add("plait.Assign", {w, made[0]});
    graph.outputs.insert(graph.outputs.end(), made.begin(), made.end());
  }
  return graph;
}

}  // namespace plait
