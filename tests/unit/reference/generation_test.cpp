#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

// Pages of c = 4 tokens; g = 2 key heads, r = 2 query heads each, d = 8, e = 8.
constexpr int64_t pages = 6, g = 2, r = 2, d = 8, c = 4, e = 8, h = g * r;

struct Sequence {
  Tensor q, k, v;  ///< [1, n, h, d], [1, n, g, d], [1, n, g, e]
};

Sequence make_sequence(int64_t n, uint64_t seed) {
  return {random_tensor(DType::f32, {1, n, h, d}, seed), random_tensor(DType::f32, {1, n, g, d}, seed + 1),
          random_tensor(DType::f32, {1, n, g, e}, seed + 2)};
}

/// The cache after writing all of a sequence into the pages that `table` names.
std::vector<Tensor> cache_of(const std::vector<Tensor>& before, const Sequence& sequence,
                             const std::vector<int64_t>& table, DType dtype) {
  int64_t n = sequence.k.shape()[1];
  Tensor slots(DType::i32, {1, n});
  for (int64_t i = 0; i < n; ++i)
    slots.as<int32_t>()[i] = static_cast<int32_t>(table[static_cast<size_t>(i / c)] * c + i % c);
  return run_reference("plait.KvWrite", {}, {before[0], before[1], sequence.k, sequence.v, slots},
                       {{dtype, {pages, g, d, c}}, {dtype, {pages, g, c, e}}});
}

std::vector<Tensor> empty_cache(DType dtype) {
  return {Tensor(dtype, {pages, g, d, c}), Tensor(dtype, {pages, g, c, e})};
}

TEST(ReferenceKvWrite, PutsKeysTransposedAndSkipsPadding) {
  Tensor k = f32({1, 2, 1, 2}, {1, 2, 3, 4}), v = f32({1, 2, 1, 2}, {5, 6, 7, 8});
  auto out =
      run_reference("plait.KvWrite", {},
                    {Tensor(DType::f32, {2, 1, 2, 2}), Tensor(DType::f32, {2, 1, 2, 2}), k, v, i32({1, 2}, {3, -1})},
                    {{DType::f32, {2, 1, 2, 2}}, {DType::f32, {2, 1, 2, 2}}});
  expect_near(out[0], f32({2, 1, 2, 2}, {0, 0, 0, 0, 0, 1, 0, 2}));  // page 1, [d, c]
  expect_near(out[1], f32({2, 1, 2, 2}, {0, 0, 0, 0, 0, 0, 5, 6}));  // page 1, [c, e]
  KernelStatus status = refused("plait.KvWrite", {}, {out[0], out[1], k, v, i32({1, 2}, {0, 4})},
                                {{DType::f32, {2, 1, 2, 2}}, {DType::f32, {2, 1, 2, 2}}});
  EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(status.operand, 4);
  EXPECT_EQ(status.value, 4);
}

TEST(ReferenceKvWrite, RoundsIntoPagesOfBf16) {
  Tensor k = f32({1, 1, 1, 1}, {1.001}), slots = i32({1, 1}, {0});
  auto out = run_reference("plait.KvWrite", {},
                           {Tensor(DType::bf16, {1, 1, 1, 1}), Tensor(DType::bf16, {1, 1, 1, 1}), k, k, slots},
                           {{DType::bf16, {1, 1, 1, 1}}, {DType::bf16, {1, 1, 1, 1}}});
  EXPECT_EQ(element(out[0], 0), 1.0);
}

TEST(ReferencePagedAttention, EqualsAttentionOfTheWholeSequence) {
  constexpr int64_t n = 10;
  Sequence sequence = make_sequence(n, 7);
  auto cache = cache_of(empty_cache(DType::f32), sequence, {4, 1, 3}, DType::f32);
  Tensor positions(DType::i32, {1, n}), segments(DType::i32, {1, n}), table = i32({1, 3}, {4, 1, 3});
  for (int32_t i = 0; i < n; ++i) positions.as<int32_t>()[i] = i;
  auto paged =
      run_reference("plait.PagedAttention", attributes({{"scale", 0.25}, {"softcap", 3.0}}),
                    {sequence.q, cache[0], cache[1], positions, segments, table}, {{DType::f32, {1, n, h, e}}}, 2);
  auto whole = run_reference(
      "Attention",
      attributes(
          {{"scale", 0.25}, {"softcap", 3.0}, {"is_causal", int64_t{1}}, {"q_num_heads", h}, {"kv_num_heads", g}}),
      {sequence.q.reshaped({1, n, h * d}), sequence.k.reshaped({1, n, g * d}), sequence.v.reshaped({1, n, g * e})},
      {{DType::f32, {1, n, h * e}}});
  expect_near(paged[0], whole[0].reshaped({1, n, h, e}), 1e-5, 1e-6);
}

