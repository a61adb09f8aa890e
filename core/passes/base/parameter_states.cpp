#include "core/passes/base/parameter_states.h"

#include "core/mesh/file_layout.h"

namespace plait {
namespace {

void add_names(const Constant& constant, std::vector<std::string>& out) {
  if (!constant.initializer.empty()) out.push_back(constant.initializer);
  for (const Constant& part : constant.parts) add_names(part, out);
}

}  // namespace

std::vector<std::string> names_of(const Constant& constant) {
  std::vector<std::string> out;
  add_names(constant, out);
  return out;
}

bool are_apart(const Constant& a, const Constant& b) {
  auto places = [](const Constant& constant) {
    const std::optional<FileLayout> layout = file_layout(constant);
    return layout ? cut_in_file(*layout, Sharding::replicated(layout->dims.size()), Mesh{}) : std::nullopt;
  };
  const auto of_a = places(a), of_b = places(b);
  if (!of_a || !of_b || of_a->size() != of_b->size()) return false;
  for (size_t axis = 0; axis < of_a->size(); ++axis) {
    const auto &blocks_a = (*of_a)[axis].blocks, &blocks_b = (*of_b)[axis].blocks;
    bool meet = false;
    for (size_t i = 0; i < blocks_a.size() && i < blocks_b.size(); ++i)
      meet = meet || (blocks_a[i] >= 0 && blocks_b[i] >= 0);
    if (!meet) return true;
  }
  return false;
}

ValueId add_state(Graph& graph, GraphBuilder& builder, const std::string& key, DType dtype, const Shape& shape,
                  std::shared_ptr<const Constant> initial, bool is_sum) {
  std::vector<ValueId> inputs;
  if (initial) {
    inputs.push_back(graph.add_value("", {dtype, Dims(shape.begin(), shape.end())}));
    graph.value(inputs[0]).constant = std::move(initial);
  }
  Attributes attributes;
  attributes.set("key", key);
  if (is_sum) attributes.set("sum", int64_t{1});
  const ValueId out = builder.add("plait.State", std::move(inputs), std::move(attributes));
  graph.value(out).type = {dtype, Dims(shape.begin(), shape.end())};
  return out;
}

ValueId add_parameter(Graph& graph, GraphBuilder& builder, const TrainedParameter& parameter) {
  return add_state(graph, builder, parameter.key, parameter.dtype(), parameter.shape, parameter.origin);
}

}  // namespace plait
