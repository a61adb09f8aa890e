// Graphs at the end of a training step: the norm of all gradients, and the optimizer step of each parameter.
#include <limits>

#include "core/exec/store_keys.h"
#include "core/graph/graph_builder.h"
#include "core/passes/train/parameters.h"

namespace plait {
namespace {

const Sharding* place_of(const StatePlaces& places, const std::string& key) {
  auto found = places.find(key);
  return found == places.end() ? nullptr : &found->second;
}

bool is_reduced(const TrainedParameter& parameter, const StatePlaces& places) {
  return places.contains(store_keys::reduced_gradient(parameter.key));
}

/// The key of the gradient that the optimizer takes.
std::string gradient_of(const TrainedParameter& parameter, const StatePlaces& places) {
  return is_reduced(parameter, places) ? store_keys::reduced_gradient(parameter.key)
                                       : store_keys::gradient(parameter.key);
}

/// Makes the graph of the optimizer's steps.
class Update {
 public:
  Update(const OpSet& ops, const std::vector<TrainedParameter>& parameters, const OptimizerOptions& optimizer,
         const StatePlaces& places)
      : optimizer_(optimizer), dtype_(parameters.at(0).dtype()), builder_(ops, graph_, knowledge_, "update") {
    for (const TrainedParameter& parameter : parameters) {
      const ValueId w = add_parameter(graph_, builder_, parameter);
      const std::string sum = gradient_of(parameter, places);
      // A rank that updates only a part of its weight gathers all parts afterwards.
      const Sharding *kept = place_of(places, parameter.key), *updated = place_of(places, sum);
      const bool in_parts = kept && *kept != *updated;
      const ValueId part = in_parts ? builder_.add("Identity", {w}) : w,
                    gradient = add_state(graph_, builder_, sum, dtype_, parameter.shape);
      std::vector<ValueId> made = step(parameter, part, gradient);
      if (in_parts) made[0] = builder_.add("plait.Assign", {w, made[0]});
      graph_.outputs.insert(graph_.outputs.end(), made.begin(), made.end());
    }
  }

  Graph take() { return std::move(graph_); }

 private:
  /// An input that the host sets each step.
  ValueId given(const char* name) {
    for (ValueId id : graph_.inputs)
      if (graph_.value(id).name == name) return id;
    graph_.inputs.push_back(graph_.add_value(name, {dtype_, Dims{}}));
    return graph_.inputs.back();
  }

  /// Optimizer state of a parameter.
  ValueId state(const TrainedParameter& parameter, const std::string& suffix) {
    for (const OptimizerState& one : optimizer_states(optimizer_.kind, parameter.shape.rank()))
      if (one.suffix == suffix)
        return add_state(graph_, builder_, parameter.key + suffix, dtype_, one.shape(parameter.shape));
    return add_state(graph_, builder_, parameter.key + suffix, dtype_, parameter.shape);
  }

  double decay_of(const TrainedParameter& parameter) const {
    return parameter.decays ? optimizer_.weight_decay : 0.0;
  }

  /// The weight first of what is written.
  std::vector<ValueId> step(const TrainedParameter& parameter, ValueId w, ValueId gradient) {
    switch (optimizer_.kind) {
      case OptimizerKind::adamw: return adamw(parameter, w, gradient);
      case OptimizerKind::sgd: return sgd(parameter, w, gradient);
      case OptimizerKind::adafactor: return adafactor(parameter, w, gradient);
    }
    return {};
  }

  std::vector<ValueId> adamw(const TrainedParameter& parameter, ValueId w, ValueId gradient) {
    Attributes attributes;
    attributes.set("decay", decay_of(parameter));
    attributes.set("beta1", optimizer_.beta1);
    attributes.set("beta2", optimizer_.beta2);
    attributes.set("epsilon", optimizer_.epsilon);
    return builder_.add_all("plait.AdamW",
                            {w, state(parameter, ".first"), state(parameter, ".second"), gradient, given("scale"),
                             given("rate"), given("correction1"), given("correction2")},
                            {true, true, true, true}, std::move(attributes));
  }

  std::vector<ValueId> sgd(const TrainedParameter& parameter, ValueId w, ValueId gradient) {
    Attributes attributes;
    attributes.set("decay", decay_of(parameter));
    attributes.set("momentum", optimizer_.momentum);
    return builder_.add_all("plait.SGD", {w, state(parameter, ".first"), gradient, given("scale"), given("rate")},
                            {true, true, true}, std::move(attributes));
  }

