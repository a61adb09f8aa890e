// plait.PagedAttention and plait.KvWrite: against the reference, and a query's bits in any company.
#include "kernels/cpu/attention/attention_tile.h"
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct AttentionCase {
  int64_t heads = 4, groups = 2, d = 20, e = 24, c = 16, window = 0;
  DType pages = DType::f32;
  double softcap = 0;
  bool sinks = false, slopes = false;
};

/// Tokens of some segments: what one call sees.
struct Token {
  int32_t segment, position;
};

/// Pages with contents for `segments` segments of up to `columns` pages each, in a shuffled order.
struct World {
  AttentionCase what;
  int64_t columns, segments;
  Tensor k_pages, v_pages, table, sinks, slopes;

  World(const AttentionCase& c, int64_t segments_, int64_t columns_, uint32_t seed)
      : what(c), columns(columns_), segments(segments_) {
    const int64_t pages = segments * columns + 3;
    std::vector<int32_t> order(static_cast<size_t>(pages));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    order.resize(static_cast<size_t>(segments * columns));
    table = Tensor::of<int32_t>(DType::i32, {segments, columns}, order);
    // Contents go by (segment, column), not by page number.
    k_pages = Tensor(c.pages, {pages, c.groups, c.d, c.c});
    v_pages = Tensor(c.pages, {pages, c.groups, c.c, c.e});
    Tensor k = random_tensor(c.pages, {segments * columns, c.groups, c.d, c.c}, 1);
    Tensor v = random_tensor(c.pages, {segments * columns, c.groups, c.c, c.e}, 2);
    for (int64_t i = 0; i < segments * columns; ++i) {
      copy(k, i, k_pages, order[static_cast<size_t>(i)]);
      copy(v, i, v_pages, order[static_cast<size_t>(i)]);
    }
    if (c.sinks) sinks = random_tensor(DType::f32, {c.heads}, 3);
    if (c.slopes) slopes = random_tensor(DType::f32, {c.heads}, 4, 0, 0.1);
  }

  static void copy(const Tensor& from, int64_t i, const Tensor& to, int64_t j) {
    auto bytes = static_cast<size_t>(from.bytes() / from.shape()[0]);
    std::memcpy(to.data() + static_cast<size_t>(j) * bytes, from.data() + static_cast<size_t>(i) * bytes, bytes);
  }

  /// The query of a token depends only on the token.
  Tensor queries(const std::vector<Token>& tokens) const {
    Tensor q(DType::f32, {1, static_cast<int64_t>(tokens.size()), what.heads, what.d});
    for (size_t i = 0; i < tokens.size(); ++i) {
      auto seed = static_cast<uint64_t>(tokens[i].segment + 1) * 100000 + static_cast<uint64_t>(tokens[i].position);
      Tensor one = random_tensor(DType::f32, {what.heads, what.d}, seed);
      std::memcpy(q.data() + static_cast<int64_t>(i) * one.bytes(), one.data(), static_cast<size_t>(one.bytes()));
    }
    return q;
  }

  Tensor run(const std::vector<Token>& tokens, int threads, std::string_view isa) const {
    const auto t = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> segments_of, positions;
    for (const Token& token : tokens) segments_of.push_back(token.segment), positions.push_back(token.position);
    Attributes attributes;
    attributes.set("scale", 0.3);
    attributes.set("window", what.window);
    attributes.set("softcap", what.softcap);
    return run_op(kernels(), "plait.PagedAttention", attributes,
                  {queries(tokens), k_pages, v_pages, Tensor::of<int32_t>(DType::i32, {1, t}, positions),
                   Tensor::of<int32_t>(DType::i32, {1, t}, segments_of), table, sinks, slopes},
                  {{DType::f32, {1, t, what.heads, what.e}}}, threads, nullptr, isa)[0];
  }
};

/// Instruction sets with a kernel for these pages, which rounds queries and weights from avx512_bf16 on.
std::vector<std::string> isas_of(const AttentionCase& c) {
  std::vector<std::string> out = whole_isas();
  if (has_isa("avx512_bf16") && c.pages == DType::bf16) out.push_back("avx512_bf16");
  return out;
}
void expect_near_reference(const Tensor& y, const Tensor& expected, std::string_view isa) {
  if (isa == "avx512_bf16") expect_near(y, expected, 0, 1e-2);
  else expect_near(y, expected, 1e-5, 3e-6);
}

