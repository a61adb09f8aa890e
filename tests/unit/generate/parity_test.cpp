// Every fixture's decoder is recognised, and the raised program, the graph as written and the reference kernels
// give the same logits.
#include <gtest/gtest.h>

#include <cmath>

#include "core/generate/engines.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/models.h"
#include "tests/unit/support/rounding_kernels.h"

namespace plait::test {
namespace {

class Fixture : public testing::TestWithParam<const char*> {};

TEST_P(Fixture, RaisedEqualsTheFile) {
  const World& world = World::get();
  Graph graph = fixture_graph(GetParam());
  std::vector<int32_t> ids = some_ids(45);
  auto raised = make_engine(graph, world.options(DType::f32), small_engine());
  ASSERT_TRUE(raised->decoder().recognised) << raised->decoder().why_not;
  auto plain = make_plain_engine(graph, world.options(), small_engine(), nullptr);
  std::vector<float> expected = logits(*plain, ids, nullptr, 45);
  std::vector<float> got = logits(*raised, ids, nullptr, 24);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_LT(relative_error(got, expected), 1e-4);
  // However the tokens are cut into steps, the bits are the same.
  for (size_t chunk : {size_t{1}, size_t{5}, size_t{16}})
    EXPECT_EQ(logits(*raised, ids, nullptr, chunk), got) << "chunks of " << chunk;
}

TEST_P(Fixture, ReferenceKernelsAgree) {
  Graph graph = fixture_graph(GetParam());
  KernelTable reference;
  register_reference_kernels(reference);
  CompileOptions slow{World::get().ops, reference};
  slow.dtype = DType::f32;
  auto a = make_engine(graph, slow, small_engine());
  auto b = make_engine(graph, World::get().options(DType::f32), small_engine());
  std::vector<int32_t> ids = some_ids(20);
  // With weights of bf16 a device multiplies x as the sum of two bf16, which is 17 bits of it.
  EXPECT_LT(relative_error(logits(*a, ids, nullptr, 20), logits(*b, ids, nullptr, 20)),
            World::get().device == DeviceKind::host ? 1e-5 : 1e-4);
}

TEST_P(Fixture, Bf16StaysClose) {
  Graph graph = fixture_graph(GetParam());
  auto a = make_engine(graph, World::get().options(DType::bf16), small_engine());
  auto b = make_engine(graph, World::get().options(DType::f32), small_engine());
  EXPECT_EQ(a->decoder().cache_dtype, DType::bf16);
  std::vector<float> got = logits(*a, some_ids(20), nullptr, 20), expected = logits(*b, some_ids(20), nullptr, 20);
  double error = 0, power = 0;
  for (size_t i = 0; i < got.size(); ++i)
    error += (got[i] - expected[i]) * (got[i] - expected[i]), power += expected[i] * expected[i];
  // Each weight moves by up to 2^-9 of itself, here against unrounded ones: a few times 1e-5 in power.
  EXPECT_LT(error / power, 3e-3);
}

/// Kernels of an instruction set, or those that round x, or the reference's. Attention over pages of bf16 rounds queries, too, where there
/// are instructions for such pairs: it is left out.
std::vector<float> bf16_logits(const Graph& graph, const std::string& isa) {
  KernelTable all, table;
  if (isa == "rounding") register_rounding_kernels(all);
  else register_reference_kernels(all);
  if (isa != "rounding" && isa != "reference") register_cpu_kernels(all, isa);
  for (const std::unique_ptr<Kernel>& kernel : all.all())
    if (kernel->op != "plait.PagedAttention" || kernel->isa != "avx512_bf16") table.add(*kernel);
  CompileOptions options{World::get().ops, table};
  options.dtype = DType::bf16;
  return logits(*make_engine(graph, options, small_engine()), some_ids(20), nullptr, 20);
}

/// docs/dev/generation.md, "Bits": with dtype bf16 weights are rounded on every instruction set, x of products from avx512_bf16 on.
TEST_P(Fixture, Bf16RoundsXWhereThereAreProductsOfPairs) {
  if (World::get().device != DeviceKind::host) GTEST_SKIP() << "is about kernels of the processor";
  const Graph graph = fixture_graph(GetParam());
  const std::vector<float> exact = bf16_logits(graph, "reference"), rounded = bf16_logits(graph, "rounding");
  // Sums in another order let a number that is rounded to bf16, of x or of the cache, fall on the other side: 2^-8 of one of k >= 64
  // operands, which is 2^-8 / sqrt(64) = 5e-4 of a sum. Where all of x is rounded, logits move by 1e-2 or more.
  constexpr double limit = 2e-3;
  for (const std::string& isa : isas()) {
    SCOPED_TRACE(isa);
    const bool rounds = isa == "avx512_bf16" || isa == "amx";
    const std::vector<float> got = bf16_logits(graph, isa);
    EXPECT_LT(relative_error(got, rounds ? rounded : exact), limit);
    if (rounded != exact) EXPECT_GT(relative_error(got, rounds ? exact : rounded), 2 * limit);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fixture,
                         testing::Values("gpt2-optimum18", "llama-untied-optimum18", "gemma3-optimum18",
                                         "qwen2-optimum18", "llama-dynamo23", "gemma3-dynamo23", "qwen3-dynamo23",
                                         "llama-standard23", "gemma3-standard23", "gemma3-plain18", "llama-layerfn23",
                                         "gemma3-standard23-bf16", "llama-standard23-f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace plait::test
