// The kernels of training against the reference: gradients of Linear, heads with their loss, packed attention.
#include <cmath>

#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

TEST(CpuTraining, LinearsAndTheirGradientsEqualTheReference) {
  for (int64_t t : {0, 1, 9, 70, 300})
    for (int64_t n : {1, 17, 96})
      for (int64_t k : {1, 33, 80}) {
        SCOPED_TRACE(cat("t ", t, " n ", n, " k ", k));
        const Tensor dy = random_tensor(DType::f32, {2, t, n}, 1), x = random_tensor(DType::f32, {2, t, k}, 2);
        const Tensor w = random_tensor(DType::f32, {n, k}, 3);
        expect_reference("plait.Linear", attributes({{"many_rows", int64_t{1}}}), {x, w}, {{DType::f32, {2, t, n}}},
                         1e-5, 1e-5, 2);
        expect_reference("plait.LinearBack", {}, {dy, w}, {{DType::f32, {2, t, k}}}, 1e-5, 1e-5, 2);
        expect_reference("plait.LinearWeight", {}, {dy, x}, {{DType::f32, {n, k}}}, 1e-5, 3e-5, 2);
      }
}

/// A product with its sum has the bits of both nodes, in sequence.
TEST(CpuTraining, SumsOfProductsHaveTheBitsOfBothNodes) {
  for (int64_t t : {0, 1, 70, 300})
    for (int64_t n : {1, 17, 200})
      for (int64_t k : {1, 33, 2500})
        for (const int64_t rounds : {0, 1})
          for (const int64_t back : {0, 1}) {
            SCOPED_TRACE(cat("t ", t, " n ", n, " k ", k, " round_x ", rounds, " back ", back));
            const Tensor sum = random_tensor(DType::f32, {2, t, n}, 1), x = random_tensor(DType::f32, {2, t, k}, 2);
            const Tensor w = random_tensor(DType::f32, back ? Shape{k, n} : Shape{n, k}, 3);
            const OutputType type{DType::f32, {2, t, n}};
            for (const std::string& isa : rounds ? isas() : whole_isas()) {
              const Attributes of_product = attributes({{"round_x", rounds}}),
                               of_both = attributes({{"round_x", rounds}, {"back", back}}),
                               many_rows = attributes({{"round_x", rounds}, {"many_rows", int64_t{1}}});
              const Tensor product =
                  back ? run_op(kernels(), "plait.LinearBack", of_product, {x, w}, {type}, 2, nullptr, isa)[0]
                       : run_op(kernels(), "plait.Linear", many_rows, {x, w}, {type}, 2, nullptr, isa)[0];
              expect_equal_bits(
                  run_op(kernels(), "plait.AddLinear", of_both, {sum, x, w}, {type}, 2, nullptr, isa)[0],
                  run_op(kernels(), "Add", {}, {sum, product}, {type}, 2, nullptr, "avx2")[0]);
            }
          }
}

struct HeadCase {
  int64_t tokens, vocabulary, k, chunks = 1;
  double scale = 1, softcap = 0;
  DType dtype = DType::f32;
  int64_t offset = 0, whole = 0;  ///< in chunks: a part of a vocabulary
  bool biased = false;
};

std::vector<HeadCase> heads() {
  std::vector<HeadCase> out = {{1, 40, 8},
                               {7, 300, 33, 3},
                               {40, 1030, 20, 1, 0.5, 5},
                               {300, 600, 24, 2, 1, 30, DType::bf16},
                               {13, 512, 16, 2, 1, 0, DType::f16},
                               {33, 2300, 40, 1, 1, 0, DType::bf16},
                               {20, 256, 16, 2, 1, 0, DType::f32, 2, 6},
                               {0, 40, 8}};
  for (size_t i = 0, plain = out.size(); i < plain; ++i) {
    out.push_back(out[i]);
    out.back().biased = true;
  }
  return out;
}

/// A bias that counts next to products, or nothing.
Tensor bias_of(const HeadCase& c) { return c.biased ? random_tensor(DType::f32, {c.vocabulary}, 5) : Tensor(); }

Attributes attributes_of(const HeadCase& c) {
  return attributes(
      {{"chunks", c.chunks}, {"scale", c.scale}, {"softcap", c.softcap}, {"offset", c.offset}, {"whole", c.whole}});
}