std::vector<Token> range(int32_t segment, int32_t begin, int32_t end) {
  std::vector<Token> out;
  for (int32_t i = begin; i < end; ++i) out.push_back({segment, i});
  return out;
}

std::vector<AttentionCase> attention_cases() {
  return {{},
          {.heads = 3, .groups = 3, .d = 7, .e = 5},
          {.heads = 8, .groups = 1, .d = 32, .e = 32, .c = 32, .pages = DType::bf16},
          {.heads = 4, .groups = 1, .d = 16, .e = 16, .c = 48, .window = 20, .pages = DType::bf16},
          {.heads = 6, .groups = 2, .d = 33, .e = 65, .c = 32, .softcap = 2.5},
          {.heads = 4, .groups = 1, .d = 16, .e = 16, .c = 20, .window = 30},
          {.heads = 6, .groups = 2, .d = 20, .e = 24, .c = 17, .pages = DType::bf16},
          {.heads = 4, .groups = 2, .window = 1, .sinks = true},
          {.heads = 5, .groups = 1, .sinks = true, .slopes = true}};
}

TEST(CpuAttention, EqualsReference) {
  for (const AttentionCase& c : attention_cases()) {
    World world(c, 3, 6, 5);
    std::vector<Token> tokens = range(0, 0, 40);
    tokens.push_back({-1, 0});
    for (Token token : range(2, 60, 64)) tokens.push_back(token);
    tokens.push_back({1, 95});
    Tensor expected = world.run(tokens, 1, "reference");
    for (const std::string& isa : isas_of(c)) {
      for (int threads : {1, 2}) {
        SCOPED_TRACE(cat(isa, " d ", c.d, " e ", c.e, " window ", c.window, " threads ", threads));
        expect_near_reference(world.run(tokens, threads, isa), expected, isa);
      }
    }
  }
}

/// A single token, on one thread, is the measure; its bits must be the same in every mix.
TEST(CpuAttention, AQueryHasTheSameBitsInAnyCompany) {
  for (const AttentionCase& c : attention_cases())
    for (const std::string& isa : isas_of(c)) {
      SCOPED_TRACE(cat(isa, " d ", c.d, " e ", c.e, " window ", c.window));
      World world(c, 2, 5, 6), elsewhere(c, 2, 5, 77);
      std::vector<Token> prompt = range(0, 0, 70), mixed = {{1, 3}};
      for (Token token : range(0, 10, 37)) mixed.push_back(token);
      mixed.push_back({1, 50});
      for (const auto& tokens : {prompt, mixed}) {
        Tensor together = world.run(tokens, 1, isa);
        expect_equal_bits(world.run(tokens, 2, isa), together);
        expect_equal_bits(elsewhere.run(tokens, 2, isa), together);
        for (size_t i = 0; i < tokens.size(); i += 3) {
          Tensor alone = world.run({tokens[i]}, 1, isa);
          auto bytes = static_cast<size_t>(alone.bytes());
          EXPECT_EQ(0, std::memcmp(alone.data(), together.data() + i * bytes, bytes)) << "token " << i;
        }
      }
    }
}

TEST(CpuAttention, ALongContextIsSplitWithoutChangingBits) {
  for (int64_t window : {0, 700}) {
    AttentionCase c{.heads = 4, .groups = 1, .d = 64, .e = 64, .c = 32, .window = window, .pages = DType::bf16};
    World world(c, 1, 80, 8);
    for (const std::string& isa : isas_of(c)) {
      for (int32_t position : {511, 512, 2000, 2559}) {
        Tensor alone = world.run({{0, position}}, 1, isa);
        expect_equal_bits(world.run({{0, position}}, 2, isa), alone);
        Tensor chunk = world.run(range(0, position - 40, position + 1), 2, isa);
        EXPECT_EQ(0,
                  std::memcmp(alone.data(), chunk.data() + 40 * alone.bytes(), static_cast<size_t>(alone.bytes())));
        expect_near_reference(alone, world.run({{0, position}}, 1, "reference"), isa);
      }
    }
  }
}

