// A node of every schema row, with optional operands present and absent, and operands of every rank: it ends in a
// result or in an Error. Reads out of bounds show under sanitizers, where this file runs, too.
#include <algorithm>
#include <map>

#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/survives.h"

namespace plait::test {
namespace {

constexpr int most_rank = 5;

/// What an attribute needs to have for the op to mean anything, by its name.
const std::map<std::string, Attribute> usual_values{
    {"K", int64_t{2}},          {"N", int64_t{2}},
    {"bits", int64_t{4}},       {"block_size", int64_t{16}},
    {"blocksize", int64_t{1}},  {"direction", std::string("LEFT")},
    {"to", int64_t{1}},         {"equation", std::string("ij,jk->ik")},
    {"function", std::string("Tanh")}, {"layer", std::string("LSTM")}, {"num_heads", int64_t{2}},
    {"kv_num_heads", int64_t{1}}, {"q_num_heads", int64_t{2}},
    {"num_groups", int64_t{1}}, {"rate", 0.5},
    {"kernel_shape", std::vector<int64_t>{1}}, {"pooled_shape", std::vector<int64_t>{1, 1}},
    {"shape", std::vector<int64_t>{2}}, {"mode", std::string("TF")},
    {"ngram_counts", std::vector<int64_t>{0}}, {"ngram_indexes", std::vector<int64_t>{0}},
    {"min_gram_length", int64_t{1}}, {"max_gram_length", int64_t{1}},
    {"scale", 1.0},             {"kind", std::string("max")},
    {"steps", std::vector<std::string>{"Relu 0"}},
    {"coefficients", std::vector<double>{1, 2}}, {"intercepts", std::vector<double>{0}}, {"rho", std::vector<double>{0}},
    {"classlabels_ints", std::vector<int64_t>{0, 1}}, {"classlabels_int64s", std::vector<int64_t>{0, 1}},
    {"offset", std::vector<double>{1}}, {"imputed_value_floats", std::vector<double>{1}},
    {"cats_int64s", std::vector<int64_t>{1, 2}}, {"keys_floats", std::vector<double>{1}},
    {"values_int64s", std::vector<int64_t>{1}}, {"n_targets", int64_t{1}}, {"tree_roots", std::vector<int64_t>{0}},
    {"leaf_targetids", std::vector<int64_t>{0}}, {"leaf_weights", Tensor(DType::f32, {1})},
    {"nodes_falseleafs", std::vector<int64_t>{1}}, {"nodes_falsenodeids", std::vector<int64_t>{0}},
    {"nodes_featureids", std::vector<int64_t>{0}}, {"nodes_modes", Tensor(DType::u8, {1})},
    {"nodes_splits", Tensor(DType::f32, {1})}, {"nodes_trueleafs", std::vector<int64_t>{1}},
    {"nodes_truenodeids", std::vector<int64_t>{0}},
};

Attributes attributes_of(const OpSchema& row) {
  Attributes out;
  for (const AttributeRow& attribute : row.attributes) {
    const bool heads = attribute.name.find("num_heads") != std::string::npos;
    auto known = usual_values.find(attribute.name);
    // The standard calls lists of ai.onnx.ml optional, of which one kind or another is needed.
    const bool listed = row.name.starts_with("ai.onnx.ml.") && known != usual_values.end() &&
                        attribute_kind(known->second) == attribute.kind;
    if (attribute.default_text != "required" && !heads && !listed) continue;
    if (known != usual_values.end()) out.set(attribute.name, known->second);
    else if (attribute.kind == "int") out.set(attribute.name, int64_t{0});
    else if (attribute.kind == "float") out.set(attribute.name, 1.0);
    else ADD_FAILURE() << row.name << ": no value for attribute " << attribute.name;
  }
  return out;
}

/// The first of those that most graphs have.
DType usual(const OpSchema& row, size_t operand) {
  const OperandTypes* types = TypeRule::of(row.type_rule.operands, operand);
  if (!types) return DType::f32;
  for (DType dtype : {DType::f32, DType::i64, DType::i32, DType::u8, DType::i8, DType::boolean, DType::string})
    if (types->has(dtype)) return dtype;
  return DType::f32;
}

Tensor filled(DType dtype, int rank) {
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) shape.push_back(2);
  Tensor out(dtype, shape);
  if (dtype == DType::string) return out;  // of empty ones
  for (int64_t i = 0; i < out.elements(); ++i) set_element(out, i, 1);
  return out;
}

/// The ranks of the operands of a typical node, by the row's dims rule; 1 where it has none.
std::vector<int> typical_ranks(const OpSchema& row, size_t count) {
  std::vector<int> out(count, 1);
  if (row.dims.empty()) return out;
  const DimsRule rule = parse_dims_rule(row.dims);
  for (size_t i = 0; i < count && i < rule.operands.size(); ++i)
    out[i] = static_cast<int>(rule.operands[i].dims.size());
  return out;
}

class Ranks {
 public:
  explicit Ranks(const OpSchema& row) : row_(row), attributes_(attributes_of(row)) {
    most_ = static_cast<size_t>(row.max_inputs < 0 ? std::max(row.min_inputs, 1) + 1 : row.max_inputs);
    for (size_t i = 0; i < most_; ++i) required_.push_back(static_cast<int>(i) < row.min_inputs && !is_optional(i));
  }