TEST(CpuTraining, HeadsAndTheirGradientsEqualTheReference) {
  for (const HeadCase& c : heads()) {
    SCOPED_TRACE(cat(c.tokens, " tokens, vocabulary ", c.vocabulary, ", k ", c.k));
    const int64_t all = c.vocabulary * std::max<int64_t>(c.whole, c.chunks) / c.chunks;
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < c.tokens; ++i) labels.push_back(i % 5 == 3 ? -1 : static_cast<int32_t>(i * 7919 % all));
    const std::vector<Tensor> operands = {random_tensor(DType::f32, {1, c.tokens, c.k}, 1),
                                          random_tensor(c.dtype, {c.vocabulary, c.k}, 2),
                                          Tensor::of<int32_t>(DType::i32, {1, c.tokens}, labels), bias_of(c)};
    const Shape row{1, c.tokens}, chunks{1, c.tokens, c.chunks};
    expect_reference("plait.HeadStatistics", attributes_of(c), operands,
                     {{DType::f32, chunks}, {DType::f32, chunks}, {DType::f32, row}}, 2e-5, 2e-5, 2);
    const std::vector<Tensor> found =
        run_op(kernels(), "plait.HeadStatistics", attributes_of(c), operands,
               {{DType::f32, chunks}, {DType::f32, chunks}, {DType::f32, row}}, 1, nullptr, "reference");
    Tensor sums(DType::f32, row);
    for (int64_t i = 0; i < c.tokens; ++i) {
      double sum = 0;
      for (int64_t j = i * c.chunks; j < (i + 1) * c.chunks; ++j)
        sum += found[1].as<float>()[j] * std::exp(found[0].as<float>()[j]);
      sums.as<float>()[i] = static_cast<float>(std::log(sum));
    }
    std::vector<Tensor> back(operands.begin(), operands.begin() + 3);
    for (const Tensor& one : {sums, random_tensor(DType::f32, row, 4), bias_of(c)}) back.push_back(one);
    std::vector<OutputType> gradients = {{DType::f32, {1, c.tokens, c.k}}, {DType::f32, {c.vocabulary, c.k}}};
    if (c.biased) gradients.push_back({DType::f32, {c.vocabulary}});
    expect_reference("plait.HeadBack", attributes_of(c), back, gradients, 1e-4, 2e-5, 2);
  }
}

TEST(CpuTraining, HeadsWithTheirLossEqualTheReference) {
  for (HeadCase c : heads()) {
    if (c.whole) continue;
    SCOPED_TRACE(cat(c.tokens, " tokens, vocabulary ", c.vocabulary, ", k ", c.k));
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < c.tokens; ++i)
      labels.push_back(i % 5 == 3 ? -1 : static_cast<int32_t>(i * 7919 % c.vocabulary));
    const Shape row{1, c.tokens};
    Attributes attributes;
    attributes.set("scale", c.scale);
    attributes.set("softcap", c.softcap);
    const std::vector<Tensor> operands = {
        random_tensor(DType::f32, {1, c.tokens, c.k}, 1), random_tensor(c.dtype, {c.vocabulary, c.k}, 2),
        Tensor::of<int32_t>(DType::i32, row, labels), random_tensor(DType::f32, row, 4), bias_of(c)};
    const std::vector<OutputType> both = {{DType::f32, row}, {DType::f32, {1, c.tokens, c.k}}};
    const OutputType dw{DType::f32, {c.vocabulary, c.k}}, dbias{DType::f32, {c.vocabulary}}, none;
    std::vector<std::vector<OutputType>> trained = {{}, {dw}};
    if (c.biased) trained.insert(trained.end(), {{none, dbias}, {dw, dbias}});
    for (const std::vector<OutputType>& gradients : trained) {
      std::vector<OutputType> outputs = both;
      outputs.insert(outputs.end(), gradients.begin(), gradients.end());
      expect_reference("plait.HeadLoss", attributes, operands, outputs, 1e-4, 2e-5, 2);
      for (const std::string& isa : whole_isas()) {
        const auto of_one = run_op(kernels(), "plait.HeadLoss", attributes, operands, outputs, 1, nullptr, isa);
        const auto of_three = run_op(kernels(), "plait.HeadLoss", attributes, operands, outputs, 3, nullptr, isa);
        for (size_t i = 0; i < outputs.size(); ++i)
          if (of_one[i].present()) expect_equal_bits(of_one[i], of_three[i]);
      }
    }
  }
}

