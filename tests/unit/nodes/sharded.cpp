#include "tests/unit/nodes/sharded.h"

#include <cmath>
#include <random>

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
  KernelStatus status;
  std::vector<Tensor> out = run_op(whole.kernels, node.op, node.attributes, inputs, outputs, 1, &status);
  if (status.code != KernelCode::ok)
    throw Error(Code::invalid_argument, cat(node.op, " refuses operand ", status.operand, ", value ", status.value));
  return out;
}

/// Operands that owe a sum along an axis: by operand, the summands of the ranks along it; none for one that owes
/// nothing.
struct Owed {
  AxisId axis = 0;
  std::vector<std::vector<Tensor>> parts;
};

/// Results of all ranks, by output.
std::vector<Shards> run_sharded(const Whole& whole, const FactorAxes& axes, const Placement& placement,
                                const Mesh& mesh, const Owed& owed) {
  std::vector<Shards> out(whole.outputs.size());
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    Node node = whole.node;
    localize(node, whole.schema, whole.rule, axes, mesh);
    node = at_rank(std::move(node), mesh, rank);
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < whole.inputs.size(); ++k) {
      const bool owes = k < owed.parts.size() && !owed.parts[k].empty();
      const Tensor& all =
          owes ? owed.parts[k][static_cast<size_t>(mesh.coordinate(rank, owed.axis))] : whole.inputs[k];
      inputs.push_back(all.present() ? block_of(all, placement.operands[k], mesh, rank) : Tensor());
    }
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
                  double slack, const Owed& owed) {
  std::vector<Shards> results;
  try {
    results = run_sharded(whole, axes, placement, mesh, owed);
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

/// Summands of a tensor, random but for the last; those of floats are of either sign, so that no kink is missed.
std::vector<Tensor> summands_of(const Tensor& whole, int64_t count, std::mt19937& random) {
  std::vector<Tensor> out;
  for (int64_t k = 0; k < count; ++k) out.emplace_back(whole.dtype(), whole.shape());
  std::uniform_real_distribution<double> share(0, 1);
  for (int64_t i = 0; i < whole.elements(); ++i) {
    double rest = element(whole, i);
    for (int64_t k = 0; k + 1 < count; ++k) {
      double part = rest * share(random);
      part = is_float(whole.dtype()) ? part + share(random) - 0.5 : std::trunc(part);
      set_element(out[static_cast<size_t>(k)], i, std::isfinite(rest) ? part : 0);
      rest -= element(out[static_cast<size_t>(k)], i);  // as it was rounded
    }
    set_element(out.back(), i, rest);
  }
  return out;
}

/// Which operands might owe a sum: each one by itself, and all those together in which the op is linear together.
/// Unsigned ones do not: what wraps around in 64 bits is beyond the doubles of `element`.
std::vector<std::vector<bool>> debtors(const Whole& whole) {
  const std::vector<RuleTensor>& operands = whole.rule.rule.operands;
  std::vector<std::vector<bool>> out;
  std::vector<bool> together(operands.size());
  for (size_t k = 0; k < operands.size(); ++k) {
    const DType dtype = whole.inputs[k].dtype();
    if (!is_float(dtype) && !(is_integer(dtype) && dtype_name(dtype)[0] == 'i')) continue;
    together[k] = operands[k].linear == Linearity::together;
    out.emplace_back(operands.size());
    out.back()[k] = true;
  }
  if (std::count(together.begin(), together.end(), true) > 1) out.push_back(std::move(together));
  return out;
}

/// Calls visit(owed, placement) for each sum along an axis that is free, which may stay unpaid after the node.
template <class Visit>
void each_pass(const Whole& whole, const FactorAxes& axes, const Placement& placement, const Mesh& mesh,
               Visit visit) {
  std::mt19937 random(7);
  for (AxisId axis = 0; axis < mesh.sub_axes(); ++axis)
    for (const std::vector<bool>& who : debtors(whole)) {
      std::vector<std::vector<Pending>> owed(who.size());
      for (size_t k = 0; k < who.size(); ++k)
        if (who[k]) owed[k].push_back({axis, PendingKind::sum});
      const std::vector<AxisList> passes = passing(whole.rule.rule, owed, axes);
      if (std::any_of(who.begin(), who.end(),
                      [&, k = size_t{0}](bool one) mutable { return one != !passes[k++].empty(); }))
        continue;
      Owed parts{axis, {}};
      for (size_t k = 0; k < who.size(); ++k) {
        parts.parts.emplace_back();
        if (who[k]) parts.parts[k] = summands_of(whole.inputs[k], mesh.size(axis), random);
      }
      Placement behind = placement;
      for (Sharding& result : behind.results) result.pending.push_back({axis, PendingKind::sum});
      visit(parts, behind);
    }
}

std::optional<DimsRule> rule_on(const Whole& whole) {
  return rule_of(whole.schema, whole.node, types_of(whole.inputs), types_of(whole.outputs));
}

/// Nothing in `outputs` for an op without a rule.
Whole whole_of(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands) {
  Whole out{kernels, node, *World::get().ops.find(node.op), operands, {}, {}};
  if (!out.schema.dims.empty() || out.schema.dims_of) out.outputs = evaluate(out, node, operands);
  return out;
}

}  // namespace

std::string counts_text(const std::map<std::string, Tried>& tried) {
  std::string out;
  for (const auto& [name, one] : tried)
    if (one.placements || one.passes)
      out += cat(name, " | ", one.placements, " placements | ", one.passes, " sums pass\n");
  return out;
}

std::optional<DimsRule> rule_on(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands) {
  const Whole whole = whole_of(kernels, node, operands);
  return whole.outputs.empty() ? std::nullopt : rule_on(whole);
}

Tried expect_sharded_equals_whole(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands,
                                  const Mesh& mesh, double slack, int* wrong, const DimsRule* given) {
  Tried tried;
  Whole whole = whole_of(kernels, node, operands);
  if (whole.outputs.empty()) return tried;
  const std::optional<DimsRule> rule = given ? *given : rule_on(whole);
  if (!rule) return tried;
  const std::vector<Type> in = types_of(whole.inputs), out = types_of(whole.outputs);
  whole.rule = {*rule, factor_sizes(*rule, dims_list(in), dims_list(out), &whole.schema)};
  auto expect = [&](const FactorAxes& axes, const Placement& placement, const Owed& owed) {
    const std::string fault = check(whole, axes, placement, mesh, slack, owed);
    if (wrong) *wrong += !fault.empty();
    else if (!fault.empty())
      ADD_FAILURE() << fault << ": " << describe(node) << " with " << text(*rule) << " cut " << text_of(axes, mesh)
                    << (owed.parts.empty() ? "" : ", operands owe a sum");
  };
  each_placement(whole.rule, mesh, [&](const FactorAxes& axes, const Placement& placement) {
    each_pass(whole, axes, placement, mesh, [&](const Owed& owed, const Placement& behind) {
      ++tried.passes;
      expect(axes, behind, owed);
    });
    if (text_of(axes, mesh).empty()) return;
    ++tried.placements;
    for (const auto& [factor, list] : axes)
      if (!list.empty()) tried.factors.insert(factor);
    expect(axes, placement, {});
  });
  return tried;
}

}  // namespace plait::test