TEST(ReferencePagedAttention, ATokenKeepsItsBitsInAnyCompany) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Sequence first = make_sequence(7, 11), second = make_sequence(6, 21);
    auto cache = cache_of(cache_of(empty_cache(dtype), first, {0, 1}, dtype), second, {5, 2}, dtype);
    auto moved = cache_of(empty_cache(dtype), second, {1, 4}, dtype);
    Attributes options = attributes({{"scale", 0.3}, {"window", int64_t{5}}});
    Tensor last(DType::f32, {1, 1, h, d}, second.q.blob(), 5 * h * d * 4), mixed(DType::f32, {1, 3, h, d});
    std::memcpy(mixed.data(), first.q.data() + 2 * h * d * 4, h * d * 4);
    std::memcpy(mixed.data() + 2 * h * d * 4, last.data(), h * d * 4);
    auto alone = run_reference("plait.PagedAttention", options,
                               {last, moved[0], moved[1], i32({1, 1}, {5}), i32({1, 1}, {0}), i32({1, 2}, {1, 4})},
                               {{DType::f32, {1, 1, h, e}}});
    auto together = run_reference("plait.PagedAttention", options,
                                  {mixed, cache[0], cache[1], i32({1, 3}, {2, 0, 5}), i32({1, 3}, {0, -1, 1}),
                                   i32({2, 3}, {0, 1, -1, 5, 2, -1})},
                                  {{DType::f32, {1, 3, h, e}}}, 3);
    expect_equal_bits(alone[0], Tensor(DType::f32, {1, 1, h, e}, together[0].blob(), 2 * h * e * 4));
    expect_near(Tensor(DType::f32, {h * e}, together[0].blob(), h * e * 4),
                Tensor(DType::f32, {h * e}));  // the padding row
  }
}

TEST(ReferencePagedAttention, AWindowFreesThePagesBehindIt) {
  Sequence sequence = make_sequence(9, 31);
  auto cache = cache_of(empty_cache(DType::f32), sequence, {0, 1, 2}, DType::f32);
  Tensor q(DType::f32, {1, 1, h, d}, sequence.q.blob(), 8 * h * d * 4), position = i32({1, 1}, {8}),
                                                                        segment = i32({1, 1}, {0});
  Attributes options = attributes({{"scale", 0.3}, {"window", int64_t{4}}});  // keys 5 .. 8 lie in pages 1 and 2
  std::vector<OutputType> type = {{DType::f32, {1, 1, h, e}}};
  auto kept = run_reference("plait.PagedAttention", options,
                            {q, cache[0], cache[1], position, segment, i32({1, 3}, {0, 1, 2})}, type);
  auto freed = run_reference("plait.PagedAttention", options,
                             {q, cache[0], cache[1], position, segment, i32({1, 3}, {-1, 1, 2})}, type);
  expect_equal_bits(kept[0], freed[0]);
  KernelStatus status = refused("plait.PagedAttention", options,
                                {q, cache[0], cache[1], position, segment, i32({1, 3}, {0, -1, 2})}, type);
  EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(status.operand, 5);
}

TEST(ReferencePagedAttention, SinksAndSlopes) {
  // Two keys of score 0, a sink of log 2: each key has a quarter. A slope of log 3 makes the older one a third of the
  // newer.
  Tensor keys(DType::f32, {1, 1, 1, 2}), values = f32({1, 1, 2, 1}, {4, 8}), q = f32({1, 1, 1, 1}, {1});
  Attributes options = attributes({{"scale", 1.0}});
  Tensor position = i32({1, 1}, {1}), segment = i32({1, 1}, {0}), table = i32({1, 1}, {0});
  expect_op("plait.PagedAttention", options, {q, keys, values, position, segment, table, f32({1}, {std::log(2.0)})},
            f32({1, 1, 1, 1}, {3}));
  expect_op("plait.PagedAttention", options,
            {q, keys, values, position, segment, table, {}, f32({1}, {std::log(3.0)})}, f32({1, 1, 1, 1}, {7}));
}

TEST(ReferenceGeneration, EmbeddingAndRows) {
  Tensor table = tensor(DType::bf16, {3, 2}, {1, 2, 3, 4, 5, 6});
  expect_op("plait.Embedding", attributes({{"to", int64_t{1}}}), {table, i32({1, 2}, {2, 0})},
            f32({1, 2, 2}, {5, 6, 1, 2}));
  Tensor x = f32({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expect_op("plait.GatherRows", {}, {x, i64({2, 1}, {1, 0})}, f32({2, 1, 2}, {3, 4, 5, 6}));
}

}  // namespace
}  // namespace plait::test