/// Heads of bf16, computed by products of bf16 numbers: within what rounding logits' changes costs.
TEST(CpuTraining, RoundedHeadsAndGradientsAreNearTheReference) {
  const int64_t t = 70, v = 1300, k = 64;
  Attributes rounds;
  rounds.set("round_x", int64_t{1});
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < t; ++i) labels.push_back(static_cast<int32_t>(i * 31 % v));
  const Tensor x = random_tensor(DType::f32, {1, t, k}, 1), dy = random_tensor(DType::f32, {1, t, v}, 3);
  expect_reference("plait.LinearWeight", rounds, {dy, x}, {{DType::f32, {v, k}}}, 2e-2, 1e-1, 2);
  for (DType dtype : {DType::bf16, DType::f32}) {  // frozen, or trained
    const Tensor w = random_tensor(dtype, {v, k}, 2);
    Attributes many_rows = rounds;
    many_rows.set("many_rows", int64_t{1});
    expect_reference("plait.Linear", many_rows, {x, w}, {{DType::f32, {1, t, v}}}, 2e-2, 5e-2, 2);
    expect_reference("plait.LinearBack", rounds, {dy, w}, {{DType::f32, {1, t, k}}}, 2e-2, 1e-1, 2);
    const Tensor bias = random_tensor(DType::f32, {v}, 5);
    for (bool trained : {true, false}) {
      std::vector<OutputType> outputs = {{DType::f32, {1, t}}, {DType::f32, {1, t, k}}};
      if (trained) outputs.insert(outputs.end(), {{DType::f32, {v, k}}, {DType::f32, {v}}});
      expect_reference(
          "plait.HeadLoss", rounds,
          {x, w, Tensor::of<int32_t>(DType::i32, {1, t}, labels), random_tensor(DType::f32, {1, t}, 4), bias},
          outputs, 2e-2, 5e-2, 2);
    }
  }
}

struct PackedCase {
  int64_t heads, groups, d, e;
  int64_t window = 0;
  double softcap = 0;
  bool sinks = false, slopes = false;
};

TEST(CpuTraining, PackedAttentionAndItsGradientEqualTheReference) {
  const PackedCase cases[] = {{2, 2, 8, 8},
                              {4, 2, 20, 24},
                              {4, 1, 16, 16, 9},
                              {6, 3, 12, 8, 0, 4},
                              {4, 2, 16, 16, 80, 3, true},
                              {5, 1, 24, 20, 0, 2, true, true}};
  // Two rows of segments of many lengths, some longer than a block of queries, with padding.
  std::vector<int32_t> segments;
  for (auto [segment, count] : {std::pair{0, 150}, {1, 1}, {2, 65}, {-1, 4}, {0, 30}, {1, 190}})
    segments.insert(segments.end(), static_cast<size_t>(count), segment);
  const int64_t t = static_cast<int64_t>(segments.size()) / 2;
  for (const PackedCase& c : cases) {
    SCOPED_TRACE(cat(c.heads, " heads, window ", c.window, ", softcap ", c.softcap));
    Attributes how = attributes({{"scale", 0.3}, {"window", c.window}, {"softcap", c.softcap}});
    const Tensor q = random_tensor(DType::f32, {2, t, c.heads, c.d}, 1),
                 k = random_tensor(DType::f32, {2, t, c.groups, c.d}, 2),
                 v = random_tensor(DType::f32, {2, t, c.groups, c.e}, 3),
                 dy = random_tensor(DType::f32, {2, t, c.heads, c.e}, 4),
                 table = Tensor::of<int32_t>(DType::i32, {2, t}, segments);
    const Tensor sinks = c.sinks ? random_tensor(DType::f32, {c.heads}, 5) : Tensor();
    const Tensor slopes = c.slopes ? random_tensor(DType::f32, {c.heads}, 6, 0, 0.1) : Tensor();
    const std::vector<OutputType> forward = {{DType::f32, {2, t, c.heads, c.e}}, {DType::f32, {2, t, c.heads}}};
    const std::vector<OutputType> back = {
        {DType::f32, q.shape()}, {DType::f32, k.shape()}, {DType::f32, v.shape()}, {DType::f32, {c.heads}}};
    expect_reference("plait.PackedAttention", how, {q, k, v, table, sinks, slopes}, forward, 2e-5, 1e-5, 2);
    const std::vector<Tensor> made = run_op(kernels(), "plait.PackedAttention", how, {q, k, v, table, sinks, slopes},
                                            forward, 1, nullptr, "reference");
    const std::vector<Tensor> operands = {dy, q, k, v, made[0], made[1], table, sinks, slopes};
    expect_reference("plait.PackedAttentionBack", how, operands, back, 1e-4, 1e-4, 2);
    for (const std::string& isa : isas()) {
      how.set("round_x", int64_t{1});
      const auto alone = run_op(kernels(), "plait.PackedAttentionBack", how, operands, back, 1, nullptr, isa),
                 shared = run_op(kernels(), "plait.PackedAttentionBack", how, operands, back, 3, nullptr, isa);
      for (size_t i = 0; i < back.size(); ++i) expect_equal_bits(shared[i], alone[i]);
    }
    // Operands of products rounded to bf16: sums of up to 190 terms of 2^-9.
    expect_reference("plait.PackedAttention", how, {q, k, v, table, sinks, slopes}, forward, 2e-2, 2e-2, 2);
    expect_reference("plait.PackedAttentionBack", how, operands, back, 3e-2, 2e-1, 2);
  }
}

