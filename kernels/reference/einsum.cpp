// Einsum: any number of operands, with ellipses, repeated letters (diagonals) and implicit outputs.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

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
  std::vector<int> kept = labels_of(equation.result, widest), summed;
  std::set<int> in_result(kept.begin(), kept.end());
  Shape kept_sizes, summed_sizes;
  for (int label : kept) kept_sizes.push_back(sizes.count(label) ? sizes[label] : 1);
  for (auto [label, size] : sizes)
    if (!in_result.count(label)) summed.push_back(label), summed_sizes.push_back(size);

  /// An operand's offsets over a nest of labels: a repeated letter's strides add up, a size of 1 repeats.
  auto offsets = [&](size_t k, const std::vector<int>& over, const Shape& nest) {
    Shape own = strides_of(call.inputs[k].shape), strides = nest;
    for (size_t i = 0; i < over.size(); ++i) {
      int64_t stride = 0;
      for (size_t j = 0; j < labels[k].size(); ++j)
        if (labels[k][j] == over[i] && call.inputs[k].shape[static_cast<int>(j)] != 1)
          stride += own[static_cast<int>(j)];
      strides[static_cast<int>(i)] = stride;
    }
    return offsets_of(nest, strides);
  };
  with_number(call.outputs[0].dtype, [&]<class Number>(Number) {
    using N = std::conditional_t<std::is_same_v<Number, double>, double, uint64_t>;  // integers wrap
    std::vector<std::vector<int64_t>> starts, steps;
    std::vector<Loaded<N>> data;
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      starts.push_back(offsets(k, kept, kept_sizes));
      steps.push_back(offsets(k, summed, summed_sizes));
      data.emplace_back(call.inputs[k]);
    }
    for (size_t i = 0; i < starts[0].size(); ++i) {
      N sum = 0;
      for (size_t j = 0; j < steps[0].size(); ++j) {
        N product = data[0][starts[0][i] + steps[0][j]];
        for (size_t k = 1; k < data.size(); ++k) product *= data[k][starts[k][i] + steps[k][j]];
        sum += product;
      }
      store_one(call.outputs[0], static_cast<int64_t>(i), sum);
    }
  });
  return {};
}

}  // namespace

void add_einsum(KernelTable& table) { add<einsum>(table, "Einsum", numbers); }

}  // namespace plait::reference
