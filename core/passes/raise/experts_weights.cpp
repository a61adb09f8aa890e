// Raise, experts' weights: stacks of all experts' matrices, in either orientation, with gate and up concatenated,
// interleaved or separate; or weights of Linears, whole or quantised, two or three per expert.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/passes/raise/experts.h"

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

/// Rows of a stack: all, or one of two halves, contiguous or interleaved (axis 1).
Constant half(Constant stack, int64_t which, bool interleaved) {
  const Shape shape = stack.shape();
  std::vector<int64_t> one(shape.begin(), shape.end()), split = one;
  const int64_t n = one[1] / 2;
  if (!interleaved) {
    add_step(stack, {Kind::slice, {1, which * n, (which + 1) * n}, {}});
    return stack;
  }
  one[1] = split[1] = n;
  split.insert(split.begin() + 2, 2);
  add_step(stack, {Kind::reshape, split, {}});
  add_step(stack, {Kind::slice, {2, which, which + 1}, {}});
  add_step(stack, {Kind::reshape, one, {}});
  return stack;
}

/// [e, n, k] from a stack of matrices in either orientation.
std::vector<Constant> oriented(const Constant& stack, int64_t n, int64_t k) {
  std::vector<Constant> out;
  const Shape shape = stack.shape();
  if (shape[1] == n && shape[2] == k) out.push_back(stack);
  if (shape[1] == k && shape[2] == n) {
    out.push_back(stack);
    add_step(out.back(), {Kind::transpose, {0, 2, 1}, {}});
  }
  return out;
}

/// Constants of all experts: stacks of matrices, and of vectors [e, n].
struct Constants {
  std::vector<Constant> weights, vectors;
};

Constants constants_in(const Graph& graph, const Mixture& m) {
  Constants out;
  std::set<ValueId> seen;
  for (int32_t index : m.region.nodes)
    for (ValueId id : graph.nodes[static_cast<size_t>(index)].inputs) {
      const auto constant = id == no_value ? nullptr : graph.value(id).constant;
      if (!constant || !is_float(constant->dtype()) || !seen.insert(id).second) continue;
      const Shape shape = constant->shape();
      if (shape.rank() < 2 || shape[0] != m.e || shape.elements() == m.e) continue;
      if (shape.rank() == 3 && shape[1] > 1 && shape[2] > 1) out.weights.push_back(*constant);
      else if (shape.rank() <= 3) out.vectors.push_back(*constant);
    }
  for (Constant& vector : out.vectors) add_step(vector, {Kind::reshape, {m.e, vector.shape().elements() / m.e}, {}});
  return out;
}

/// Two or three stacks of matrices, with optional vectors added after them.
std::vector<Reading> stacked_readings(const Graph& graph, const Mixture& m) {
  const auto [weights, vectors] = constants_in(graph, m);
  std::vector<Reading> out;
  if (weights.size() < 2 || weights.size() > 3 || (!vectors.empty() && vectors.size() != weights.size())) return out;
  const Shape last = weights.back().shape();
  std::set<int64_t> hidden;  // sizes that the last product may sum over
  if (last[1] == m.o) hidden.insert(last[2]);
  if (last[2] == m.o) hidden.insert(last[1]);
  auto stack = [&, &vectors = vectors](Constant weight, size_t vector) {
    Stack made{std::move(weight), {}, {}, {}};
    if (!vectors.empty()) made.bias = vectors[vector];
    return made;
  };
  auto fits = [&](const Stack& one, int64_t n) { return !is_there(one.bias) || one.bias.shape() == Shape{m.e, n}; };
  for (int64_t f : hidden)
    for (const Constant& down : oriented(weights.back(), m.o, f)) {
      const Stack behind = stack(down, weights.size() - 1);
      if (!fits(behind, m.o)) continue;
      if (weights.size() == 3) {
        for (const Constant& first : oriented(weights[0], f, m.h))
          for (const Constant& second : oriented(weights[1], f, m.h))
            for (bool swapped : {false, true}) {
              Stack gate = stack(first, 0), up = stack(second, 1);
              if (!fits(gate, f) || !fits(up, f)) continue;
              if (swapped) std::swap(gate, up);
              out.push_back({gate, up, behind});
            }
        continue;
      }
      for (const Constant& plain : oriented(weights[0], f, m.h))
        if (const Stack gate = stack(plain, 0); fits(gate, f)) out.push_back({gate, {}, behind});
      for (const Constant& both : oriented(weights[0], 2 * f, m.h))
        for (bool interleaved : {false, true})
          for (int64_t first : {0, 1}) {
            Stack sides[2];
            for (int64_t side : {0, 1}) {
              sides[side] = {half(both, side, interleaved), {}, {}, {}};
              if (vectors.empty()) continue;
              if (vectors[0].shape() != Shape{m.e, 2 * f}) return out;
              sides[side].bias = half(vectors[0], side, interleaved);
            }
            out.push_back({sides[first], sides[1 - first], behind});
          }
    }
  return out;
}

