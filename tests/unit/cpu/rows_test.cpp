// Norms, softmax, RoPE, embedding, row gathering and elementwise ops against the reference.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

const int64_t lengths[] = {1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130, 640};

TEST(CpuRows, NormsEqualReference) {
  for (int64_t n : lengths)
    for (int64_t rows : {1, 3, 300}) {
      SCOPED_TRACE(cat("n ", n, " rows ", rows));
      Tensor x = random_tensor(DType::f32, {rows, n}, 1, -3, 4);
      for (DType dtype : {DType::f32, DType::bf16}) {
        Tensor scale = random_tensor(dtype, {n}, 2), bias = random_tensor(dtype, {n}, 3);
        Attributes epsilon = attributes({{"epsilon", 1e-3}});
        expect_reference("RMSNormalization", epsilon, {x, scale}, {{DType::f32, {rows, n}}}, 1e-5, 2e-6, 2);
        expect_reference("LayerNormalization", epsilon, {x, scale, bias},
                         {{DType::f32, {rows, n}}, {DType::f32, {rows, 1}}, {DType::f32, {rows, 1}}}, 1e-5, 1e-5, 2);
      }
    }
}

TEST(CpuRows, SoftmaxEqualsReference) {
  for (int64_t n : lengths) {
    Tensor x = random_tensor(DType::f32, {5, n}, 4, -20, 20);
    if (n > 3) x.as<float>()[1] = -INFINITY;
    // x - max is rounded: up to 2e-6 of 40, which is the relative error of its exponential.
    expect_reference("Softmax", {}, {x}, {{DType::f32, {5, n}}}, 4e-6, 1e-30);
  }
}

TEST(CpuRows, ARowHasTheSameBitsInAnyBatch) {
  for (const std::string& isa : whole_isas()) {
    Tensor x = random_tensor(DType::f32, {400, 77}, 5), scale = random_tensor(DType::f32, {77}, 6);
    for (std::string_view op : {"RMSNormalization", "LayerNormalization", "Softmax", "Gelu", "Tanh"}) {
      auto run = [&](const Tensor& part, int threads) {
        std::vector<Tensor> inputs(op.find("Norm") != op.npos ? 2 : 1, scale);
        inputs[0] = part;
        return run_op(kernels(), op, {}, inputs, {{DType::f32, part.shape()}}, threads, nullptr, isa)[0];
      };
      Tensor whole = run(x, 2);
      for (int64_t i : {0, 1, 57, 399}) expect_equal_bits(rows(whole, i, i + 1), run(rows(x, i, i + 1), 1));
    }
  }
}

TEST(CpuRows, RopeEqualsReference) {
  for (int64_t z : {1, 4, 8, 15, 16, 40})
    for (int64_t rest : {0, 5})
      for (int64_t interleaved : {0, 1}) {
        SCOPED_TRACE(cat("z ", z, " rest ", rest, " interleaved ", interleaved));
        Tensor x = random_tensor(DType::f32, {2, 3, 4, 2 * z + rest}, 7);
        Tensor cos = random_tensor(DType::f32, {2, 3, z}, 8), sin = random_tensor(DType::f32, {2, 3, z}, 9);
        expect_reference("plait.RoPE", attributes({{"interleaved", interleaved}}), {x, cos, sin},
                         {{DType::f32, x.shape()}}, 1e-6, 1e-6);
      }
}

TEST(CpuRows, EmbeddingAndGatherEqualReference) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t h : {1, 17, 64}) {
      Tensor table = shifted(random_tensor(dtype, {11, h}, 10), 2);
      expect_reference("plait.Embedding", attributes({{"to", int64_t{1}}}),
                       {table, tensor(DType::i32, {1, 4}, {0, 10, 3, 3})}, {{DType::f32, {1, 4, h}}}, 0, 0);
      expect_reference("plait.GatherRows", {},
                       {random_tensor(dtype, {2, 5, h}, 11), tensor(DType::i64, {2, 2}, {4, 0, 2, 2})},
                       {{dtype, {2, 2, h}}}, 0, 0);
    }
  for (const std::string& isa : whole_isas()) {
    KernelStatus status;
    run_op(kernels(), "plait.Embedding", attributes({{"to", int64_t{1}}}),
           {Tensor(DType::f32, {3, 4}), tensor(DType::i64, {2}, {1, 3})}, {{DType::f32, {2, 4}}}, 1, &status, isa);
    EXPECT_EQ(status.code, KernelCode::index_out_of_range);
    EXPECT_EQ(status.value, 3);
  }
}