TEST(CpuTraining, StepsOfOptimizersEqualTheReference) {
  for (int64_t n : {0, 1, 15, 16, 17, 1000, 70001}) {
    SCOPED_TRACE(n);
    const std::vector<OutputType> arrays(4, {DType::f32, {n}});
    const Tensor w = shifted(random_tensor(DType::f32, {n}, 1), 4), first = random_tensor(DType::f32, {n}, 2),
                 second = shifted(random_tensor(DType::f32, {n}, 3, 0, 1), 12),
                 gradient = random_tensor(DType::f32, {n}, 4);
    auto number = [](double value) { return tensor(DType::f32, {}, {value}); };
    expect_reference("plait.Accumulate", {}, {w, gradient}, {{DType::f32, {n}}}, 1e-7, 0, 2);
    for (double decay : {0.0, 0.1}) {
      expect_reference("plait.AdamW", attributes({{"beta2", 0.95}, {"epsilon", 1e-6}, {"decay", decay}}),
                       {w, first, second, gradient, number(0.3), number(1e-3), number(0.2), number(0.01)}, arrays,
                       4e-7, 2e-7, 2);
      expect_reference("plait.SGD", attributes({{"momentum", 0.9}, {"decay", decay}}),
                       {w, first, gradient, number(0.3), number(1e-2)}, {arrays.begin(), arrays.end() - 1}, 4e-7,
                       2e-7, 2);
    }
  }
}

TEST(CpuTraining, StepsOfAdafactorEqualTheReference) {
  for (const Shape& shape :
       {Shape{0}, Shape{1}, Shape{1000}, Shape{3, 1}, Shape{130, 17}, Shape{0, 4}, Shape{3, 70, 333}}) {
    SCOPED_TRACE(shape.text());
    const int rank = shape.rank();
    Shape row, column;
    for (int d = 0; d < rank; ++d) {
      if (d != rank - 1) row.push_back(shape[d]);
      if (d != rank - 2) column.push_back(shape[d]);
    }
    const Tensor w = shifted(random_tensor(DType::f32, shape, 1), 4), gradient = random_tensor(DType::f32, shape, 2),
                 rows = random_tensor(DType::f32, row, 3, 0.01, 1),
                 columns = random_tensor(DType::f32, column, 4, 0.01, 1);
    auto number = [](double value) { return tensor(DType::f32, {}, {value}); };
    const Attributes floor = attributes({{"floor", 1e-3}});
    expect_reference("plait.FactoredSquares", floor, {gradient, rows, columns, number(0.3)}, {{DType::f32, {}}}, 1e-5,
                     1e-6, 2);
    expect_reference("plait.FactoredStep", floor,
                     {w, gradient, rows, columns, number(0.3), number(1e-3), number(1e-2)},
                     {{DType::f32, shape}, {DType::f32, shape}}, 4e-7, 2e-7, 2);
  }
}

