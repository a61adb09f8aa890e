// Paged attention on CUDA devices: against the reference, and a token's bits in any company.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

struct AttentionCase {
  const char* name;
  int64_t heads = 4, groups = 2, d = 20, e = 24, c = 16, window = 0;
  DType pages = DType::f32;
  double softcap = 0;
  bool sinks = false, slopes = false;
};
void PrintTo(const AttentionCase& one, std::ostream* out) { *out << one.name; }

struct Token {
  int32_t segment, position;
};

/// Pages of three segments of up to 600 tokens, and queries that depend on segment and position only.
struct Pages {
  explicit Pages(const AttentionCase& of) : what(of), columns(600 / of.c + 1) {
    std::vector<int32_t> order(static_cast<size_t>(3 * columns + 2));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    const auto count = static_cast<int64_t>(order.size());
    order.resize(static_cast<size_t>(3 * columns));
    table = Tensor::of<int32_t>(DType::i32, {3, columns}, order);
    keys = random_tensor(of.pages, {count, of.groups, of.d, of.c}, 1);
    values = random_tensor(of.pages, {count, of.groups, of.c, of.e}, 2);
    queries = random_tensor(DType::f32, {3 * 600, of.heads, of.d}, 3);
    if (of.sinks) sinks = random_tensor(DType::bf16, {of.heads}, 4);
    if (of.slopes) slopes = random_tensor(DType::f32, {of.heads}, 5, 0, 0.1);
  }
  std::vector<Tensor> inputs(const std::vector<Token>& tokens) const {
    const auto t = static_cast<int64_t>(tokens.size());
    Tensor q(DType::f32, {1, t, what.heads, what.d}), positions(DType::i32, {1, t}), segments(DType::i64, {1, t});
    const int64_t bytes = what.heads * what.d * 4;
    for (int64_t i = 0; i < t; ++i) {
      const Token& token = tokens[static_cast<size_t>(i)];
      const int64_t row = std::max(token.segment, 0) % 3 * 600 + token.position % 600;
      std::memcpy(q.data() + i * bytes, queries.data() + row * bytes, static_cast<size_t>(bytes));
      set_element(positions, i, token.position);
      set_element(segments, i, token.segment);
    }
    return {q, keys, values, positions, segments, table, sinks, slopes};
  }
  Attributes settings() const {
    return attributes({{"scale", 0.3}, {"window", what.window}, {"softcap", what.softcap}});
  }
  OutputType output(size_t tokens) const {
    return {DType::f32, {1, static_cast<int64_t>(tokens), what.heads, what.e}};
  }

  const AttentionCase what;
  int64_t columns;
  Tensor keys, values, table, queries, sinks, slopes;
};

class CudaAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(CudaAttention, EqualsTheReference) {
  const Pages pages(GetParam());
  const std::vector<Token> tokens{{0, 0},  {0, 1},   {2, 15},  {-1, 0},  {2, 16},
                                  {2, 17}, {1, 255}, {1, 256}, {1, 599}, {0, 300}};
  expect_reference("plait.PagedAttention", pages.settings(), pages.inputs(tokens), {pages.output(tokens.size())},
                   2e-5, 5e-6);
}

TEST_P(CudaAttention, ATokenHasTheSameBitsAloneAndInAPrompt) {
  const Pages pages(GetParam());
  std::vector<Token> many;
  for (int32_t i = 0; i < 70; ++i) many.push_back({i % 3, i * 8});
  const auto attend = [&](const std::vector<Token>& tokens) {
    return run_on_cuda("plait.PagedAttention", pages.settings(), pages.inputs(tokens),
                       {pages.output(tokens.size())})[0];
  };
  const Tensor whole = attend(many);
  const int64_t bytes = whole.bytes() / 70;
  for (size_t i : {0, 40, 69})
    EXPECT_EQ(std::memcmp(attend({many[i]}).data(), whole.data() + static_cast<int64_t>(i) * bytes,
                          static_cast<size_t>(bytes)),
              0)
        << i;
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttention,
                         testing::Values(AttentionCase{"plain"}, AttentionCase{"odd", 3, 3, 7, 5},
                                         AttentionCase{"one_group", 16, 1, 32, 32, 32, 0, DType::bf16},
                                         AttentionCase{"window", 4, 1, 16, 16, 48, 20, DType::bf16},
                                         AttentionCase{"softcap", 6, 2, 33, 65, 32, 0, DType::f32, 2.5},
                                         AttentionCase{"long_window", 4, 1, 16, 16, 20, 300},
                                         AttentionCase{"f16", 6, 2, 20, 24, 17, 0, DType::f16},
                                         AttentionCase{"sinks", 4, 2, 20, 24, 16, 1, DType::f32, 0, true},
                                         AttentionCase{"slopes", 5, 1, 20, 24, 16, 0, DType::f32, 0, true, true},
                                         AttentionCase{"many_heads", 18, 2, 8, 160, 16, 0, DType::bf16}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaAttentionFaults, AreReported) {
  const Pages pages(AttentionCase{"plain"});
  const auto status_of = [&](Token token, const Tensor& table) {
    std::vector<Tensor> inputs = pages.inputs({token});
    if (table.present()) inputs[5] = table;
    KernelStatus status;
    run_on_cuda("plait.PagedAttention", pages.settings(), inputs, {pages.output(1)}, {}, 0, &status);
    return std::tuple(status.code, status.operand, status.value);
  };
  const auto refused = KernelCode::index_out_of_range;
  EXPECT_EQ(status_of({3, 0}, {}), std::tuple(refused, 4, 3));
  EXPECT_EQ(status_of({0, 48}, tensor(DType::i32, {3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8})), std::tuple(refused, 3, 48));
  EXPECT_EQ(status_of({0, 20}, tensor(DType::i32, {1, 3}, {0, -1, 2})), std::tuple(refused, 5, -1));
  EXPECT_EQ(status_of({0, 20}, tensor(DType::i32, {1, 3}, {0, 999, 2})), std::tuple(refused, 5, 999));
  EXPECT_EQ(std::get<0>(status_of({0, 20}, {})), KernelCode::ok);
}

}  // namespace
}  // namespace plait::test