/// Half of the rows of all operands of a stack.
Stack half(const Stack& stack, int64_t which, bool interleaved) {
  Stack out = stack;
  for (Constant* part : {&out.weight, &out.bias, &out.scales, &out.zeros})
    if (is_there(*part)) *part = half(*part, which, interleaved);
  return out;
}

/// A product with one expert's weight, and its bias.
struct One {
  const Node* node;
  const Constant* bias = nullptr;
};

std::vector<One> linears_of(const Graph& graph, const Mixture& m) {
  const auto reader = consumers(graph);
  std::vector<One> out;
  for (int32_t index : m.region.nodes) {
    const Node& node = graph.nodes[static_cast<size_t>(index)];
    if (node.op != "plait.Linear") continue;
    One one{&node};
    const auto& readers = reader[static_cast<size_t>(node.outputs[0])];
    const Node* next = readers.size() == 1 ? &graph.nodes[static_cast<size_t>(readers[0])] : nullptr;
    if (next && next->op == "Add")
      for (ValueId id : next->inputs) {
        const auto& constant = graph.value(id).constant;
        if (constant && constant->shape().rank() == 1) one.bias = constant.get();
      }
    out.push_back(one);
  }
  return out;
}

/// The weights of one Linear per expert as a stack, if these are alike.
std::optional<Stack> stack_of(const Graph& graph, const std::vector<One>& linears) {
  Stack made;
  made.zero = linears[0].node->attributes.integer("zero", 0);
  auto gather = [&](Constant& to, auto part) {
    for (size_t expert = 0; expert < linears.size(); ++expert) {
      const Constant* one = part(linears[expert]);
      if (!one) return expert == 0;
      if (expert &&
          (to.parts.empty() || one->dtype() != to.parts[0].dtype() || one->shape() != to.parts[0].shape()))
        return false;
      to.parts.push_back(*one);
    }
    return true;
  };
  auto operand = [&](size_t k) {
    return [&graph, k](const One& one) -> const Constant* {
      const ValueId id = k < one.node->inputs.size() ? one.node->inputs[k] : no_value;
      return id == no_value ? nullptr : graph.value(id).constant.get();
    };
  };
  bool alike = gather(made.weight, operand(1)) && gather(made.scales, operand(3)) && gather(made.zeros, operand(4)) &&
               gather(made.bias, [](const One& one) { return one.bias; });
  for (const One& one : linears) {
    alike = alike && one.node->attributes.integer("zero", 0) == made.zero && operand(1)(one);
    alike = alike && (one.bias != nullptr) == is_there(made.bias) &&
            (operand(3)(one) != nullptr) == is_there(made.scales) &&
            (operand(4)(one) != nullptr) == is_there(made.zeros);
  }
  return alike ? std::optional(made) : std::nullopt;
}

