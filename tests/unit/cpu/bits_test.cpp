// Which results have the same bits on all instruction sets: the table of docs/dev/generation.md, "Bits on other processors".
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test::bits {  // apart from the other files of a unity build
namespace {

struct Case {
  std::string name, op;
  Attributes attributes;
  std::vector<Tensor> inputs;
  std::vector<OutputType> outputs;
};

const Shape wide{7, 515}, flat{3001}, image{2, 8, 17, 41};  // no multiples of a vector

Tensor floats(const Shape& shape, uint64_t seed, double low = -2, double high = 2) {
  return random_tensor(DType::f32, shape, seed, low, high);
}
Tensor codes(DType dtype, const Shape& shape, uint64_t seed) {
  const double low = dtype == DType::u8 ? 0 : -128;
  return random_tensor(dtype, shape, seed, low, low + 256);
}
Tensor number(double value) { return tensor(DType::f32, {}, {value}); }
OutputType f32(const Shape& shape) { return {DType::f32, shape}; }
Attributes windows(const char* name, int64_t size) { return attributes({{name, std::vector<int64_t>{size, size, size, size}}}); }

/// Moves, comparisons, conversions and single operations of IEEE 754.
std::vector<Case> single_operations() {
  std::vector<Case> out;
  for (const char* op : {"Abs", "Neg", "Relu", "Reciprocal"}) out.push_back({op, op, {}, {floats(wide, 1)}, {f32(wide)}});
  out.push_back({"Sqrt", "Sqrt", {}, {floats(wide, 1, 0)}, {f32(wide)}});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"})
    out.push_back({op, op, {}, {floats(wide, 1), floats(wide, 2, 0.1)}, {f32(wide)}});
  for (const char* op : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    out.push_back({op, op, {}, {floats(wide, 1), floats(wide, 2)}, {{DType::boolean, wide}}});
  out.push_back({"Clip", "Clip", {}, {floats(wide, 1), number(-1), number(1)}, {f32(wide)}});
  for (const auto& [to, onnx] : {std::pair(DType::bf16, int64_t{16}), {DType::f16, int64_t{10}}}) {
    out.push_back({cat("Cast to ", dtype_name(to)), "Cast", attributes({{"to", onnx}}), {floats(wide, 1)}, {{to, wide}}});
    out.push_back({cat("Cast from ", dtype_name(to)), "Cast", attributes({{"to", int64_t{1}}}), {random_tensor(to, wide, 1)},
                   {f32(wide)}});
  }
  out.push_back({"Cast from i32", "Cast", attributes({{"to", int64_t{1}}}), {random_tensor(DType::i32, wide, 1, -1e9, 1e9)},
                 {f32(wide)}});
  out.push_back({"Transpose", "Transpose", attributes({{"perm", std::vector<int64_t>{1, 0}}}), {floats(wide, 1)},
                 {f32({515, 7})}});
  out.push_back({"GatherRows", "plait.GatherRows", {}, {floats({2, 5, 37}, 1), tensor(DType::i64, {2, 2}, {4, 0, 2, 2})},
                 {f32({2, 2, 37})}});
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    out.push_back({cat("Embedding of ", dtype_name(dtype)), "plait.Embedding", attributes({{"to", int64_t{1}}}),
                   {random_tensor(dtype, {11, 37}, 1), tensor(DType::i32, {1, 4}, {0, 10, 3, 3})}, {f32({1, 4, 37})}});
  out.push_back({"MaxPool", "MaxPool", attributes({{"kernel_shape", std::vector<int64_t>{3, 3}}}), {floats(image, 1)},
                 {f32({2, 8, 15, 39}), {}}});
  out.push_back({"GlobalMaxPool", "GlobalMaxPool", {}, {floats(image, 1)}, {f32({2, 8, 1, 1})}});
  out.push_back({"Accumulate", "plait.Accumulate", {}, {floats(flat, 1), floats(flat, 2)}, {f32(flat)}});
  return out;
}

/// Codes, whose products and sums are integers.
std::vector<Case> integers() {
  std::vector<Case> out;
  for (DType dtype : {DType::u8, DType::i8}) {
    const std::string of = cat(" of ", dtype_name(dtype));
    const Tensor zero = codes(dtype, {}, 4), a = codes(dtype, wide, 1), b = codes(DType::i8, {515, 67}, 2),
                 b_zero = codes(DType::i8, {}, 3), x = codes(dtype, image, 1), w = codes(DType::i8, {20, 8, 3, 3}, 2);
    const Attributes pads = windows("pads", 1);
    out.push_back({"QuantizeLinear" + of, "QuantizeLinear", {}, {floats(wide, 1), number(0.0371), zero}, {{dtype, wide}}});
    out.push_back({"DequantizeLinear" + of, "DequantizeLinear", {}, {a, number(0.0371), zero}, {f32(wide)}});
    out.push_back({"MatMulInteger" + of, "MatMulInteger", {}, {a, b, zero, b_zero}, {{DType::i32, {7, 67}}}});
    out.push_back({"QLinearMatMul" + of, "QLinearMatMul", {},
                   {a, number(0.01), zero, b, number(0.02), b_zero, number(0.3), zero}, {{dtype, {7, 67}}}});
    out.push_back({"ConvInteger" + of, "ConvInteger", pads, {x, w, zero}, {{DType::i32, {2, 20, 17, 41}}}});
    out.push_back({"QLinearConv" + of, "QLinearConv", pads,
                   {x, number(0.01), zero, w, number(0.02), b_zero, number(0.3), zero}, {{dtype, {2, 20, 17, 41}}}});
  }
  out.push_back({"DynamicQuantizeLinear", "DynamicQuantizeLinear", {}, {floats(wide, 1)},
                 {{DType::u8, wide}, f32({}), {DType::u8, {}}}});
  return out;
}

/// An element of the result is computed in one lane.
std::vector<Case> lanes() {
  std::vector<Case> out;
  for (const char* op : {"Exp", "Erf", "Sigmoid", "Tanh", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Swish"})
    out.push_back({op, op, {}, {floats(wide, 1, -6, 6)}, {f32(wide)}});
  out.push_back({"Gelu by tanh", "Gelu", attributes({{"approximate", std::string("tanh")}}), {floats(wide, 1)}, {f32(wide)}});
  for (const char* function : {"Tanh", "Sigmoid", "Softplus", "Erf", "Swish", "Gelu"})
    out.push_back({cat("UnaryBack of ", function), "plait.UnaryBack",
                   attributes({{"function", std::string(function)}, {"approximate", std::string("none")}}),
                   {floats(flat, 1), floats(flat, 2)}, {f32(flat)}});
  for (int64_t interleaved : {0, 1})
    out.push_back({cat("RoPE ", interleaved), "plait.RoPE", attributes({{"interleaved", interleaved}}),
                   {floats({2, 3, 4, 69}, 1), floats({2, 3, 32}, 2), floats({2, 3, 32}, 3)}, {f32({2, 3, 4, 69})}});
  out.push_back({"AdamW", "plait.AdamW", attributes({{"beta2", 0.95}, {"epsilon", 1e-6}, {"decay", 0.1}}),
                 {floats(flat, 1), floats(flat, 2), floats(flat, 3, 0), floats(flat, 4), number(0.3), number(1e-3), number(0.2),
                  number(0.01)},
                 {f32(flat), f32(flat), f32(flat), f32(flat)}});
  out.push_back({"SGD", "plait.SGD", attributes({{"momentum", 0.9}, {"decay", 0.1}}),
                 {floats(flat, 1), floats(flat, 2), floats(flat, 4), number(0.3), number(0.01)}, {f32(flat), f32(flat), f32(flat)}});
  return out;
}

/// So is a sum: its terms are added one after another.
std::vector<Case> sums_in_lanes() {
  std::vector<Case> out;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceSumSquare"})
    out.push_back({cat(op, " of columns"), op, {}, {floats(wide, 1), tensor(DType::i64, {1}, {0})}, {f32({1, 515})}});
  for (int64_t m : {1, 7, 150})
    out.push_back({cat("MatMul of ", m), "MatMul", {}, {floats({m, 515}, 1), floats({515, 167}, 2)}, {f32({m, 167})}});
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t t : {1, 60})
      out.push_back({cat("Linear of many_rows, ", dtype_name(dtype), ", ", t), "plait.Linear",
                     attributes({{"many_rows", int64_t{1}}}), {floats({t, 515}, 1), random_tensor(dtype, {67, 515}, 2)},
                     {f32({t, 67})}});
  out.push_back({"LinearWeight", "plait.LinearWeight", {}, {floats({150, 67}, 1), floats({150, 515}, 2)}, {f32({67, 515})}});
  out.push_back({"LinearBack", "plait.LinearBack", {}, {floats({150, 67}, 1), floats({67, 515}, 2)}, {f32({150, 515})}});
  out.push_back({"Conv", "Conv", windows("pads", 1), {floats(image, 1), floats({20, 8, 3, 3}, 2)}, {f32({2, 20, 17, 41})}});
  Attributes depthwise = windows("pads", 1);
  depthwise.set("group", int64_t{8});
  out.push_back({"Conv, depthwise", "Conv", depthwise, {floats(image, 1), floats({8, 1, 3, 3}, 2)}, {f32(image)}});
  out.push_back({"ConvTranspose", "ConvTranspose", {}, {floats(image, 1), floats({8, 20, 3, 3}, 2)}, {f32({2, 20, 19, 43})}});
  out.push_back({"AveragePool", "AveragePool", attributes({{"kernel_shape", std::vector<int64_t>{3, 3}}}), {floats(image, 1)},
                 {f32({2, 8, 15, 39})}});
  out.push_back({"BatchNormalization", "BatchNormalization", {},
                 {floats(image, 1), floats({8}, 2), floats({8}, 3), floats({8}, 4), floats({8}, 5, 0.1)}, {f32(image), {}, {}}});
  return out;
}

std::vector<Tensor> result(const Case& one, const std::string& isa) {
  return run_op(kernels(), one.op, one.attributes, one.inputs, one.outputs, 2, nullptr, isa);
}

/// On each instruction set that has a kernel for the case: the same, and as `expected` if that is given.
void expect_same(const std::vector<Case>& cases, bool as_reference) {
  for (const Case& one : cases) {
    std::vector<Tensor> expected;
    if (as_reference) expected = result(one, "reference");
    int count = 0;
    for (const std::string& isa : isas()) {
      SCOPED_TRACE(cat(one.name, " on ", isa));
      std::vector<Tensor> got;
      try {
        got = result(one, isa);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::not_found) << error.message();
        continue;
      }
      ++count;
      if (expected.empty()) expected = got;
      for (size_t i = 0; i < got.size(); ++i)
        if (got[i].present()) expect_equal_bits(got[i], expected[i]);
    }
    EXPECT_GE(count, static_cast<int>(whole_isas().size())) << one.name;
  }
}

TEST(Bits, OfSingleOperationsAreTheReferences) { expect_same(single_operations(), true); }
TEST(Bits, OfIntegersAreTheReferences) { expect_same(integers(), true); }
TEST(Bits, OfLanesAreTheSameOnAllInstructionSets) { expect_same(lanes(), false); }
TEST(Bits, OfSumsInLanesAreTheSameOnAllInstructionSets) { expect_same(sums_in_lanes(), false); }

}  // namespace
}  // namespace plait::test::bits