  /// All combinations of up to three operands; of more, each one's ranks next to the typical ones of the others.
  void run() {
    for (const std::vector<bool>& present : presences()) {
      std::vector<int> ranks = typical_ranks(row_, most_);
      run_node(present, ranks);
      const auto operands = static_cast<size_t>(std::count(present.begin(), present.end(), true));
      if (operands <= 3) {
        combine(present, ranks, 0);
        continue;
      }
      for (size_t i = 0; i < most_; ++i)
        for (int rank = 0; present[i] && rank <= most_rank; ++rank) {
          std::vector<int> other = ranks;
          other[i] = rank;
          run_node(present, other);
        }
    }
  }
  int results() const { return results_; }

 private:
  bool is_optional(size_t operand) const {
    const std::vector<std::string> words = split(trimmed(row_.inputs), ' ');
    return operand < words.size() && words[operand].find('?') != std::string::npos;
  }
  /// All operands, the required ones, each optional one by itself, and all but each.
  std::vector<std::vector<bool>> presences() const {
    std::vector<std::vector<bool>> out{std::vector<bool>(most_, true), required_};
    for (size_t i = 0; i < most_; ++i) {
      if (required_[i]) continue;
      out.push_back(required_);
      out.back()[i] = true;
      out.emplace_back(most_, true);
      out.back()[i] = false;
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }
  void combine(const std::vector<bool>& present, std::vector<int>& ranks, size_t i) {
    if (i == most_) return run_node(present, ranks);
    if (!present[i]) return combine(present, ranks, i + 1);
    for (ranks[i] = 0; ranks[i] <= most_rank; ++ranks[i]) combine(present, ranks, i + 1);
  }
  void run_node(const std::vector<bool>& present, const std::vector<int>& ranks) {
    for (bool declared : {true, false}) {
      // Plait's own ops are made by passes, which know the ranks.
      if (!declared && row_.name.starts_with("plait.")) continue;
      Graph graph;
      std::vector<ValueId> inputs;
      std::vector<Tensor> data;
      std::string what;
      for (size_t i = 0; i < most_; ++i) {
        inputs.push_back(no_value);
        if (!present[i]) continue;
        data.push_back(filled(usual(row_, i), ranks[i]));
        const Shape shape = data.back().shape();
        Type type{data.back().dtype(), std::nullopt};
        if (declared) type.dims = Dims(shape.begin(), shape.end());
        inputs.back() = graph.add_value(cat("x", i), std::move(type));
        graph.inputs.push_back(inputs.back());
        what += cat(" ", i, ":", shape.text());
      }
      while (!inputs.empty() && inputs.back() == no_value) inputs.pop_back();
      const int outputs = std::max(row_.max_outputs, 1);
      graph.outputs = graph.add_node(row_.name, std::move(inputs), outputs, attributes_).outputs;
      SCOPED_TRACE(cat(row_.name, what, declared ? "" : ", ranks unknown"));
      for (const KernelTable* kernels : {&reference_options().kernels, &World::get().kernels})
        results_ += survives(graph, data, *kernels);
    }
  }

  const OpSchema& row_;
  Attributes attributes_;
  size_t most_;
  std::vector<bool> required_;
  int results_ = 0;
};

/// The rows whose nodes a program runs by kernels.
std::vector<std::string> ops_with_kernels() {
  std::vector<std::string> out;
  for (const auto& [name, row] : World::get().ops.all()) {
    const bool kernel = std::any_of(World::get().kernels.all().begin(), World::get().kernels.all().end(),
                                    [&op = name](const auto& one) { return one->op == op; });
    if (kernel && row.written_as.empty()) out.push_back(name);
  }
  return out;
}

class EachOp : public testing::TestWithParam<std::string> {};

TEST_P(EachOp, TakesEveryRankOrRefusesIt) {
  Ranks ranks(*World::get().ops.find(GetParam()));
  ranks.run();
}

INSTANTIATE_TEST_SUITE_P(Rows, EachOp, testing::ValuesIn(ops_with_kernels()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace plait::test
