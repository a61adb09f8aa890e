// Einsum: any number of operands, with ellipses, repeated letters (diagonals) and implicit outputs.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

/// The terms of an equation, "." standing for the ellipsis.
struct Equation {
  explicit Equation(const NodeInfo& node) {
    std::string text;
    for (char c : node.attributes.string("equation", ""))
      if (c != ' ') text += c;
    for (size_t at; (at = text.find("...")) != std::string::npos;) text.replace(at, 3, ".");
    size_t arrow = text.find("->");
    operands = split(text.substr(0, arrow), ',');
    for (const std::string& term : operands) check(node, term);
    if (arrow != std::string::npos) {
      result = text.substr(arrow + 2);
      check(node, result);
    } else {  // the ellipsis, then in alphabetical order the letters that occur once
      std::map<char, int> seen;
      for (const std::string& term : operands)
        for (char c : term) ++seen[c];
      if (seen.count('.')) result = ".";
      for (auto [letter, times] : seen)
        if (letter != '.' && times == 1) result += letter;
    }
    if (operands.size() != node.inputs.size())
      throw Error(Code::bad_model,
                  cat("Einsum: the equation has ", operands.size(), " operands, the node ", node.inputs.size()));
  }
  static void check(const NodeInfo& node, const std::string& term) {
    for (char c : term)
      if (c != '.' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z'))
        throw Error(Code::bad_model, cat("Einsum: bad equation ", quote(node.attributes.string("equation", ""))));
  }
  std::vector<std::string> operands;
  std::string result;
};

/// One label a dimension: letters, and for an ellipsis of n dimensions the numbers -n .. -1 (aligned right).
std::vector<int> labels_of(const std::string& term, int ellipsis) {
  std::vector<int> out;
  for (char c : term) {
    if (c != '.') out.push_back(c);
    else
      for (int i = -ellipsis; i < 0; ++i) out.push_back(i);
  }
  return out;
}

/// An operand, or the product of some.
template <class N>
struct Factor {
  std::vector<int> labels;
  Shape shape;
  std::vector<N> data;