TEST(CpuTraining, GradientsOfNormsEqualTheReference) {
  for (int64_t n : {1, 7, 16, 33, 130, 640})
    for (int64_t rows : {0, 1, 3, 40, 700})
      for (int64_t scales : {int64_t{1}, n}) {
        SCOPED_TRACE(cat("n ", n, " rows ", rows, " scales ", scales));
        const Tensor x = shifted(random_tensor(DType::f32, {rows, n}, 1, -3, 4), 4),
                     scale = random_tensor(DType::f32, {scales}, 2), dy = random_tensor(DType::f32, {rows, n}, 3);
        const OutputType dx{DType::f32, {rows, n}}, sums{DType::f32, {scales}};
        // Sums of `rows` terms (of all elements, for one scale) of up to 4, in parts.
        const double sum_error = 1e-6 * std::sqrt(static_cast<double>(rows * n / scales + 16));
        const Attributes epsilon = attributes({{"epsilon", 1e-3}});
        expect_reference("plait.RMSNormBack", epsilon, {x, scale, dy}, {dx, sums}, 1e-5, sum_error, 2);
        expect_reference("plait.LayerNormBack", epsilon, {x, scale, dy}, {dx, sums, sums}, 2e-5, 2 * sum_error, 2);
        expect_reference("plait.LayerNormBack", epsilon, {x, scale, dy}, {dx, sums}, 2e-5, 2 * sum_error, 2);
      }
}

TEST(CpuTraining, GradientsOfNormsHaveTheSameBitsWithAnyThreads) {
  for (const std::string& isa : whole_isas()) {
    const Tensor x = random_tensor(DType::f32, {900, 77}, 1), scale = random_tensor(DType::f32, {77}, 2),
                 dy = random_tensor(DType::f32, {900, 77}, 3);
    const OutputType row{DType::f32, {77}};
    auto run = [&](int threads) {
      return run_op(kernels(), "plait.LayerNormBack", {}, {x, scale, dy}, {{DType::f32, x.shape()}, row, row},
                    threads, nullptr, isa);
    };
    const std::vector<Tensor> alone = run(1), shared = run(3);
    for (size_t k = 0; k < alone.size(); ++k) expect_equal_bits(shared[k], alone[k]);
  }
}

TEST(CpuTraining, DerivativesEqualTheReference) {
  auto of = [](const char* function, const char* approximate = "none") {
    return attributes({{"function", std::string(function)}, {"approximate", std::string(approximate)}});
  };
  for (const Attributes& function : {of("Relu"), of("Tanh"), of("Sigmoid"), of("Softplus"), of("Erf"), of("Swish"),
                                     of("Gelu"), of("Gelu", "tanh")}) {
    SCOPED_TRACE(function.string("function", ""));
    for (int64_t n : {1, 15, 17, 20000})
      for (double high : {1.0, 30.0})
        // The sum of two terms of opposite sign is off by their roundings.
        expect_reference(
            "plait.UnaryBack", function,
            {shifted(random_tensor(DType::f32, {n}, 1, -high, high), 4), random_tensor(DType::f32, {n}, 2)},
            {{DType::f32, {n}}}, 2e-6, 3e-7, 2);
    // At infinity the reference multiplies it by 0 where f' has a factor x.
    const bool product = function.string("function", "") == "Swish" || function.string("function", "") == "Gelu";
    const double most = product ? 1e30 : INFINITY;
    const Tensor edges = tensor(DType::f32, {6}, {most, -most, NAN, 0, -0.0, 1e-40});
    expect_reference("plait.UnaryBack", function, {edges, random_tensor(DType::f32, {6}, 3)}, {{DType::f32, {6}}},
                     2e-6, 3e-7);
  }
}

TEST(CpuTraining, GradientsOfSoftmaxEqualTheReference) {
  for (int64_t n : {1, 7, 16, 33, 640}) {
    SCOPED_TRACE(n);
    const Tensor y = shifted(random_tensor(DType::f32, {300, n}, 1, 0, 1), 4);
    expect_reference("plait.SoftmaxBack", {}, {y, random_tensor(DType::f32, {300, n}, 2)}, {{DType::f32, {300, n}}},
                     1e-5, 1e-5, 2);
  }
}

Tensor indices(DType dtype, const Shape& shape, int64_t low, int64_t high) {
  return random_tensor(dtype, shape, 9, static_cast<double>(low), static_cast<double>(high));
}
Tensor sizes_of(const Shape& shape) {
  std::vector<double> sizes;
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(static_cast<double>(shape[i]));
  return tensor(DType::i64, {shape.rank()}, sizes);
}

