// ONNX's Attention on whole arrays: against the reference, in every form of its operands, and a query's bits in any company.
#include <cmath>

#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct ArrayCase {
  int64_t b = 2, heads = 4, groups = 2, s = 70, t = 70, d = 20, e = 24, past = 0;
  Attributes how;
  Shape mask;  ///< of rank 0: none
  DType masked = DType::f32;
  std::vector<int64_t> lengths;
  int outputs = 1;
  bool flat = false;
};

/// Some numbers, and -infinity for about a third of the keys; bool: these are false.
Tensor mask_of(const ArrayCase& c) {
  Tensor noise = random_tensor(DType::f32, c.mask, 7);
  Tensor out(c.masked, c.mask);
  for (int64_t i = 0; i < noise.elements(); ++i) {
    const float x = noise.as<float>()[i];
    if (c.masked == DType::boolean) reinterpret_cast<uint8_t*>(out.data())[i] = x > -0.4f;
    else reinterpret_cast<float*>(out.data())[i] = x > -0.4f ? x : -HUGE_VALF;
  }
  return out;
}

struct ArrayProblem {
  explicit ArrayProblem(const ArrayCase& c) : how(c.how) {
    const auto shape = [&](int64_t heads, int64_t length, int64_t size) {
      return c.flat ? Shape{c.b, length, heads * size} : Shape{c.b, heads, length, size};
    };
    inputs = {random_tensor(DType::f32, shape(c.heads, c.s, c.d), 1),
              random_tensor(DType::f32, shape(c.groups, c.t, c.d), 2),
              random_tensor(DType::f32, shape(c.groups, c.t, c.e), 3),
              Tensor(),
              Tensor(),
              Tensor(),
              Tensor()};
    if (c.mask.rank()) inputs[3] = mask_of(c);
    if (c.past) {
      inputs[4] = random_tensor(DType::f32, {c.b, c.groups, c.past, c.d}, 4);
      inputs[5] = random_tensor(DType::f32, {c.b, c.groups, c.past, c.e}, 5);
    }
    if (!c.lengths.empty()) inputs[6] = Tensor::of_ints(c.lengths);
    if (c.flat) how.set("q_num_heads", c.heads), how.set("kv_num_heads", c.groups);
    const int64_t n = c.past + c.t;
    outputs = {{DType::f32, shape(c.heads, c.s, c.e)},
               {DType::f32, {c.b, c.groups, n, c.d}},
               {DType::f32, {c.b, c.groups, n, c.e}},
               {DType::f32, {c.b, c.heads, c.s, n}}};
    outputs.resize(static_cast<size_t>(c.outputs));
  }
  Attributes how;
  std::vector<Tensor> inputs;
  std::vector<OutputType> outputs;
};

TEST(CpuArrayAttention, EqualsReference) {
  std::vector<ArrayCase> cases = {
      {},
      {.s = 1, .t = 200},
      {.s = 130, .t = 65, .flat = true},
      {.heads = 6, .groups = 1, .s = 3, .t = 9, .how = attributes({{"scale", 0.7}, {"softcap", 1.5}}), .flat = true},
      {.how = attributes({{"is_causal", int64_t{1}}})},
      {.s = 33, .t = 33, .past = 50, .how = attributes({{"is_causal", int64_t{1}}}), .outputs = 3},
      {.s = 33, .t = 33, .past = 50, .how = attributes({{"is_causal", int64_t{1}}}), .flat = true},
      {.s = 150, .t = 150, .how = attributes({{"left_window_size", int64_t{20}}, {"right_window_size", int64_t{3}}})},
      {.how = attributes({{"left_window_size", INT64_MAX}, {"right_window_size", INT64_MAX}})},
      {.mask = {70, 70}},
      {.mask = {2, 1, 70, 70}, .masked = DType::boolean},
      {.mask = {2, 1, 1, 70}},
      {.mask = {4, 70, 66}},  // later keys are masked
      {.mask = {1, 4, 1, 70}, .masked = DType::boolean, .outputs = 3},
      {.s = 5, .t = 80, .lengths = {80, 3}},
      {.s = 5, .t = 80, .how = attributes({{"is_causal", int64_t{1}}}), .lengths = {7, 2}},
      {.s = 5, .t = 80, .lengths = {0, 90}},
      {.s = 0},
      {.t = 0},
      {.d = 0},
      {.e = 0},
  };
  for (int64_t mode = 0; mode < 4; ++mode)
    cases.push_back(
        {.s = 5,
         .past = 9,
         .how = attributes({{"qk_matmul_output_mode", mode}, {"softcap", 2.0}, {"is_causal", int64_t{1}}}),
         .mask = {5, 79},
         .outputs = 4});
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cat("case ", i));
    const ArrayProblem problem(cases[i]);
    expect_reference("Attention", problem.how, problem.inputs, problem.outputs, 2e-5, 1e-5, 2);
  }
}

TEST(CpuArrayAttention, AQueryHasTheSameBitsInAnyCompany) {
  const ArrayProblem all({.b = 1, .s = 150, .t = 150, .how = attributes({{"softcap", 3.0}}), .flat = true});
  for (const std::string& isa : whole_isas()) {
    const Tensor together = run_op(kernels(), "Attention", all.how, all.inputs, all.outputs, 3, nullptr, isa)[0];
    for (int64_t i : {0, 63, 64, 149}) {
      std::vector<Tensor> inputs = all.inputs;
      const Shape row{1, 1, all.inputs[0].shape()[2]};
      inputs[0] = rows(all.inputs[0].reshaped({150, row[2]}), i, i + 1).reshaped(row);
      const Shape out{1, 1, together.shape()[2]};
      const Tensor own = run_op(kernels(), "Attention", all.how, inputs, {{DType::f32, out}}, 1, nullptr, isa)[0];
      expect_equal_bits(own, rows(together.reshaped({150, out[2]}), i, i + 1).reshaped(out));
    }
  }
}

TEST(CpuArrayAttention, WhatIsMaskedMayBeNaN) {
  ArrayProblem problem({.b = 1, .s = 7, .t = 9, .lengths = {6}});
  for (size_t slot : {size_t{1}, size_t{2}}) {
    auto* data = reinterpret_cast<float*>(problem.inputs[slot].data());
    const Shape& shape = problem.inputs[slot].shape();
    for (int64_t g = 0; g < shape[1]; ++g)
      for (int64_t j = 6; j < 9; ++j) data[(g * shape[2] + j) * shape[3]] = slot == 1 ? NAN : INFINITY;
  }
  for (const std::string& isa : whole_isas()) {
    const Tensor y = run_op(kernels(), "Attention", problem.how, problem.inputs, problem.outputs, 1, nullptr, isa)[0];
    EXPECT_TRUE(std::all_of(y.as<float>(), y.as<float>() + y.elements(), [](float x) { return std::isfinite(x); }))
        << isa;
  }
  expect_reference("Attention", problem.how, problem.inputs, problem.outputs, 2e-5, 1e-5);
}

}  // namespace
}  // namespace plait::test