TEST(CpuAttention, FreedPagesOutsideTheWindowAreNotRead) {
  AttentionCase c{.window = 10};
  World world(c, 1, 6, 9);
  for (const std::string& isa : isas_of(c)) {
    Tensor before = world.run({{0, 50}}, 1, isa);
    World freed = world;
    freed.table = Tensor::of<int32_t>(
        DType::i32, {1, 6},
        std::vector<int32_t>{-1, -1, world.table.as<int32_t>()[2], world.table.as<int32_t>()[3], -1, -1});
    expect_equal_bits(freed.run({{0, 50}}, 1, isa), before);
  }
}

/// A NaN among the keys that a query sees reaches its result, whether one score is NaN or all are.
TEST(CpuAttention, NaNScoresGiveNaN) {
  for (bool sinks : {false, true})
    for (int64_t first : {0, 15, 2000}) {
      for (DType pages : {DType::f32, DType::bf16}) {
        AttentionCase c{.d = 16, .e = 16, .pages = pages, .sinks = sinks};
        World world(c, 1, 160, 8);
        // Keys of page `column` of a segment are NaN from position `first` on.
        for (int64_t position = first; position < 2560; ++position) {
          const int64_t page = world.table.as<int32_t>()[position / c.c];
          for (int64_t i = 0; i < c.groups * c.d; ++i)
            set_element(world.k_pages, (page * c.groups * c.d + i) * c.c + position % c.c, NAN);
        }
        std::vector<std::string> all = isas_of(c);
        all.emplace_back("reference");
        for (const std::string& isa : all) {
          SCOPED_TRACE(cat(isa, " from ", first, sinks ? " with sinks" : ""));
          const Tensor y = world.run({{0, 2500}}, 2, isa);
          for (int64_t i = 0; i < y.elements(); ++i) ASSERT_TRUE(std::isnan(element(y, i))) << i;
        }
      }
    }
}

/// The loops of bf16 pages with the instructions' stand-ins, where there is AVX-512, against those that round nothing: a tile of tokens,
/// and each token for itself.
TEST(CpuAttention, EmulatedPairsOfNumbersAreNearUnroundedOnes) {
  if (!has_isa("avx512")) GTEST_SKIP() << "needs AVX-512";
  struct Sizes {
    int64_t heads, d, e, c, window;
  };
  for (const Sizes& sizes : {Sizes{4, 64, 64, 32, 0}, {3, 33, 41, 17, 0}, {2, 20, 70, 48, 9}}) {
    const int64_t heads = sizes.heads, d = sizes.d, e = sizes.e, c = sizes.c, window = sizes.window;
    SCOPED_TRACE(cat("d ", d, " e ", e, " c ", c));
    const int64_t pages = 3, tokens = 2 * c + 5 > 60 ? 60 : 2 * c + 5, rows = tokens * heads;
    const Tensor k = random_tensor(DType::bf16, {pages, d, c}, 1), v = random_tensor(DType::bf16, {pages, c, e}, 2);
    const Tensor q = random_tensor(DType::f32, {rows, d}, 3);
    std::vector<int32_t> positions(static_cast<size_t>(tokens)), table{2, 0, 1};
    for (int32_t i = 0; i < tokens; ++i) positions[static_cast<size_t>(i)] = i;
    auto run = [&](const cpu::AttentionTiles& tiles, int64_t first, int64_t count) {
      Tensor sums(DType::f32, {2, count * heads}), y(DType::f32, {count * heads, e});
      std::vector<float> scores(static_cast<size_t>(count * heads * cpu::score_stride(c)));
      std::vector<uint32_t> pairs(static_cast<size_t>(count * heads * cpu::pair_stride(d)));
      const cpu::AttentionSums of{sums.as<float>(), sums.as<float>() + count * heads, y.as<float>()};
      tiles.span({.q = q.as<float>() + first * heads * d,
                  .tokens = count,
                  .heads = heads,
                  .d = d,
                  .e = e,
                  .positions = positions.data() + first,
                  .k_pages = k.as<uint8_t>(),
                  .v_pages = v.as<uint8_t>(),
                  .k_stride = d * c * 2,
                  .v_stride = c * e * 2,
                  .c = c,
                  .dtype = DType::bf16,
                  .page_table = reinterpret_cast<const uint8_t*>(table.data()),
                  .first_page = 0,
                  .last_page = pages,
                  .scale = 0.3f,
                  .softcap = 0,
                  .window = window,
                  .slopes = nullptr,
                  .sums = of,
                  .scores = scores.data(),
                  .pairs = pairs.data()});
      tiles.finish(of, nullptr, count * heads, e, y.as<float>());
      return y;
    };
    const Tensor together = run(cpu::emulated_bf16_attention_tiles(), 0, tokens);
    expect_near(together, run(cpu::attention_tiles(cpu::Isa::avx512), 0, tokens), 0, 1e-2);
    for (int64_t i = 0; i < tokens; ++i)
      expect_equal_bits(test::rows(together, i * heads, (i + 1) * heads),
                        run(cpu::emulated_bf16_attention_tiles(), i, 1));
  }
}