/// Two or three Linears per expert, expert by expert (or, if tokens are sorted by expert, all experts' first ones,
/// then all second ones). Biases may be rows of stacks.
std::vector<Reading> unrolled_readings(const Graph& graph, const Mixture& m) {
  const std::vector<One> linears = linears_of(graph, m);
  const size_t e = static_cast<size_t>(m.e), each = linears.size() / e;
  std::vector<Reading> out;
  if (linears.size() % e || each < 2 || each > 3) return out;
  const std::vector<Constant> vectors = constants_in(graph, m).vectors;
  for (bool by_expert : {true, false}) {
    std::optional<Stack> stacks[3];
    bool all = true;
    for (size_t place = 0; place < each && all; ++place) {
      std::vector<One> ones;
      for (size_t expert = 0; expert < e; ++expert)
        ones.push_back(linears[by_expert ? expert * each + place : place * e + expert]);
      stacks[place] = stack_of(graph, ones);
      all = stacks[place].has_value();
      if (!all || vectors.size() != each || is_there(stacks[place]->bias)) continue;
      all = vectors[place].shape() == Shape{m.e, stacks[place]->weight.shape()[1]};
      stacks[place]->bias = vectors[place];
    }
    if (!all) continue;
    if (each == 3) {
      if (stacks[0]->zero != stacks[1]->zero || stacks[0]->weight.shape() != stacks[1]->weight.shape()) continue;
      out.push_back({*stacks[0], *stacks[1], *stacks[2]});
      out.push_back({*stacks[1], *stacks[0], *stacks[2]});
      continue;
    }
    const Shape first = stacks[0]->weight.shape(), down = stacks[1]->weight.shape();
    const int64_t f = down.elements(2, down.rank());
    if (down[1] != m.o) continue;
    if (first[1] == f) out.push_back({*stacks[0], {}, *stacks[1]});
    if (first[1] != 2 * f) continue;
    for (bool interleaved : {false, true})
      for (int64_t gate : {0, 1})
        out.push_back({half(*stacks[0], gate, interleaved), half(*stacks[0], 1 - gate, interleaved), *stacks[1]});
  }
  return out;
}

}  // namespace

std::vector<Reading> read_weights(const Graph& graph, const Mixture& mixture) {
  std::vector<Reading> out = unrolled_readings(graph, mixture);
  return out.empty() ? stacked_readings(graph, mixture) : out;
}

/// The elements of one expert in a stack [e, ...]: selected first if the steps keep experts apart, so that the whole
/// stack is not computed.
std::vector<float> one_of(Constant stack, int64_t expert) {
  const int64_t e = stack.shape()[0];
  bool apart = !stack.parts.empty() || (stack.source.shape().rank() > 1 && stack.source.shape()[0] == e);
  for (const RecipeStep& step : stack.steps) {
    const bool moves = step.kind == Kind::transpose || step.kind == Kind::slice;
    apart = apart && (!moves || (step.numbers[0] == 0) == (step.kind == Kind::transpose));
    apart = apart && (step.kind != Kind::reshape || (!step.numbers.empty() && step.numbers[0] == e));
  }
  const RecipeStep take{Kind::slice, {0, expert, expert + 1}, {}};
  if (!apart) {
    stack.steps.push_back(take);
    return floats(materialize(stack));
  }
  for (RecipeStep& step : stack.steps)
    if (step.kind == Kind::reshape) step.numbers[0] = 1;
  if (stack.parts.empty()) stack.steps.insert(stack.steps.begin(), take);
  else stack.parts = {stack.parts[static_cast<size_t>(expert)]};
  return floats(materialize(stack));
}

/// One expert's weight, dequantised.
std::vector<float> weight_of(const Stack& stack, int64_t expert) {
  std::vector<float> out = one_of(stack.weight, expert);
  if (!is_there(stack.scales)) return out;
  const std::vector<float> scales = one_of(stack.scales, expert);
  const std::vector<float> zeros = is_there(stack.zeros) ? one_of(stack.zeros, expert) : std::vector<float>();
  const size_t length = out.size() / std::max<size_t>(scales.size(), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t block = i / length;
    out[i] = (out[i] - (zeros.empty() ? static_cast<float>(stack.zero) : zeros[block])) * scales[block];
  }
  return out;
}

std::vector<double> product(const Stack& stack, int64_t expert, const float* x, size_t k) {
  const std::vector<float> w = weight_of(stack, expert);
  const size_t n = static_cast<size_t>(stack.weight.shape()[1]), row = w.size() / n;
  std::vector<double> out(n);
  const std::vector<float> bias = is_there(stack.bias) ? one_of(stack.bias, expert) : std::vector<float>(n);
  for (size_t j = 0; j < n; ++j) {
    out[j] = bias[j];
    for (size_t i = 0; i < k; ++i) out[j] += double{w[j * row + i]} * x[i];
  }
  return out;
}

}  // namespace plait
