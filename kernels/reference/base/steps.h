#pragma once
// Element-wise steps (core/base/elementwise_steps.h) on one array.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/elementwise_steps.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {

/// Attribute "steps" of a node with `operands` registers.
inline std::vector<ElementwiseStep> steps_of(const NodeInfo& node, size_t operands) {
  const Attribute* found = node.attributes.find("steps");
  const auto* texts = found ? std::get_if<std::vector<std::string>>(found) : nullptr;
  return parse_steps(texts ? *texts : std::vector<std::string>(), operands);
}

inline double apply_step(StepOp op, double a, double b) {
  switch (op) {
    case StepOp::add: return a + b;
    case StepOp::sub: return a - b;
    case StepOp::mul: return a * b;
    case StepOp::div: return a / b;
    case StepOp::max: return a != a ? a : b != b ? b : std::max(a, b);  // a NaN wins
    case StepOp::min: return a != a ? a : b != b ? b : std::min(a, b);
    case StepOp::prelu: return a < 0 ? a * b : a;
    case StepOp::abs: return std::fabs(a);
    case StepOp::erf: return std::erf(a);
    case StepOp::exp: return std::exp(a);
    case StepOp::gelu: return gelu(a);
    case StepOp::hard_swish: return a * std::clamp(a / 6 + 0.5, 0.0, 1.0);
    case StepOp::neg: return -a;
    case StepOp::reciprocal: return 1 / a;
    case StepOp::relu: return a < 0 ? 0 : a;
    case StepOp::sigmoid: return sigmoid(a);
    case StepOp::sqrt: return std::sqrt(a);
    case StepOp::swish: return silu(a);
    case StepOp::tanh: return std::tanh(a);
    case StepOp::count: break;
  }
  return a;
}

/// The operand's elements, repeated to `shape`.
inline std::vector<double> repeated(const TensorView& operand, const Shape& shape) {
  const std::vector<double> own = load_all<double>(operand);
  std::vector<double> out;
  out.reserve(static_cast<size_t>(shape.elements()));
  const Nest<1> nest(shape, {broadcast_strides(operand.shape, shape)});
  nest.rows([&](const std::array<int64_t, 1>& at) {
    for (int64_t i = 0; i < nest.row(); ++i) out.push_back(own[static_cast<size_t>(at[0] + i * nest.step(0))]);
  });
  return out;
}

/// The last of `registers`, which hold as many elements each, once the steps were appended; without steps the first.
inline std::vector<double> run_steps(const std::vector<ElementwiseStep>& steps,
                                     std::vector<std::vector<double>> registers) {
  if (steps.empty()) return std::move(registers.front());
  for (const ElementwiseStep& step : steps) {
    const std::vector<double>& a = registers[static_cast<size_t>(step.a)];
    const std::vector<double>& b = registers[static_cast<size_t>(step.b < 0 ? step.a : step.b)];
    std::vector<double> out(a.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = apply_step(step.op, a[i], b[i]);
    registers.push_back(std::move(out));
  }
  return std::move(registers.back());
}

}  // namespace plait::reference