TEST(CpuTraining, RowsAreAddedUpAsInTheReference) {
  for (DType dtype : {DType::i32, DType::i64})
    for (int64_t h : {1, 7, 16, 33, 640})
      for (int64_t n : {0, 1, 50, 300}) {
        SCOPED_TRACE(cat("h ", h, " n ", n));
        const Tensor dy = shifted(random_tensor(DType::f32, {2, n, h}, 1), 4);
        const double atol = 2e-7 * static_cast<double>(n + 1);  // all may meet in a row
        const Shape table{40, h}, held{2, 9, h};
        expect_reference("plait.EmbeddingBack", {}, {dy, indices(dtype, {2, n}, 0, 40), sizes_of(table)},
                         {{DType::f32, table}}, 1e-6, atol, 2);
        expect_reference("plait.EmbeddingBack", attributes({{"offset", int64_t{40}}, {"whole", int64_t{160}}}),
                         {dy, indices(dtype, {2, n}, 0, 160), sizes_of(table)}, {{DType::f32, table}}, 1e-6, atol, 2);
        expect_reference("plait.RowsBack", {}, {dy, indices(dtype, {2, n}, 0, 9), sizes_of(held)},
                         {{DType::f32, held}}, 1e-6, atol, 2);
        expect_reference("plait.GatherBack", attributes({{"axis", int64_t{1}}}),
                         {dy, indices(dtype, {n}, -9, 9), sizes_of(held)}, {{DType::f32, held}}, 1e-6, atol, 2);
        const Shape last{2, h, 5};
        expect_reference(
            "plait.GatherBack", attributes({{"axis", int64_t{-1}}, {"offset", int64_t{5}}, {"whole", int64_t{15}}}),
            {random_tensor(DType::f32, {2, h, n, 3}, 2), indices(dtype, {n, 3}, -15, 15), sizes_of(last)},
            {{DType::f32, last}}, 1e-6, 3 * atol, 2);
      }
  for (const std::string& isa : whole_isas()) {
    KernelStatus status;
    run_op(kernels(), "plait.EmbeddingBack", {},
           {Tensor(DType::f32, {2, 4}), tensor(DType::i64, {2}, {1, 3}), sizes_of({3, 4})}, {{DType::f32, {3, 4}}}, 1,
           &status, isa);
    EXPECT_EQ(status.code, KernelCode::index_out_of_range);
    EXPECT_EQ(status.value, 3);
  }
}

TEST(CpuTraining, SumsEqualTheReference) {
  struct Case {
    Shape shape;
    std::vector<double> axes;
    Shape sums;
    bool noop = false;
  };
  const Case cases[] = {{{}, {}, {}},
                        {{0}, {}, {}},
                        {{3, 0, 5}, {1}, {3, 5}},
                        {{17}, {}, {}, false},
                        {{17}, {}, {17}, true},
                        {{70001}, {}, {}},
                        {{3, 300000}, {1}, {3, 1}},
                        {{300, 33}, {0}, {33}},
                        {{1, 700, 130}, {0, 1}, {130}},
                        {{300, 33}, {-1}, {300, 1}},
                        {{3, 40, 17}, {1}, {3, 17}},
                        {{5, 7, 3, 9}, {0, 2}, {7, 9}},
                        {{5, 7, 3, 9}, {1, 3}, {5, 3}},
                        {{5, 1, 3, 1}, {0, 3}, {1, 3}},
                        {{5, 33, 1}, {0, 2}, {1, 33, 1}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(cat(c.shape.text(), " to ", c.sums.text()));
    const Tensor x = shifted(random_tensor(DType::f32, c.shape, 1), 4);
    const Tensor axes = tensor(DType::i64, {static_cast<int64_t>(c.axes.size())}, c.axes);
    for (const char* op : {"ReduceSum", "ReduceSumSquare"})
      expect_reference(op, attributes({{"noop_with_empty_axes", int64_t{c.noop}}}), {x, axes}, {{DType::f32, c.sums}},
                       2e-6, 1e-5, 2);
  }
  for (const std::string& isa : whole_isas()) {
    const Tensor x = random_tensor(DType::f32, {2, 300001}, 2), axes = tensor(DType::i64, {1}, {1});
    auto run = [&](const Tensor& part, int threads) {
      return run_op(kernels(), "ReduceSumSquare", {}, {part, axes}, {{DType::f32, {part.shape()[0], 1}}}, threads,
                    nullptr, isa)[0];
    };
    expect_equal_bits(run(x, 3), run(x, 1));
    expect_equal_bits(rows(run(x, 3), 1, 2), run(rows(x, 1, 2), 2));
  }
}

}  // namespace
}  // namespace plait::test