TEST(CpuAttention, RefusesWhatIsOutOfRange) {
  World world({}, 2, 3, 10);
  for (const std::string& isa : whole_isas()) {
    auto status_of = [&](int32_t segment, int32_t position, const Tensor& table) {
      KernelStatus status;
      Attributes attributes;
      attributes.set("scale", 1.0);
      run_op(kernels(), "plait.PagedAttention", attributes,
             {world.queries({{segment, position}}), world.k_pages, world.v_pages,
              Tensor::of<int32_t>(DType::i32, {1, 1}, std::vector<int32_t>{position}),
              Tensor::of<int32_t>(DType::i32, {1, 1}, std::vector<int32_t>{segment}), table},
             {{DType::f32, {1, 1, 4, 24}}}, 1, &status, isa);
      return std::pair(status.code, status.operand);
    };
    const auto refused = KernelCode::index_out_of_range;
    EXPECT_EQ(status_of(2, 0, world.table), std::pair(refused, 4));
    EXPECT_EQ(status_of(0, 48, world.table), std::pair(refused, 3));
    EXPECT_EQ(status_of(0, 20, tensor(DType::i32, {2, 3}, {0, -1, 2, 3, 4, 5})), std::pair(refused, 5));
    EXPECT_EQ(status_of(0, 20, tensor(DType::i32, {2, 3}, {0, 99, 2, 3, 4, 5})), std::pair(refused, 5));
    EXPECT_EQ(status_of(0, 20, world.table).first, KernelCode::ok);
  }
}

TEST(CpuKvWrite, EqualsReferenceAndLeavesTheRest) {
  for (DType pages : {DType::f32, DType::bf16}) {
    Tensor k_pages = random_tensor(pages, {3, 2, 9, 16}, 11), v_pages = random_tensor(pages, {3, 2, 16, 7}, 12);
    Tensor k = random_tensor(DType::f32, {1, 4, 2, 9}, 13), v = random_tensor(DType::f32, {1, 4, 2, 7}, 14);
    Tensor slots = tensor(DType::i32, {1, 4}, {47, -1, 0, 18});
    expect_reference("plait.KvWrite", {}, {k_pages, v_pages, k, v, slots},
                     {{pages, {3, 2, 9, 16}}, {pages, {3, 2, 16, 7}}}, 0, 0);
    for (const std::string& isa : whole_isas()) {
      KernelStatus status;
      run_op(kernels(), "plait.KvWrite", {}, {k_pages, v_pages, k, v, tensor(DType::i32, {1, 4}, {0, 1, 48, 2})},
             {{pages, {3, 2, 9, 16}}, {pages, {3, 2, 16, 7}}}, 1, &status, isa);
      EXPECT_EQ(status.code, KernelCode::index_out_of_range);
      EXPECT_EQ(status.value, 48);
    }
  }
}

}  // namespace
}  // namespace plait::test
