#include "tests/unit/nodes/instances.h"

#include <random>

#include "core/base/text.h"
#include "tests/unit/kernel_test.h"

namespace plait::test {
namespace {

Tensor tensor_of(const Operand& operand, std::mt19937& random) {
  if (operand.type.empty()) return {};
  const size_t bracket = operand.type.find('[');
  const std::string name = operand.type.substr(0, bracket);
  DType dtype = DType::none;
  for (DType one : {DType::f32, DType::i64, DType::i32, DType::u4, DType::u8, DType::bf16})
    if (dtype_name(one) == name) dtype = one;
  Shape shape;
  for (const std::string& size : split(operand.type.substr(bracket + 1, operand.type.size() - bracket - 2), ',')) {
    int64_t number = 0;
    if (parse_int(trimmed(size), number)) shape.push_back(number);
  }
  Tensor out(dtype, shape);
  if (operand.fill.starts_with("below ")) {
    for (int64_t i = 0; i < out.elements(); ++i)
      set_element(out, i, static_cast<double>(random() % static_cast<unsigned>(std::stoi(operand.fill.substr(6)))));
  } else if (!operand.fill.empty()) {
    const std::vector<std::string> numbers = split(operand.fill, ' ');
    for (int64_t i = 0; i < out.elements(); ++i)
      set_element(out, i, std::stod(numbers[static_cast<size_t>(i) % numbers.size()]));
  } else if (is_float(dtype)) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < out.elements(); ++i) set_element(out, i, normal(random));
  } else {
    for (int64_t i = 0; i < out.bytes(); ++i) out.data()[i] = static_cast<std::byte>(random());
  }
  return out;
}

/// A decoder's step: 2 rows of 6 tokens, pages of 4 tokens, 4 key heads with 2 queries each.
const Operand positions{"i32[2, 6]", "0 1 2 3 4 5"}, segments{"i32[2, 6]", "0 0 0 0 0 0 1 1 1 1 1 1"},
    packed{"i32[2, 6]", "0 0 0 0 1 1 0 1 1 1 -1 -1"}, slots{"i32[2, 6]", "0 1 2 3 4 5 8 9 10 11 12 13"}, pages{"i32[2, 2]", "0 1 2 3"};

