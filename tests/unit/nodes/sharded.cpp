#include "tests/unit/nodes/sharded.h"

#include <cmath>

#include "core/graph/infer.h"

namespace plait::test {
namespace {

/// One node with operands of known sizes.
struct Whole {
  const KernelTable& kernels;
  const Node& node;
  const OpSchema& schema;
  std::vector<Tensor> inputs, outputs;
  NodeRule rule;
};

std::vector<Type> types_of(const std::vector<Tensor>& tensors) {
  std::vector<Type> out;
  for (const Tensor& tensor : tensors) {
    Type type{tensor.dtype(), std::nullopt};
    if (tensor.present()) type.dims = Dims(tensor.shape().begin(), tensor.shape().end());
    out.push_back(std::move(type));
  }
  return out;
}

std::vector<Tensor> evaluate(const Whole& whole, const Node& node, const std::vector<Tensor>& inputs) {
  std::vector<TensorView> views;
  for (const Tensor& input : inputs) views.push_back(input.view());
  std::vector<std::pair<DType, Shape>> types;
  infer_concrete(whole.schema, node, views, types);
  std::vector<OutputType> outputs;
  for (const auto& [dtype, shape] : types) outputs.push_back({dtype, shape});
  return run_op(whole.kernels, node.op, node.attributes, inputs, outputs, 2);
}

/// Results of all ranks, by output.
std::vector<Shards> run_sharded(const Whole& whole, const FactorAxes& axes, const Placement& placement,
                                const Mesh& mesh) {
  std::vector<Shards> out(whole.outputs.size());
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    Node node = whole.node;
    localize(node, whole.schema, whole.rule, axes, mesh, rank);
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < whole.inputs.size(); ++k)
      inputs.push_back(whole.inputs[k].present() ? block_of(whole.inputs[k], placement.operands[k], mesh, rank)
                                                 : Tensor());
    if (whole.schema.target >= 0) {
      const Shape local = local_shape(whole.outputs[0].shape(), placement.results[0], mesh);
      inputs[static_cast<size_t>(whole.schema.target)] = Tensor::of_ints({local.begin(), local.end()});
    }
    std::vector<Tensor> results = evaluate(whole, node, inputs);
    for (size_t k = 0; k < results.size(); ++k) out[k].push_back(std::move(results[k]));
  }
  return out;
}

/// The first element that differs; empty where none does.
std::string difference(const Tensor& got, const Tensor& expected, double slack) {
  double largest = 0;
  for (int64_t i = 0; i < expected.elements(); ++i)
    if (std::isfinite(element(expected, i))) largest = std::max(largest, std::fabs(element(expected, i)));
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double a = element(got, i), b = element(expected, i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= slack * largest) continue;
    return cat("element ", i, " is ", a, ", expected ", b);
  }
  return {};
}

/// "b: tensor.0, h: tensor.1"
std::string text_of(const FactorAxes& axes, const Mesh& mesh) {
  std::vector<std::string> out;
  for (const auto& [factor, cut] : axes)
    if (!cut.empty()) out.push_back(cat(factor, ": ", mesh.text(cut)));
  return join(out, ", ");
}

std::string check(const Whole& whole, const FactorAxes& axes, const Placement& placement, const Mesh& mesh,
                  double slack) {
  std::vector<Shards> results;
  try {
    results = run_sharded(whole, axes, placement, mesh);
  } catch (const Error& error) {
    return error.message();
  }
  for (size_t k = 0; k < results.size(); ++k) {
    const Tensor& expected = whole.outputs[k];
    if (!expected.present()) continue;
    for (const Tensor& shard : results[k])
      if (shard.shape() != local_shape(expected.shape(), placement.results[k], mesh))
        return cat("output ", k, " is ", shard.shape().text(), ", expected ",
                   local_shape(expected.shape(), placement.results[k], mesh).text());
    bool equal = true;
    const Tensor got = assemble(results[k], placement.results[k], mesh, expected.shape(), [&](double a, double b) {
      equal = equal && (a == b || (std::isnan(a) && std::isnan(b)));
      return false;
    });
    if (!equal) return cat("output ", k, ": ranks that should hold the same do not");
    if (std::string different = difference(got, expected, slack); !different.empty())
      return cat("output ", k, ": ", different);
  }
  return {};
}

}  // namespace

Tried expect_sharded_equals_whole(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands,
                                  const Mesh& mesh, double slack, int* wrong, const std::string& text) {
  Tried tried;
  Whole whole{kernels, node, *World::get().ops.find(node.op), operands, {}, {}};
  if (whole.schema.dims.empty() && !whole.schema.dims_of) return tried;
  whole.outputs = evaluate(whole, node, operands);
  const std::vector<Type> in = types_of(whole.inputs), out = types_of(whole.outputs);
  OpSchema schema = whole.schema;
  if (!text.empty()) schema.dims = text, schema.dims_of = nullptr;
  std::optional<DimsRule> rule = rule_of(schema, node, in, out);
  if (!rule) return tried;
  whole.rule = {*rule, factor_sizes(*rule, dims_list(in), dims_list(out), &schema)};
  each_placement(whole.rule, mesh, [&](const FactorAxes& axes, const Placement& placement) {
    const std::string cut = text_of(axes, mesh);
    if (cut.empty()) return;
    ++tried.placements;
    for (const auto& [factor, list] : axes)
      if (!list.empty()) tried.factors.insert(factor);
    const std::string fault = check(whole, axes, placement, mesh, slack);
    if (wrong) *wrong += !fault.empty();
    else EXPECT_EQ(fault, "") << describe(node) << " with " << plait::text(*rule) << " cut " << cut;
  });
  return tried;
}

}  // namespace plait::test
