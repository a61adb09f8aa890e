#include <limits>

#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

/// Attention of one head written out: q [s, d], keys [n, d], values [n, e]; visible(i, j) is whether the key counts.
template <class Visible>
std::vector<double> plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                                    Visible visible) {
  int64_t s = q.shape()[0], d = q.shape()[1], n = k.shape()[0], e = v.shape()[1];
  std::vector<double> out(static_cast<size_t>(s * e), 0.0);
  for (int64_t i = 0; i < s; ++i) {
    std::vector<double> weight(static_cast<size_t>(n), 0.0);
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (!visible(i, j)) continue;
      double score = 0;
      for (int64_t l = 0; l < d; ++l) score += element(q, i * d + l) * element(k, j * d + l);
      sum += weight[static_cast<size_t>(j)] = std::exp(score * scale);
    }
    for (int64_t j = 0; j < n && sum > 0; ++j)
      for (int64_t l = 0; l < e; ++l)
        out[static_cast<size_t>(i * e + l)] += weight[static_cast<size_t>(j)] / sum * element(v, j * e + l);
  }
  return out;
}

Tensor with_shape(const Tensor& x, const Shape& shape) { return x.reshaped(shape); }

/// [b, s, heads * d] as [b, heads, s, d].
Tensor by_heads(const Tensor& x, int64_t heads) {
  int64_t b = x.shape()[0], s = x.shape()[1], d = x.shape()[2] / heads;
  return run_reference("Transpose", attributes({{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       {x.reshaped({b, s, heads, d})}, {{x.dtype(), {b, heads, s, d}}})[0];
}

TEST(ReferenceAttention, CausalWithPastCountsFromThePast) {
  Tensor q = random_tensor(DType::f32, {2, 4}, 1), k = random_tensor(DType::f32, {5, 4}, 2),
         v = random_tensor(DType::f32, {5, 3}, 3);
  Tensor past_k(DType::f32, {1, 1, 3, 4}, k.blob()), past_v(DType::f32, {1, 1, 3, 3}, v.blob());
  Tensor new_k(DType::f32, {1, 1, 2, 4}, k.blob(), 3 * 4 * 4), new_v(DType::f32, {1, 1, 2, 3}, v.blob(), 3 * 3 * 4);
  auto out = run_reference("Attention", attributes({{"is_causal", int64_t{1}}}),
                           {with_shape(q, {1, 1, 2, 4}), new_k, new_v, {}, past_k, past_v},
                           {{DType::f32, {1, 1, 2, 3}}, {DType::f32, {1, 1, 5, 4}}, {DType::f32, {1, 1, 5, 3}}});
  auto expected = plain_attention(q, k, v, 0.5, [](int64_t i, int64_t j) { return j <= i + 3; });
  expect_near(out[0], f32({1, 1, 2, 3}, expected), 1e-5, 1e-6);
  expect_equal_bits(out[1], with_shape(k, {1, 1, 5, 4}));
  expect_equal_bits(out[2], with_shape(v, {1, 1, 5, 3}));
}

TEST(ReferenceAttention, CausalWithAnOutsideCacheCountsFromItsLength) {
  Tensor q = random_tensor(DType::f32, {2, 4}, 1), k = random_tensor(DType::f32, {6, 4}, 2),
         v = random_tensor(DType::f32, {6, 4}, 3);
  auto out = run_reference(
      "Attention", attributes({{"is_causal", int64_t{1}}}),
      {with_shape(q, {1, 1, 2, 4}), with_shape(k, {1, 1, 6, 4}), with_shape(v, {1, 1, 6, 4}), {}, {}, {}, ints({4})},
      {{DType::f32, {1, 1, 2, 4}}});
  auto expected = plain_attention(q, k, v, 0.5, [](int64_t i, int64_t j) { return j <= i + 2 && j < 4; });
  expect_near(out[0], f32({1, 1, 2, 4}, expected), 1e-5, 1e-6);
}

TEST(ReferenceAttention, GroupsOfHeadsInThreeDimensions) {
  // Two query heads share one key head; the layout is [b, s, heads * d].
  Tensor q = random_tensor(DType::f32, {1, 1, 8}, 1), k = random_tensor(DType::f32, {3, 4}, 2),
         v = random_tensor(DType::f32, {3, 4}, 3);
  auto out = run_reference("Attention",
                           attributes({{"q_num_heads", int64_t{2}}, {"kv_num_heads", int64_t{1}}, {"scale", 0.3}}),
                           {q, with_shape(k, {1, 3, 4}), with_shape(v, {1, 3, 4})}, {{DType::f32, {1, 1, 8}}});
  auto expected = plain_attention(with_shape(q, {2, 4}), k, v, 0.3, [](int64_t, int64_t) { return true; });
  expect_near(out[0], f32({1, 1, 8}, expected), 1e-5, 1e-6);
}

TEST(ReferenceAttention, AFullyMaskedRowIsZeroAndAShortMaskHidesTheRest) {
  Tensor q = random_tensor(DType::f32, {2, 4}, 1), k = random_tensor(DType::f32, {3, 4}, 2),
         v = random_tensor(DType::f32, {3, 4}, 3);
  Tensor mask = tensor(DType::boolean, {2, 2}, {0, 0, 1, 1});
  auto out = run_reference(
      "Attention", {}, {with_shape(q, {1, 1, 2, 4}), with_shape(k, {1, 1, 3, 4}), with_shape(v, {1, 1, 3, 4}), mask},
      {{DType::f32, {1, 1, 2, 4}}});
  auto expected = plain_attention(q, k, v, 0.5, [](int64_t i, int64_t j) { return i == 1 && j < 2; });
  EXPECT_EQ(expected[0], 0);
  expect_near(out[0], f32({1, 1, 2, 4}, expected), 1e-5, 1e-6);
}

TEST(ReferenceRope, HalvesPairsAndTheRest) {
  Tensor cos = f32({1, 1, 1}, {0.6}), sin = f32({1, 1, 1}, {0.8});
  Tensor x = f32({1, 1, 1, 3}, {1, 2, 9});
  expect_op("plait.RoPE", {}, {x, cos, sin}, f32({1, 1, 1, 3}, {-1, 2, 9}));
  Tensor cos2 = f32({1, 1, 2}, {0.6, 1}), sin2 = f32({1, 1, 2}, {0.8, 0}), four = f32({1, 1, 1, 4}, {1, 2, 3, 4});
  expect_op("plait.RoPE", {}, {four, cos2, sin2}, f32({1, 1, 1, 4}, {0.6 - 2.4, 2, 1.8 + 0.8, 4}));
  expect_op("plait.RoPE", attributes({{"interleaved", int64_t{1}}}), {four, cos2, sin2},
            f32({1, 1, 1, 4}, {0.6 - 1.6, 1.2 + 0.8, 3, 4}));
}

TEST(ReferenceRope, ReadsCachesAtPositions) {
  Tensor cos = f32({3, 1}, {1, 0, 0.6}), sin = f32({3, 1}, {0, 1, 0.8}), x = f32({1, 1, 2}, {1, 2});
  expect_op("RotaryEmbedding", attributes({{"num_heads", int64_t{1}}}), {x, cos, sin, i64({1, 1}, {1})},
            f32({1, 1, 2}, {-2, 1}));
  expect_op("com.microsoft.RotaryEmbedding", {}, {x, ints({2}), cos, sin}, f32({1, 1, 2}, {-1, 2}));
  KernelStatus status = refused("RotaryEmbedding", attributes({{"num_heads", int64_t{1}}}),
                                {x, cos, sin, i64({1, 1}, {3})}, {{DType::f32, {1, 1, 2}}});
  EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(status.operand, 3);
}

TEST(ReferenceGroupQueryAttention, PackedAndSeparateOperandsAgreeWithPlainAttention) {
  // b = 1, past 2, s = 2, two query heads over one key head, d = 4, window 3.
  Tensor q = random_tensor(DType::f32, {1, 2, 8}, 1), k = random_tensor(DType::f32, {4, 4}, 2),
         v = random_tensor(DType::f32, {4, 4}, 3);
  Tensor past_k(DType::f32, {1, 1, 2, 4}, k.blob()), past_v(DType::f32, {1, 1, 2, 4}, v.blob());
  Tensor new_k(DType::f32, {1, 2, 4}, k.blob(), 32), new_v(DType::f32, {1, 2, 4}, v.blob(), 32);
  Tensor packed(DType::f32, {1, 2, 16});
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t i = 0; i < 16; ++i)
      set_element(packed, t * 16 + i,
                  i < 8    ? element(q, t * 8 + i)
                  : i < 12 ? element(new_k, t * 4 + i - 8)
                           : element(new_v, t * 4 + i - 12));
  Attributes heads =
      attributes({{"num_heads", int64_t{2}}, {"kv_num_heads", int64_t{1}}, {"local_window_size", int64_t{3}}});
  std::vector<OutputType> types = {{DType::f32, {1, 2, 8}}, {DType::f32, {1, 1, 4, 4}}, {DType::f32, {1, 1, 4, 4}}};
  Tensor last = i32({1}, {3}), total = i32({}, {4});
  auto apart = run_reference("com.microsoft.GroupQueryAttention", heads,
                             {q, new_k, new_v, past_k, past_v, last, total}, types, 2);
  auto together =
      run_reference("com.microsoft.GroupQueryAttention", heads, {packed, {}, {}, past_k, past_v, last, total}, types);
  for (size_t i = 0; i < 3; ++i) expect_equal_bits(apart[i], together[i]);
  expect_equal_bits(apart[1], with_shape(k, {1, 1, 4, 4}));
  for (int64_t h = 0; h < 2; ++h) {
    Tensor head(DType::f32, {2, 4});
    for (int64_t i = 0; i < 8; ++i) set_element(head, i, element(q, i / 4 * 8 + h * 4 + i % 4));
    auto expected =
        plain_attention(head, k, v, 0.5, [](int64_t i, int64_t j) { return j <= i + 2 && j > i + 2 - 3; });
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_NEAR(element(apart[0], i / 4 * 8 + h * 4 + i % 4), expected[static_cast<size_t>(i)], 1e-5);
  }
  last = i32({1}, {9});  // ten keys do not fit into four places
  KernelStatus status = refused("com.microsoft.GroupQueryAttention", heads,
                                {q, new_k, new_v, past_k, past_v, last, i32({}, {10})}, types);
  EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(status.operand, 5);
}

/// Operands of MultiHeadAttention: b 2, s 3, two heads of 4, values of 2; past 2, so five keys in all.
struct MultiHeadCase {
  Tensor q = random_tensor(DType::f32, {2, 3, 8}, 1), k = random_tensor(DType::f32, {2, 3, 8}, 2),
         v = random_tensor(DType::f32, {2, 3, 4}, 3), bias = random_tensor(DType::f32, {20}, 4),
         past_k = random_tensor(DType::f32, {2, 2, 2, 4}, 5), past_v = random_tensor(DType::f32, {2, 2, 2, 2}, 6),
         scores = random_tensor(DType::f32, {1, 2, 3, 5}, 7);
  std::vector<OutputType> types = {
      {DType::f32, {2, 3, 4}}, {DType::f32, {2, 2, 5, 4}}, {DType::f32, {2, 2, 5, 2}}, {DType::f32, {2, 2, 3, 5}}};

  /// The op written out of Attention: the biases added, padding as a mask that adds, causality as its own.
  std::vector<Tensor> by_attention(bool causal, const std::vector<double>& padding) const {
    auto shifted = [&](const Tensor& x, int64_t begin) {
      Tensor out(DType::f32, x.shape());
      int64_t width = x.shape()[2];
      for (int64_t i = 0; i < x.elements(); ++i)
        set_element(out, i, element(x, i) + element(bias, begin + i % width));
      return out;
    };
    Tensor mask(DType::f32, {2, 2, 3, 5});
    for (int64_t i = 0; i < mask.elements(); ++i) {
      int64_t at = i / 30 * 5 + i % 5;
      set_element(mask, i, element(scores, i % 30) + (padding[static_cast<size_t>(at)] != 0 ? 0 : -10000));
    }
    Attributes heads = attributes({{"q_num_heads", int64_t{2}},
                                   {"kv_num_heads", int64_t{2}},
                                   {"scale", 0.7},
                                   {"is_causal", int64_t{causal}},
                                   {"qk_matmul_output_mode", int64_t{2}}});
    return run_reference("Attention", heads, {shifted(q, 0), shifted(k, 8), shifted(v, 16), mask, past_k, past_v},
                         types);
  }
  std::vector<Tensor> run(Attributes options, const Tensor& padding, KernelStatus* status = nullptr) const {
    options.set("num_heads", int64_t{2});
    options.set("scale", 0.7);
    return run_reference("com.microsoft.MultiHeadAttention", options,
                         {q, k, v, bias, padding, scores, past_k, past_v}, types, 2, status);
  }
};

TEST(ReferenceMultiHeadAttention, EqualsAttentionWithItsPartsWrittenOut) {
  MultiHeadCase one;
  std::vector<double> all(10, 1), some{1, 0, 1, 1, 0, 1, 1, 1, 0, 0}, fresh{1, 1, 0, 1, 1, 1, 1, 1, 1, 0},
      front{1, 1, 1, 0, 0, 1, 1, 1, 1, 0};
  auto compare = [&](const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) expect_near(actual[i], expected[i], 1e-5, 1e-5);
  };
  compare(one.run({}, {}), one.by_attention(false, all));
  compare(one.run(attributes({{"unidirectional", int64_t{1}}}), {}), one.by_attention(true, all));
  // The padding mask: over all keys, over the new ones, for each query, as lengths.
  compare(one.run({}, tensor(DType::i32, {2, 5}, some)), one.by_attention(false, some));
  compare(one.run({}, tensor(DType::i32, {2, 3}, {0, 1, 1, 1, 1, 0})), one.by_attention(false, fresh));
  std::vector<double> square;
  for (int64_t i = 0; i < 30; ++i) square.push_back(some[static_cast<size_t>(i / 15 * 5 + i % 5)]);
  compare(one.run({}, tensor(DType::i32, {2, 3, 5}, square)), one.by_attention(false, some));
  compare(one.run({}, tensor(DType::i32, {2}, {3, 4})), one.by_attention(false, front));
}

TEST(ReferenceMultiHeadAttention, LayoutsAgree) {
  // b 1, s 3, two heads of 2: apart, keys and values together, all three together, keys and values as a cache.
  Tensor q = random_tensor(DType::f32, {1, 3, 4}, 1), k = random_tensor(DType::f32, {1, 3, 4}, 2),
         v = random_tensor(DType::f32, {1, 3, 4}, 3);
  auto packed = [](const std::vector<Tensor>& parts) {
    auto count = static_cast<int64_t>(parts.size());
    Tensor out(DType::f32, {1, 3, 2, count, 2});
    for (int64_t i = 0; i < out.elements(); ++i)
      set_element(out, i, element(parts[static_cast<size_t>(i / 2 % count)], i / (2 * count) * 2 + i % 2));
    return out;
  };
  auto heads_first = [](const Tensor& x) { return by_heads(x, 2); };
  Attributes two = attributes({{"num_heads", int64_t{2}}});
  auto run = [&](const std::vector<Tensor>& inputs) {
    return run_reference("com.microsoft.MultiHeadAttention", two, inputs,
                         {{DType::f32, {1, 3, 4}}, {DType::f32, {1, 2, 3, 2}}, {DType::f32, {1, 2, 3, 2}}});
  };
  auto apart = run({q, k, v});
  for (const auto& other :
       {run({q, packed({k, v})}), run({packed({q, k, v})}), run({q, heads_first(k), heads_first(v)})})
    for (size_t i = 0; i < 3; ++i) expect_equal_bits(other[i], apart[i]);
  expect_equal_bits(apart[1], heads_first(k));
}

TEST(ReferenceMultiHeadAttention, RefusesWhatDoesNotFit) {
  MultiHeadCase one;
  auto slot = [&](const Tensor& padding) {
    KernelStatus status;
    one.run({}, padding, &status);
    return status.code == KernelCode::ok ? -1 : status.operand;
  };
  EXPECT_EQ(slot(tensor(DType::i32, {2, 5}, std::vector<double>(10, 1))), -1);
  EXPECT_EQ(slot(tensor(DType::i32, {2, 4}, std::vector<double>(8, 1))), 4);
  one.scores = Tensor(DType::f32, {1, 2, 3, 4});
  EXPECT_EQ(slot({}), 5);
  one = {};
  one.bias = Tensor(DType::f32, {24});
  EXPECT_EQ(slot({}), 3);
  one = {};
  one.past_v = {};
  EXPECT_EQ(slot({}), 7);
  one = {};
  one.k = Tensor(DType::f32, {1, 3, 8});
  EXPECT_EQ(slot({}), 1);
  // A cache that present shares with past is another op's.
  EXPECT_THROW(run_reference("com.microsoft.MultiHeadAttention", attributes({{"num_heads", int64_t{2}}}),
                             {one.q, one.q, one.q, {}, {}, {}, {}, {}, i32({1}, {3})}, {{DType::f32, {2, 3, 8}}}),
               Error);
}

TEST(ReferenceGroupQueryAttention, ASinkTakesItsShare) {
  // One key with score 0 and a sink of log 3: the key has a quarter of the weight.
  Attributes heads = attributes({{"num_heads", int64_t{1}}, {"kv_num_heads", int64_t{1}}});
  Tensor zero = f32({1, 1, 2}, {0, 0}), value = f32({1, 1, 2}, {4, 8});
  auto out = run_reference(
      "com.microsoft.GroupQueryAttention", heads,
      {zero, zero, value, {}, {}, i32({1}, {0}), i32({}, {1}), {}, {}, {}, {}, f32({1}, {std::log(3.0)})},
      {{DType::f32, {1, 1, 2}}, {DType::f32, {1, 1, 1, 2}}, {DType::f32, {1, 1, 1, 2}}});
  expect_near(out[0], f32({1, 1, 2}, {1, 2}), 1e-6);
}

/// Scores of a query of NaN are NaN, and so is its result; a query that every key is masked for has zeros.
TEST(ReferenceAttention, ARowOfNaNIsNotAMaskedOne) {
  const Tensor k = f32({1, 1, 2, 2}, {1, 0, 0, 1}), v = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor q = f32({1, 1, 3, 2}, {NAN, NAN, 0, 0, 1, NAN});
  const Tensor mask = f32({3, 2}, {0, 0, -INFINITY, -INFINITY, -INFINITY, 0});
  const Tensor y = f32({1, 1, 3, 2}, {NAN, NAN, 0, 0, NAN, NAN});
  expect_op("Attention", {}, {q, k, v, mask}, y);
  const Tensor packed = f32({1, 1, 2}, {NAN, NAN});
  Attributes heads = attributes({{"num_heads", int64_t{1}}, {"kv_num_heads", int64_t{1}}});
  auto out = run_reference("com.microsoft.GroupQueryAttention", heads,
                           {packed, f32({1, 1, 2}, {1, 0}), f32({1, 1, 2}, {1, 2}), {}, {}, i32({1}, {0}), i32({}, {1})},
                           {{DType::f32, {1, 1, 2}}, {DType::f32, {1, 1, 1, 2}}, {DType::f32, {1, 1, 1, 2}}});
  expect_near(out[0], packed);
}

}  // namespace
}  // namespace plait::test