/// x and y within a few units in the last place of f32, relative to the reference in f64.
TEST(CpuElementwise, UnaryFunctionsAreAccurate) {
  struct Function {
    const char* op;
    double low, high;
    Attributes attributes;
  };
  const Function functions[] = {
      {"Exp", -110, 90, {}},      {"Tanh", -12, 12, {}},
      {"Sigmoid", -100, 100, {}}, {"Erf", -5, 5, {}},
      {"Gelu", -13, 13, {}},      {"Gelu", -9, 20, attributes({{"approximate", std::string("tanh")}})},
      {"Swish", -80, 90, {}},     {"Relu", -2, 2, {}},
      {"Sqrt", 0, 50, {}},        {"Neg", -2, 2, {}}};
  for (const Function& f : functions) {
    SCOPED_TRACE(f.op);
    Tensor wide = random_tensor(DType::f32, {20000}, 12, f.low, f.high),
           near = random_tensor(DType::f32, {5000}, 13, 0, 1);
    // 4 ulp, but for Gelu's tail below -5: there the rounding of an exponential's argument counts by its size, and
    // the reference's 1 + erf(x) cancels.
    const bool tail = std::string_view(f.op) == "Gelu";
    for (const Tensor& x : {wide, near})
      expect_reference(f.op, f.attributes, {x}, {{DType::f32, x.shape()}}, tail ? 5e-6 : 5e-7, tail ? 1e-15 : 2e-38,
                       2);
  }
}

TEST(CpuElementwise, UnaryFunctionsKnowTheEdges) {
  const double inf = INFINITY;
  Tensor x = tensor(DType::f32, {12}, {inf, -inf, NAN, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 88.7, -87.5, 1e-7});
  for (const char* op : {"Exp", "Tanh", "Sigmoid", "Erf", "Relu", "Neg"}) {
    SCOPED_TRACE(op);
    expect_reference(op, {}, {x}, {{DType::f32, {12}}}, 1e-6, 1e-37);
  }
  Tensor finite = tensor(DType::f32, {8}, {NAN, 0.0, -0.0, 1e-40, 3e30, -3e30, 20, -20});
  for (const char* op : {"Gelu", "Swish"}) {
    SCOPED_TRACE(op);
    expect_reference(op, {}, {finite}, {{DType::f32, {8}}}, 1e-6, 1e-7);
  }
}

TEST(CpuElementwise, BinaryOpsBroadcast) {
  const std::pair<Shape, Shape> shapes[] = {{{3, 5}, {3, 5}},
                                            {{40, 65}, {65}},
                                            {{65}, {40, 65}},
                                            {{4, 17}, {1}},
                                            {{}, {4, 17}},
                                            {{4, 17}, {4, 1}},
                                            {{4, 1}, {1, 17}},
                                            {{2, 3, 4, 5}, {3, 1, 5}},
                                            {{2, 1, 4, 1}, {1, 3, 1, 5}},
                                            {{0, 5}, {5}},
                                            {{}, {}},
                                            {{300, 700}, {700}}};
  for (const auto& [a, b] : shapes) {
    Shape y;
    for (int i = std::max(a.rank(), b.rank()); i > 0; --i) {
      int64_t in_a = i <= a.rank() ? a.back(i) : 1, in_b = i <= b.rank() ? b.back(i) : 1;
      y.push_back(in_a == 1 ? in_b : in_a);
    }
    for (const char* op : {"Add", "Sub", "Mul", "Div"}) {
      SCOPED_TRACE(cat(op, " ", a.text(), " ", b.text()));
      expect_reference(op, {}, {random_tensor(DType::f32, a, 14), random_tensor(DType::f32, b, 15, 0.5, 2)},
                       {{DType::f32, y}}, 1e-7, 0, 2);
    }
  }
}