  bool has(int label) const { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
};

/// Sizes of labels; 1 repeats.
template <class N>
void add_sizes(const Factor<N>& factor, std::map<int, int64_t>& sizes) {
  for (size_t i = 0; i < factor.labels.size(); ++i) {
    int64_t& size = sizes.try_emplace(factor.labels[i], 1).first->second;
    if (size == 1) size = factor.shape[static_cast<int>(i)];
  }
}

/// Steps through a factor by labels: those of a repeated letter add up, a size of 1 repeats.
template <class N>
Shape steps_of(const Factor<N>& factor, const std::vector<int>& labels) {
  const Shape own = strides_of(factor.shape);
  Shape out;
  for (const int label : labels) {
    int64_t step = 0;
    for (int i = 0; i < factor.shape.rank(); ++i)
      if (factor.labels[static_cast<size_t>(i)] == label && factor.shape[i] != 1) step += own[i];
    out.push_back(step);
  }
  return out;
}

/// The product of two factors, summed over all labels but `kept`.
template <class N>
Factor<N> contract(const Factor<N>& a, const Factor<N>& b, const std::vector<int>& kept) {
  std::map<int, int64_t> sizes;
  add_sizes(a, sizes);
  add_sizes(b, sizes);
  Factor<N> out{kept, {}, {}};
  for (const int label : kept) out.shape.push_back(sizes.contains(label) ? sizes[label] : 1);
  std::vector<int> summed;
  Shape summed_sizes;
  for (const auto& [label, size] : sizes)
    if (!out.has(label)) summed.push_back(label), summed_sizes.push_back(size);
  const Nest<2> each(out.shape, {steps_of(a, kept), steps_of(b, kept)}),
      over(summed_sizes, {steps_of(a, summed), steps_of(b, summed)});
  out.data.reserve(static_cast<size_t>(out.shape.elements()));
  StopCheck stop;
  each.rows([&](const std::array<int64_t, 2>& row) {
    for (int64_t i = 0; i < each.row(); ++i) {
      const N *left = a.data.data() + row[0] + i * each.step(0), *right = b.data.data() + row[1] + i * each.step(1);
      N sum = 0;
      const auto add_row = [&, row = over.row(), by = over.step(0), to = over.step(1)](const auto& at) {
        stop.count(row);
        for (int64_t j = 0; j < row; ++j) sum += left[at[0] + j * by] * right[at[1] + j * to];
      };
      if (over.is_row()) add_row(std::array<int64_t, 2>{});
      else over.rows(add_row);
      out.data.push_back(sum);
    }
  });
  return out;
}

/// Pair by pair from the left. Labels that nothing after a pair has are summed with it, those of one operand only before.
template <class N>
Factor<N> product_of(std::vector<Factor<N>> factors, const std::vector<int>& result) {
  const Factor<N> one{{}, {}, {1}};
  const auto needed = [&](int label, size_t first, size_t except) {
    if (std::find(result.begin(), result.end(), label) != result.end()) return true;
    for (size_t k = first; k < factors.size(); ++k)
      if (k != except && factors[k].has(label)) return true;
    return false;
  };
  const auto keep = [](std::vector<int>& kept, int label, bool wanted) {
    if (wanted && std::find(kept.begin(), kept.end(), label) == kept.end()) kept.push_back(label);
  };
  for (size_t k = 0; k < factors.size(); ++k) {
    std::vector<int> kept;
    for (const int label : factors[k].labels) keep(kept, label, needed(label, 0, k));
    if (kept != factors[k].labels) factors[k] = contract(factors[k], one, kept);
  }
  if (factors.size() == 1) return contract(factors[0], one, result);
  for (size_t k = 1; k + 1 < factors.size(); ++k) {
    std::vector<int> kept;
    for (const Factor<N>* factor : {&factors[0], &factors[k]})
      for (const int label : factor->labels) keep(kept, label, needed(label, k + 1, k));
    factors[0] = contract(factors[0], factors[k], kept);
    factors[k] = {};
  }
  return contract(factors[0], factors.back(), result);
}

KernelStatus einsum(const KernelCall& call, const Equation& equation) {
  std::map<int, int64_t> sizes;
  std::vector<std::vector<int>> labels;
  int widest = 0;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Shape& shape = call.inputs[k].shape;
    const std::string& term = equation.operands[k];
    bool dots = term.find('.') != std::string::npos;
    int ellipsis = dots ? shape.rank() - static_cast<int>(term.size()) + 1 : 0;
    labels.push_back(labels_of(term, ellipsis));
    if (ellipsis < 0 || static_cast<int>(labels[k].size()) != shape.rank())
      return {KernelCode::bad_value, static_cast<int32_t>(k), shape.rank()};
    widest = std::max(widest, ellipsis);
    for (int i = 0; i < shape.rank(); ++i) {
      int64_t& size = sizes.try_emplace(labels[k][static_cast<size_t>(i)], 1).first->second;
      if (shape[i] != 1 && size != 1 && size != shape[i])
        return {KernelCode::bad_value, static_cast<int32_t>(k), shape[i]};
      if (size == 1) size = shape[i];
    }
  }
  with_number(call.outputs[0].dtype, [&]<class Number>(Number) {
    using N = std::conditional_t<std::is_same_v<Number, double>, double, uint64_t>;  // integers wrap
    std::vector<Factor<N>> factors;
    for (size_t k = 0; k < call.inputs.size(); ++k)
      factors.push_back({labels[k], call.inputs[k].shape, load_all<N>(call.inputs[k])});
    store_all(call.outputs[0], product_of(std::move(factors), labels_of(equation.result, widest)).data);
  });
  return {};
}

}  // namespace

void add_einsum(KernelTable& table) { add<einsum>(table, "Einsum", numbers); }

}  // namespace plait::reference