const std::vector<Instance> instances{
    {"Linear", "plait.Linear", {{"f32[2, 4, 12]"}, {"f32[8, 12]"}}, 1, {}, {"n", "k"}},
    {"LinearWithBias", "plait.Linear", {{"f32[2, 4, 12]"}, {"f32[8, 12]"}, {"f32[8]"}}, 1, {}, {"n"}},
    {"LinearInBlocks",
     "plait.Linear",
     {{"f32[2, 4, 64]"}, {"u4[8, 4, 16]"}, {""}, {"f32[8, 4]"}, {"u8[8, 4]", "below 15"}},
     1,
     {},
     {"n", "c"}},
    {"Linears", "plait.Linears", {{"f32[2, 4, 12]"}, {"f32[8, 12]"}, {"f32[4, 12]"}}, 2, {}, {"n1", "n2", "k"}},
    {"GatedLinear", "plait.GatedLinear", {{"f32[2, 4, 12]"}, {"f32[8, 12]"}, {"f32[8, 12]"}}, 1, {}, {"f"}},
    {"GatedLinearInBlocks",
     "plait.GatedLinear",
     {{"f32[2, 4, 32]"}, {"u4[8, 2, 16]"}, {"u4[8, 2, 16]"}, {"f32[8, 2]"}, {""}, {"f32[8, 2]"}},
     1,
     {{"zero", int64_t{8}}},
     {"f"}},
    {"Embedding", "plait.Embedding", {{"f32[12, 8]"}, {"i64[2, 4]", "below 12"}}, 1, {}, {"v", "h"}},
    {"EmbeddingInBlocks",
     "plait.Embedding",
     {{"u4[12, 2, 16]"}, {"i64[2, 4]", "below 12"}, {"f32[12, 2]"}},
     1,
     {{"zero", int64_t{7}}},
     {"v", "c"}},
    {"GatherRows", "plait.GatherRows", {{"f32[2, 6, 8]"}, {"i32[2, 4]", "5 0 3 3"}}, 1, {}, {"b", "n"}},
    {"RoPE", "plait.RoPE", {{"f32[2, 6, 4, 8]"}, {"f32[2, 6, 4]"}, {"f32[2, 6, 4]"}}, 1, {}, {"b", "t", "g"}},
    {"KvWrite",
     "plait.KvWrite",
     {{"f32[4, 4, 8, 4]"}, {"f32[4, 4, 4, 8]"}, {"f32[2, 6, 4, 8]"}, {"f32[2, 6, 4, 8]"}, slots},
     2,
     {},
     {"g", "d", "e"}},
    {"PagedAttention",
     "plait.PagedAttention",
     {{"f32[2, 6, 8, 8]"}, {"f32[4, 4, 8, 4]"}, {"f32[4, 4, 4, 8]"}, positions, segments, pages},
     1,
     {{"scale", 0.35}, {"window", int64_t{3}}},
     {"b", "t", "g", "r"}},
    {"PagedAttentionWithSinks",
     "plait.PagedAttention",
     {{"f32[2, 6, 8, 8]"},
      {"f32[4, 4, 8, 4]"},
      {"f32[4, 4, 4, 8]"},
      positions,
      segments,
      pages,
      {"f32[8]"},
      {"f32[8]"}},
     1,
     {{"scale", 0.35}, {"softcap", 5.0}},
     {"b", "t", "g", "r"}},
    {"PagedAttentionOfOneKey",
     "plait.PagedAttention",
     {{"f32[2, 6, 4, 8]"}, {"f32[4, 1, 8, 4]"}, {"f32[4, 1, 4, 8]"}, positions, segments, pages},
     1,
     {{"scale", 0.35}},
     {"r"}},
    {"Experts",
     "plait.Experts",
     {{"f32[2, 4, 12]"},
      {"i64[2, 4, 2]", "below 4"},
      {"f32[2, 4, 2]"},
      {"f32[4, 8, 12]"},
      {"f32[4, 8, 12]"},
      {"f32[4, 6, 8]"}},
     1,
     {},
     {"e", "f", "o", "k"}},
    {"ExpertsWithBiases",
     "plait.Experts",
     {{"f32[2, 4, 12]"},
      {"i64[2, 4, 2]", "below 4"},
      {"f32[2, 4, 2]"},
      {"f32[4, 8, 12]"},
      {"f32[4, 8, 12]"},
      {"f32[4, 6, 8]"},
      {"f32[4, 8]"},
      {"f32[4, 8]"},
      {"f32[4, 6]"}},
     1,
     {{"alpha", 1.7}, {"beta", 1.0}, {"limit", 2.0}},
     {"e", "o", "k"}},
    {"ExpertsInBlocks",
     "plait.Experts",
     {{"f32[2, 4, 32]"},
      {"i64[2, 4, 2]", "below 4"},
      {"f32[2, 4, 2]"},
      {"u4[4, 32, 2, 16]"},
      {"u4[4, 32, 2, 16]"},
      {"u4[4, 6, 2, 16]"},
      {""},
      {""},
      {""},
      {"f32[4, 32, 2]"},
      {""},
      {"f32[4, 32, 2]"},
      {""},
      {"f32[4, 6, 2]"}},
     1,
     {{"zero", int64_t{8}}, {"down_zero", int64_t{8}}},
     {"e", "o", "m"}},
    {"ExpertsWithoutUp",
     "plait.Experts",
     {{"f32[2, 4, 12]"},
      {"i64[2, 4, 2]", "below 4"},
      {"f32[2, 4, 2]"},
      {"f32[4, 8, 12]"},
      {""},
      {"f32[4, 6, 8]"}},
     1,
     {{"activation", std::string("gelu_tanh")}},
     {"e", "f", "o"}},
    {"PackedAttention",
     "plait.PackedAttention",
     {{"f32[2, 6, 8, 4]"}, {"f32[2, 6, 4, 4]"}, {"f32[2, 6, 4, 6]"}, packed},
     2,
     {{"scale", 0.35}, {"window", int64_t{2}}},
     {"b", "g", "r"}},
    {"PackedAttentionWithSinks",
     "plait.PackedAttention",
     {{"f32[2, 6, 8, 4]"},
      {"f32[2, 6, 4, 4]"},
      {"f32[2, 6, 4, 6]"},
      packed,
      {"f32[8]"},
      {"f32[8]", "0.5 0.25 0.1"}},
     2,
     {{"scale", 0.35}, {"softcap", 2.0}},
     {"b", "g", "r"}},
    {"CausalConv",
     "plait.CausalConv",
     {{"f32[4, 3, 8]"}, {"f32[2, 6, 8]"}, {"f32[4, 8]"}, segments, {"i32[2, 2]", "0 1 -1 2"}, {"f32[8]"}},
     2,
     {},
     {"c"}},
    {"LinearAttention",
     "plait.LinearAttention",
     {{"f32[4, 4, 8, 8]"},
      {"f32[2, 6, 64]"},
      {"f32[2, 6, 32]"},
      {"f32[2, 6, 32]"},
      segments,
      {"i32[2, 2]", "0 1 -1 2"},
      {"f32[2, 6, 4]", "-0.1 -0.5 -0.3"},
      {"f32[2, 6, 4]", "0.5 0.2"}},
     2,
     {{"kv_num_heads", int64_t{4}}, {"q_num_heads", int64_t{8}}},
     {"g", "r"}},
    {"LinearAttentionOfFewQueries",
     "plait.LinearAttention",
     {{"f32[4, 8, 8, 8]"},
      {"f32[2, 6, 32]"},
      {"f32[2, 6, 32]"},
      {"f32[2, 6, 64]"},
      segments,
      {"i32[2, 2]", "0 1 -1 2"},
      {"f32[2, 6, 8]", "-0.1 -0.5 -0.3"},
      {"f32[2, 6, 8]", "0.5 0.2"}},
     2,
     {{"kv_num_heads", int64_t{8}}, {"q_num_heads", int64_t{4}}},
     {"g", "r"}},
};

}  // namespace

Made make(const Instance& instance) {
  Made out;
  std::mt19937 random(11);
  out.node.op = instance.op;
  ValueId next = 0;
  for (const Operand& operand : instance.operands) {
    out.operands.push_back(tensor_of(operand, random));
    out.node.inputs.push_back(out.operands.back().present() ? next++ : no_value);
  }
  for (int k = 0; k < instance.outputs; ++k) out.node.outputs.push_back(next++);
  for (const auto& [name, value] : instance.attributes) out.node.attributes.set(name, value);
  return out;
}

const std::vector<Instance>& plait_instances() { return instances; }

}  // namespace plait::test