TEST(CpuElementwise, IntegersAndBoolsBecomeFloats) {
  for (DType from : {DType::boolean, DType::u8, DType::i8, DType::i32, DType::i64}) {
    SCOPED_TRACE(dtype_name(from));
    const double most = from == DType::boolean ? 2 : from == DType::i8 ? 127 : from == DType::u8 ? 255 : 2e9;
    Tensor x = random_tensor(from, {4099}, 1, from == DType::boolean || from == DType::u8 ? 0 : -most, most);
    if (from == DType::i64)  // between two floats: 2^60 + 2^36 is halfway, and one more is above
      for (int64_t i : {0, 1, 2}) x.as<int64_t>()[i] = (int64_t{1} << 60) + (int64_t{1} << 36) + i - 1;
    expect_reference("Cast", attributes({{"to", static_cast<int64_t>(DType::f32)}}), {x}, {{DType::f32, {4099}}}, 0, 0, 2);
  }
}

TEST(CpuElementwise, CastsRoundToNearestEven) {
  Tensor x = random_tensor(DType::f32, {4099}, 16, -70000, 70000);
  const uint32_t edges[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F808000,
                            0x3F818000, 0x3F807FFF, 1,          0x80000001, 0x7F7FFFFF};
  std::memcpy(x.data(), edges, sizeof edges);
  for (DType from : {DType::f32, DType::bf16, DType::f16})
    for (DType to : {DType::f32, DType::bf16, DType::f16}) {
      if (from == to) continue;
      SCOPED_TRACE(cat(dtype_name(from), " to ", dtype_name(to)));
      Tensor source = run_op(kernels(), "Cast", attributes({{"to", static_cast<int64_t>(from)}}), {x},
                             {{from, {4099}}}, 1, nullptr, "reference")[0];
      expect_reference("Cast", attributes({{"to", static_cast<int64_t>(to)}}), {source}, {{to, {4099}}}, 0, 0);
    }
}

/// Runs, scalars on either side, and rows and columns that broadcast; numbers that are equal, and NaN.
TEST(CpuComparisons, EqualReference) {
  const std::pair<Shape, Shape> shapes[] = {{{3, 700}, {3, 700}}, {{5, 1, 33}, {4, 33}}, {{2000}, {}},  {{}, {77}},
                                            {{6, 1}, {6, 129}},   {{2, 3, 1}, {1, 5}},   {{0, 4}, {4}}, {{1}, {1}}};
  for (const auto& [a, b] : shapes) {
    Shape y;
    for (int i = std::max(a.rank(), b.rank()); i > 0; --i) {
      const int64_t in_a = i <= a.rank() ? a.back(i) : 1, in_b = i <= b.rank() ? b.back(i) : 1;
      y.push_back(in_a == 1 ? in_b : in_a);
    }
    for (const DType dtype : {DType::f32, DType::i32, DType::i64})
      for (const char* op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) {
        SCOPED_TRACE(cat(op, " ", dtype_name(dtype), " ", a.text(), " ", b.text()));
        Tensor left = random_tensor(DType::i32, a, 1, -3, 4), right = random_tensor(DType::i32, b, 2, -3, 4);
        Tensor x(dtype, a), z(dtype, b);
        for (int64_t i = 0; i < x.elements(); ++i) set_element(x, i, element(left, i));
        for (int64_t i = 0; i < z.elements(); ++i) set_element(z, i, element(right, i));
        if (dtype == DType::f32 && x.elements() > 1) set_element(x, 1, NAN);
        expect_reference(op, {}, {x, z}, {{DType::boolean, y}}, 0, 0, 3);
      }
    for (const char* op : {"And", "Or"})
      expect_reference(op, {}, {random_tensor(DType::boolean, a, 3, 0, 2), random_tensor(DType::boolean, b, 4, 0, 2)},
                       {{DType::boolean, y}}, 0, 0, 3);
  }
}

}  // namespace
}  // namespace plait::test
