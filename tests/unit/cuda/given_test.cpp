// Kernels that write their result to the ranks that sum it: every word once to each of the others, with the number of the sum, and nothing
// else. With the bits that they have without other ranks.
#include "kernels/cuda/peer_sums.h"
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

constexpr int given_ranks = 3, giving_rank = 1;
/// Up to the lines of collectives in two steps.
constexpr size_t buffer_words = cuda::peer_lines_at(given_ranks) / 8;
using Buffers = std::array<std::vector<uint64_t>, given_ranks>;

/// `last`: the number of the sum before.
Buffers buffers_after(uint32_t last) {
  Buffers out;
  for (std::vector<uint64_t>& one : out) one.assign(buffer_words, 0);
  out[giving_rank][0] = last;
  return out;
}

void expect_given(const std::string& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                  const Shape& shape, const std::set<size_t>& constants = {}) {
  if (tested_device()) return;  // its kernels access no memory of the host
  SCOPED_TRACE(cat(op, " ", shape.text()));
  const OutputType y{DType::f32, shape};
  const Tensor alone = run_on_cuda(op, attributes, inputs, {y}, constants)[0];
  constexpr uint32_t numbers[][2] = {{0, 1}, {5, 6}, {~0U, 1}};  // of the sum before, and of this one: never 0
  for (size_t i = 0; i < std::size(orders); ++i) {
    const auto [last, number] = numbers[i];
    Buffers buffers = buffers_after(last), expected = buffers;
    cuda::PeerRanks ranks{};
    ranks.own = reinterpret_cast<uint8_t*>(buffers[giving_rank].data());
    for (int rank = 0; rank < given_ranks; ++rank)
      ranks.buffers[rank] = reinterpret_cast<uint8_t*>(buffers[static_cast<size_t>(rank)].data());
    ranks.rank = giving_rank, ranks.ranks = given_ranks;
    expect_equal_bits(run_on_cuda(op, attributes, inputs, {y}, constants, orders[i], nullptr, &ranks)[0], alone);
    const int64_t row = number % cuda::peer_slots * given_ranks + giving_rank;
    const auto begin = static_cast<size_t>(cuda::peer_words_at + row * cuda::peer_word_bytes) / 8;
    for (const size_t rank : {0, 2})
      for (size_t word = 0; word < static_cast<size_t>(alone.elements()); ++word)
        expected[rank][begin + word] = uint64_t{number} << 32 | alone.as<uint32_t>()[word];
    for (size_t rank = 0; rank < given_ranks; ++rank)
      EXPECT_TRUE(buffers[rank] == expected[rank]) << "rank " << rank << " after sum " << last;
  }
}

class CudaGiven : public testing::TestWithParam<DType> {};

TEST_P(CudaGiven, ByLinears) {
  for (const int64_t tokens : {1, 11}) {
    const Tensor x = random_tensor(DType::f32, {tokens, 70}, 1), w = random_tensor(GetParam(), {19, 70}, 2),
                 bias = random_tensor(GetParam(), {19}, 3);
    expect_given("plait.Linear", {}, {x, w, bias}, {tokens, 19}, {1});
    expect_given("plait.Linear", {}, {x, w}, {tokens, 19});
    expect_given("plait.GatedLinear", attributes({{"activation", std::string("silu")}}), {x, w, w}, {tokens, 19},
                 {1, 2});
  }
}

TEST_P(CudaGiven, ByExperts) {
  for (const int64_t tokens : {1, 5}) {
    std::vector<Tensor> inputs(15);
    inputs[0] = random_tensor(DType::f32, {tokens, 24}, 1);
    inputs[1] = random_tensor(DType::i64, {tokens, 2}, 2, 0, 10);
    inputs[2] = random_tensor(DType::f32, {tokens, 2}, 3, 0, 1);
    inputs[3] = random_tensor(GetParam(), {5, 16, 24}, 4);
    inputs[5] = random_tensor(GetParam(), {5, 9, 16}, 5);
    expect_given("plait.Experts", attributes({{"offset", int64_t{5}}, {"whole", int64_t{10}}}), inputs, {tokens, 9});
  }
}

TEST_P(CudaGiven, ByEmbeddingsOfAShard) {
  const Attributes shard = attributes({{"offset", int64_t{20}}, {"whole", int64_t{60}}});
  for (const std::set<size_t>& constants : {std::set<size_t>{0}, std::set<size_t>{}})
    expect_given("plait.Embedding", shard,
                 {random_tensor(GetParam(), {37, 33}, 1), tensor(DType::i64, {3}, {19, 20, 56})}, {3, 33}, constants);
}

TEST_P(CudaGiven, ByAdapters) {
  expect_given("plait.AddAdapters", {},
               {random_tensor(DType::f32, {2, 3, 33}, 1), random_tensor(DType::f32, {2, 3, 70}, 2),
                random_tensor(GetParam(), {4, 5, 70}, 3), random_tensor(GetParam(), {4, 33, 5}, 4),
                tensor(DType::i32, {2, 3}, {0, -1, 3, 3, 1, -1})},
               {2, 3, 33});
}

INSTANTIATE_TEST_SUITE_P(All, CudaGiven, testing::ValuesIn(float_types),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(CudaGivenBlocks, ByLinears) {
  const Tensor scales = random_tensor(DType::f16, {19, 3}, 2, 0.01, 0.1),
               zeros = random_tensor(DType::u8, {19, 3}, 4, 0, 9);
  for (const DType dtype : {DType::u8, DType::u4})
    for (const int64_t tokens : {1, 11}) {
      const Tensor x = random_tensor(DType::f32, {tokens, 96}, 3), w = codes(dtype, {19, 3, 32});
      expect_given("plait.Linear", {}, {x, w, {}, scales}, {tokens, 19}, {1, 3});
      expect_given("plait.Linear", {}, {x, w, {}, scales, zeros}, {tokens, 19}, {1, 3, 4});
    }
}

TEST(CudaGivenElements, BySumsOfPartsBothWays) {
  const Tensor a = random_tensor(DType::f32, {3, 300}, 1), row = random_tensor(DType::f32, {300}, 2);
  expect_given("Add", {}, {a, a}, {3, 300});
  expect_given("Add", {}, {a, row}, {3, 300});
}

}  // namespace
}  // namespace plait::test