  /// Algorithms 4 and 5 of Shazeer and Stern 2018, with PyTorch's floors: temporaries as large as the gradient are
  /// used within two ops, and reductions over a whole weight are sums like any other, however it is sharded.
  std::vector<ValueId> adafactor(const TrainedParameter& parameter, ValueId w, ValueId gradient) {
    constexpr double floor = std::numeric_limits<float>::epsilon(), least_size = 1e-3;
    const ValueId scale = given("scale"), rate = given("rate"), squared = builder_.times(scale, scale);
    auto number = [&](double value) { return builder_.number(value, scale); };
    std::vector<ValueId> written;
    // The mean of squares along an axis, blended into a running mean.
    auto blended = [&](const char* suffix, int axis) {
      const ValueId before = state(parameter, suffix);
      ValueId now = axis < 0 ? builder_.times(gradient, gradient)
                             : builder_.add("ReduceSumSquare", {gradient, builder_.integers({axis})}, no_dims());
      const double count = axis < 0 ? 1 : static_cast<double>(parameter.shape[axis]);
      now = builder_.times(now, builder_.times(squared, number(1 / count)));
      const ValueId after = builder_.plus(before, builder_.times(given("share"), builder_.minus(now, before)));
      written.push_back(builder_.add("plait.Assign", {before, after}));
      return written.back();
    };
    const int rank = parameter.shape.rank();
    ValueId row = number(1), column = no_value;
    if (rank < 2) {
      column = blended(".second", -1);
    } else {
      const ValueId means = blended(".row", rank - 1);
      column = blended(".column", rank - 2);
      const double rows = static_cast<double>(parameter.shape[rank - 2]);
      const ValueId mean = builder_.times(builder_.sum(means, {rank - 2}), number(1 / rows));
      row = builder_.over(means, builder_.add("Max", {mean, number(floor)}));
    }
    Attributes attributes;
    attributes.set("floor", floor * floor);
    const auto elements = number(1 / static_cast<double>(parameter.shape.elements()));
    auto root_mean = [&](ValueId squares) { return builder_.add("Sqrt", {builder_.times(squares, elements)}); };
    const ValueId length =
        root_mean(builder_.add("plait.FactoredSquares", {gradient, row, column, scale}, attributes));
    const ValueId size = root_mean(builder_.add("ReduceSumSquare", {w}, no_dims()));
    const ValueId relative = builder_.add("Min", {rate, given("most")});
    const ValueId stride = builder_.over(builder_.times(builder_.add("Max", {size, number(least_size)}), relative),
                                         builder_.add("Max", {length, number(1)}));
    const ValueId shrink = builder_.times(rate, number(decay_of(parameter)));
    std::vector<ValueId> out = builder_.add_all(
        "plait.FactoredStep", {w, gradient, row, column, scale, shrink, stride}, {true, true}, std::move(attributes));
    out.insert(out.end(), written.begin(), written.end());
    return out;
  }

  static Attributes no_dims() {
    Attributes out;
    out.set("keepdims", int64_t{0});
    return out;
  }

  const OptimizerOptions& optimizer_;
  const DType dtype_;
  Graph graph_;
  Knowledge knowledge_;
  GraphBuilder builder_;
};

}  // namespace

Graph norm_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters, const StatePlaces& places,
                 const std::function<bool(const TrainedParameter&)>& counted) {
  Graph graph;
  Knowledge knowledge;
  GraphBuilder builder(ops, graph, knowledge, "norm");
  ValueId sum = no_value;
  Attributes whole;
  whole.set("keepdims", int64_t{0});
  graph.outputs.push_back(no_value);
  for (const TrainedParameter& parameter : parameters) {
    ValueId gradient =
        add_state(graph, builder, store_keys::gradient(parameter.key), parameter.dtype(), parameter.shape);
    if (is_reduced(parameter, places)) {
      const ValueId state =
          add_state(graph, builder, gradient_of(parameter, places), parameter.dtype(), parameter.shape);
      graph.outputs.push_back(gradient = builder.add("plait.Accumulate", {state, gradient}));
    }
    if (counted && !counted(parameter)) continue;
    const ValueId square = builder.add("ReduceSumSquare", {gradient}, whole);
    sum = sum == no_value ? square : builder.plus(sum, square);
  }
  if (sum == no_value) {
    const ValueId like = graph.add_value("", {parameters.at(0).dtype(), Dims{}});
    sum = builder.add("Identity", {builder.number(0, like)});
  }
  graph.outputs[0] = sum;
  return graph;
}

std::vector<OptimizerState> optimizer_states(OptimizerKind kind, int rank) {
  std::vector<int> all;
  for (int d = 0; d < rank; ++d) all.push_back(d);
  if (kind == OptimizerKind::adamw) return {{".first", all}, {".second", all}};
  if (kind == OptimizerKind::sgd) return {{".first", all}};
  if (rank < 2) return {{".second", all}};
  std::vector<int> row(all.begin(), all.end() - 1), column(all.begin(), all.end() - 2);
  column.push_back(rank - 1);
  return {{".row", row}, {".column", column}};
}

Graph update_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters,
                   const OptimizerOptions& optimizer, const StatePlaces& places) {
  return Update(ops, parameters, optimizer, places).take();
}

}  // namespace plait
