// Embeddings, gathered rows, pages and rotations on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

class CudaMoves : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaMoves, EmbeddingsEqualTheReference) {
  const auto [dtype, h] = GetParam();
  const Tensor table = random_tensor(dtype, {37, h}, 1);
  for (DType index : {DType::i32, DType::i64}) {
    const Tensor ids = tensor(index, {2, 3}, {0, 36, 15, 16, 17, 36});
    for (const std::set<size_t>& constants : {std::set<size_t>{0}, std::set<size_t>{}})
      expect_reference("plait.Embedding", {}, {table, ids}, {{DType::f32, {2, 3, h}}}, 0, 0, constants);
  }
  const Attributes shard = attributes({{"offset", int64_t{20}}, {"whole", int64_t{60}}});
  expect_reference("plait.Embedding", shard, {table, tensor(DType::i64, {3}, {19, 20, 59})}, {{DType::f32, {3, h}}},
                   0, 0, {0});
}

TEST_P(CudaMoves, GatheredRowsEqualTheReference) {
  const auto [dtype, n] = GetParam();
  const Tensor x = random_tensor(dtype, {2, 5, n}, 1);
  expect_reference("plait.GatherRows", {}, {x, tensor(DType::i32, {2, 3}, {4, 0, 4, 1, 2, 3})}, {{dtype, {2, 3, n}}},
                   0, 0);
}

TEST_P(CudaMoves, WrittenPagesEqualTheReference) {
  const auto [dtype, d] = GetParam();
  const Tensor keys = random_tensor(dtype, {3, 2, d, 16}, 1), values = random_tensor(dtype, {3, 2, 16, 7}, 2);
  const Tensor k = random_tensor(DType::f32, {1, 4, 2, d}, 3), v = random_tensor(DType::f32, {1, 4, 2, 7}, 4);
  const Tensor slots = tensor(DType::i64, {1, 4}, {0, 47, -1, 17});
  expect_reference("plait.KvWrite", {}, {keys, values, k, v, slots}, {{dtype, keys.shape()}, {dtype, values.shape()}},
                   0, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CudaMoves, testing::Combine(testing::ValuesIn(float_types), testing::ValuesIn(lengths)),
                         TypeAndLength());

class CudaTables : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaTables, QuantisedEmbeddingsEqualTheReference) {
  const auto [dtype, length] = GetParam();
  Tensor table(dtype, {19, 3, length});
  std::mt19937 random(7);
  for (int64_t i = 0; i < table.bytes(); ++i) table.data()[i] = static_cast<std::byte>(random());
  const int64_t h = 3 * length - 2;
  const Tensor scales = random_tensor(DType::f16, {19, 3}, 2), ids = tensor(DType::i64, {4}, {0, 18, 16, 7});
  const OutputType y{DType::f32, {4, h}};
  expect_reference("plait.Embedding", attributes({{"zero", int64_t{3}}}), {table, ids, scales}, {y}, 1e-6, 1e-6,
                   {0, 2});
  const Tensor zeros = random_tensor(DType::u8, {19, 3}, 4, 0, 9);
  expect_reference("plait.Embedding", {}, {table, ids, scales, zeros}, {y}, 1e-6, 1e-6, {0, 2, 3});
}

INSTANTIATE_TEST_SUITE_P(All, CudaTables,
                         testing::Combine(testing::Values(DType::u8, DType::i8, DType::u4, DType::i4, DType::u2,
                                                          DType::i2),
                                          testing::Values<int64_t>(16, 32, 48)),
                         TypeAndLength());

TEST(CudaMoves, IndicesOutOfRangeAreReported) {
  const Tensor table = random_tensor(DType::f32, {4, 3}, 1);
  KernelStatus status;
  run_on_cuda("plait.Embedding", {}, {table, tensor(DType::i64, {2}, {3, 4})}, {{DType::f32, {2, 3}}}, {}, 0,
              &status);
  EXPECT_EQ(std::tuple(status.code, status.operand, status.value), std::tuple(KernelCode::index_out_of_range, 1, 4));
  run_on_cuda("plait.GatherRows", {}, {table.reshaped({1, 4, 3}), tensor(DType::i32, {1, 1}, {-1})},
              {{DType::f32, {1, 1, 3}}}, {}, 0, &status);
  EXPECT_EQ(std::tuple(status.code, status.operand, status.value), std::tuple(KernelCode::index_out_of_range, 1, -1));
  const Tensor pages = random_tensor(DType::f32, {2, 1, 4, 4}, 2), k = random_tensor(DType::f32, {1, 1, 1, 4}, 3);
  run_on_cuda("plait.KvWrite", {}, {pages, pages, k, k, tensor(DType::i32, {1, 1}, {8})},
              {{DType::f32, pages.shape()}, {DType::f32, pages.shape()}}, {}, 0, &status);
  EXPECT_EQ(std::tuple(status.code, status.operand, status.value), std::tuple(KernelCode::index_out_of_range, 4, 8));
}

TEST(CudaRope, EqualsTheReference) {
  for (int64_t z : {1, 4, 8, 15, 64})
    for (int64_t rest : {0, 5})
      for (int64_t interleaved : {0, 1}) {
        SCOPED_TRACE(cat("z ", z, " rest ", rest, " interleaved ", interleaved));
        const Tensor x = random_tensor(DType::f32, {2, 3, 4, 2 * z + rest}, 7);
        const Tensor cos = random_tensor(DType::f32, {2, 3, z}, 8), sin = random_tensor(DType::f32, {2, 3, z}, 9);
        expect_reference("plait.RoPE", attributes({{"interleaved", interleaved}}), {x, cos, sin},
                         {{DType::f32, x.shape()}}, 1e-6, 1e-6);
      }
}

}  // namespace
}  // namespace plait::test
