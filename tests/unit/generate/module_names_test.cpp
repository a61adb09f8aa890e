// Names of adapters are those of PEFT's modules, and whatever names they had before are read.
#include "core/passes/adapt/module_names.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/train/trained_weights.h"
#include "tests/unit/support/models.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

TEST(ModuleNames, AreThoseOfTheHuggingFaceModel) {
  const std::pair<const char*, const char*> names[] = {
      {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj"},
      {"model.layers.0.self_attn.q_proj.qweight", "model.layers.0.self_attn.q_proj"},
      {"/model/layers.3/self_attn/o_proj/MatMul", "model.layers.3.self_attn.o_proj"},
      {"/model/layers.3/mlp/down_proj/MatMul_Q4", "model.layers.3.mlp.down_proj"},
      {"/model/layers.3/mlp/down_proj/MatMul_matmul_Q4", "model.layers.3.mlp.down_proj"},
      {"/transformer/h.11/mlp/c_fc/Gemm_1", "transformer.h.11.mlp.c_fc"},
      {"/model/layers.12/attn/qkv_proj/MatMul_Q4", "model.layers.12.attn.qkv_proj"},
      {"model.layers.12.attn.o_proj.MatMul.weight_Q4", "model.layers.12.self_attn.o_proj"},
      {"lm_head.MatMul.weight", "lm_head"},
      {"transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn"},
      {"/transformer/h.0/attn/q_proj/MatMul", "transformer.h.0.attn.q_proj"},
      {"node_linear_3", "node_linear_3"},
      {"node_MatMul_12", "node_MatMul_12"},
      {"linear.7", "linear.7"},
  };
  for (const auto& [name, module] : names) {
    EXPECT_EQ(module_of_name(name), module);
    EXPECT_EQ(module_of_name(module), module);
    EXPECT_TRUE(means(name, module)) << name;
  }
}

TEST(ModuleNames, OfPackedWeightsArePartsInOrder) {
  using Names = std::vector<std::string>;
  const PackedProduct three[] = {{0, 8}, {8, 4}, {12, 4}}, apart[] = {{0, 8}, {10, 4}};
  EXPECT_EQ(names_of_products("model.layers.0.attn.qkv_proj.MatMul.weight", three),
            (Names{"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                   "model.layers.0.self_attn.v_proj"}));
  EXPECT_EQ(names_of_products("/model/layers.0/self_attn/qkv_proj/MatMul", three),
            (Names{"model.layers.0.self_attn.qkv_proj", "model.layers.0.self_attn.qkv_proj.part1",
                   "model.layers.0.self_attn.qkv_proj.part2"}));
  EXPECT_EQ(names_of_products("a.b.weight", apart), (Names{"a.b", "a.b.copy1"}));
}

class PackedAdapters : public testing::TestWithParam<const char*> {
 protected:
  TrainingEngine engine() {
    TrainingOptions options;
    options.row_tokens = 32;
    options.lora.rank = 2;
    return TrainingEngine(fixture_graph(GetParam()), World::get().options(DType::f32), options, pool_);
  }
  PackedRow row() const {
    const std::vector<TrainingSample> samples{{ids_, {}}};
    return fill_row(samples, std::vector<int64_t>{0});
  }
  const std::vector<int32_t> ids_{5, 9, 40, 7, 61, 33, 21, 8, 17, 50, 3};
  Folder folder_;
  ThreadPool pool_{2};
};

/// What is saved is read again, by an engine and as weights of the file; and its modules are whole ones.
TEST_P(PackedAdapters, ComeBack) {
  TrainingEngine first = engine();
  first.accumulate({.rows = {row()}, .weight = 0.1});
  first.update(1, 0.05);
  const double loss = first.evaluate({.rows = {row()}});
  save_adapter(first, folder_.path());
  const AdapterWeights file = read_adapter(folder_.path());
  for (const auto& [module, pair] : file.modules) {
    EXPECT_EQ(module_of_name(module), module);
    EXPECT_EQ(module.find(".part"), std::string::npos) << module;
    EXPECT_EQ(module.find('/'), std::string::npos) << module;
    EXPECT_EQ(module.find(".attn.qkv_proj"), std::string::npos) << module;
  }
  TrainingEngine again = engine();
  EXPECT_NE(again.evaluate({.rows = {row()}}), loss);
  load_adapter(again, folder_.path());
  EXPECT_EQ(again.evaluate({.rows = {row()}}), loss);
}

/// The same by the names of the file, and by those of products.
TEST_P(PackedAdapters, GiveRequestsTheSame) {
  TrainingEngine first = engine();
  first.accumulate({.rows = {row()}, .weight = 0.1});
  first.update(1, 0.05);
  save_adapter(first, folder_.path());
  const AdapterWeights own = adapter_of(first), file = read_adapter(folder_.path());
  CompileOptions compile = World::get().options(DType::f32);
  compile.adapters = {.slots = 2, .rank = 2};
  for (const auto& [module, pair] : file.modules) compile.adapters.modules.push_back(module);
  auto made = make_engine(fixture_graph(GetParam()), compile, small_engine());
  auto logits = [&](const AdapterWeights& weights) {
    auto sequence = made->open({}, 0, made->add_adapter("a", weights));
    EXPECT_TRUE(made->reserve(*sequence, static_cast<int64_t>(ids_.size())));
    Feed feed{sequence.get(), ids_, 4, {}, {}};
    made->step({&feed, 1});
    return std::vector<float>(feed.logits.begin(), feed.logits.end());
  };
  EXPECT_EQ(logits(own), logits(file));
}

/// Whatever exported a model, and with whatever wrapper around it, adapters have the names of the model itself: what was trained on
/// one export fits the other.
TEST(ModuleNames, AreTheSameOfEveryExporter) {
  const std::pair<const char*, const char*> pairs[] = {
      {"llama-standard23", "llama-dynamo23"},         {"gemma3-optimum18", "gemma3-dynamo23"},
      {"zoo/gptj/optimum18", "zoo/gptj/dynamo18"},    {"zoo/bloom/optimum18", "zoo/bloom/dynamo18"},
      {"zoo/llama/genai_fp32", "zoo/llama/dynamo23"}, {"zoo/gemma2/genai_fp32", "zoo/gemma2/dynamo18"}};
  const std::vector<int32_t> ids{5, 9, 40, 7, 61, 33, 21, 8, 17, 50, 3};
  const std::vector<TrainingSample> samples{{ids, {}}};
  const PackedRow row = fill_row(samples, std::vector<int64_t>{0});
  ThreadPool pool(2);
  TrainingOptions options;
  options.row_tokens = 32;
  options.lora.rank = 2;
  for (const auto& [named, dynamo] : pairs) {
    SCOPED_TRACE(dynamo);
    Folder folder;
    TrainingEngine first(fixture_graph(named), World::get().options(DType::f32), options, pool),
        second(fixture_graph(dynamo), World::get().options(DType::f32), options, pool);
    first.accumulate({.rows = {row}, .weight = 0.1});
    first.update(1, 0.05);
    save_adapter(first, folder.path());
    const double before = second.evaluate({.rows = {row}}), loss = first.evaluate({.rows = {row}});
    load_adapter(second, folder.path());
    EXPECT_NEAR(second.evaluate({.rows = {row}}), loss, 1e-4 * loss);
    EXPECT_GT(std::fabs(before - loss), 1e-3 * loss);
  }
}

std::string name_of_model(const testing::TestParamInfo<const char*>& info) {
  std::string out = info.param;
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
}

INSTANTIATE_TEST_SUITE_P(Zoo, PackedAdapters,
                         testing::Values("zoo/phi3/optimum18", "zoo/mpt/optimum18", "gpt2-optimum18",
                                         "zoo/llama/genai_fp32", "zoo/llama/genai_int4", "zoo/persimmon/dynamo18",
                                         "zoo/phi3_long/dynamo18", "zoo/mixtral/dynamo18"),
                         name_of_model);

/// Of models that have packed modules themselves.
class PackedModules : public PackedAdapters {};

/// An adapter of PEFT's: one for all parts of a packed weight.
TEST_P(PackedModules, OfOneRankAreReadForEachPart) {
  TrainingEngine first = engine();
  const AdapterWeights own = adapter_of(first);
  AdapterWeights whole = as_modules(own, first.model().decoder);
  bool is_packed = false;
  for (auto& [module, pair] : whole.modules) {
    is_packed = is_packed || pair.a.shape()[0] != own.rank;
    const int64_t k = pair.a.shape()[1], n = pair.b.shape()[0];
    pair = {Tensor(DType::f32, {own.rank, k}), Tensor(DType::f32, {n, own.rank})};
    for (int64_t i = 0; i < pair.a.elements(); ++i) pair.a.as<float>()[i] = std::sin(static_cast<float>(i));
    for (int64_t i = 0; i < pair.b.elements(); ++i) pair.b.as<float>()[i] = std::cos(static_cast<float>(i)) * 0.05F;
  }
  EXPECT_TRUE(is_packed);
  write_adapter(whole, folder_.path(), "");
  load_adapter(first, folder_.path());
  const AdapterWeights parts = adapter_of(first);
  std::map<std::string, int64_t> next;
  for (const auto& [module, pair] : parts.modules) {
    const std::string packed = module.substr(0, module.rfind(".part"));
    const AdapterWeights::Pair& from = whole.modules.at(packed);
    EXPECT_EQ(std::memcmp(pair.a.data(), from.a.data(), static_cast<size_t>(pair.a.bytes())), 0) << module;
    int64_t& begin = next[packed];  // parts are in order of their numbers
    EXPECT_EQ(std::memcmp(pair.b.data(), from.b.as<float>() + begin, static_cast<size_t>(pair.b.bytes())), 0)
        << module;
    begin += pair.b.elements();
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, PackedModules, testing::Values("zoo/phi3/optimum18", "gpt2-optimum18"), name_of_model);

/// Queries and values of PEFT's, each with an a of its own, as the builder's one product: all ranks are wider, the changes the same.
TEST(BuilderAdapters, ArePutTogether) {
  auto matrix = [](int64_t rows, int64_t columns, float first) {
    Tensor out(DType::f32, {rows, columns});
    for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = first + static_cast<float>(i);
    return out;
  };
  const std::string layer = "model.layers.0.";
  AdapterWeights file{.rank = 2, .alpha = 6};
  file.modules[layer + "self_attn.q_proj"] = {matrix(2, 3, 1), matrix(4, 2, 10)};
  file.modules[layer + "self_attn.v_proj"] = {matrix(2, 3, 20), matrix(2, 2, 30)};
  file.modules[layer + "mlp.up_proj"] = {matrix(2, 3, 40), matrix(5, 2, 50)};
  const std::vector<AdaptedLinear> products{{layer + "attn.qkv_proj", 3, 8}, {layer + "mlp.up_proj", 3, 5}};
  const AdapterWeights got = as_products(file, products);
  EXPECT_EQ(got.rank, 4);
  EXPECT_EQ(got.alpha, 12);
  ASSERT_EQ(got.modules.size(), 2u);
  auto change = [](const AdapterWeights::Pair& pair, int64_t row, int64_t column) {
    float sum = 0;
    const int64_t rank = pair.a.shape()[0], k = pair.a.shape()[1];
    for (int64_t i = 0; i < rank; ++i) sum += pair.b.as<float>()[row * rank + i] * pair.a.as<float>()[i * k + column];
    return sum;
  };
  const auto &qkv = got.modules.at(layer + "attn.qkv_proj"), &up = got.modules.at(layer + "mlp.up_proj");
  const auto &q = file.modules.at(layer + "self_attn.q_proj"), &v = file.modules.at(layer + "self_attn.v_proj");
  for (int64_t column = 0; column < 3; ++column) {
    for (int64_t row = 0; row < 8; ++row)
      EXPECT_EQ(change(qkv, row, column), row < 4   ? change(q, row, column)
                                          : row < 6 ? 0
                                                    : change(v, row - 6, column));
    for (int64_t row = 0; row < 5; ++row)
      EXPECT_EQ(change(up, row, column), change(file.modules.at(layer + "mlp.up_proj"), row, column));
  }
}

/// The builder's packed queries, keys and values are three modules, and the names that they had before are read.
TEST(BuilderAdapters, AreModulesOfTheirOwn) {
  ThreadPool pool(2);
  Folder folder;
  TrainingOptions options;
  options.row_tokens = 32;
  options.lora.rank = 2;
  TrainingEngine engine(fixture_graph("zoo/llama/genai_fp32"), World::get().options(DType::f32), options, pool);
  const AdapterWeights own = adapter_of(engine);
  for (const char* module : {"q_proj", "k_proj", "v_proj", "o_proj"})
    ASSERT_TRUE(own.modules.contains(std::string("model.layers.0.self_attn.") + module)) << module;
  AdapterWeights before = own;
  before.modules.clear();
  auto value = [](const Tensor& like, float first) {
    Tensor out(DType::f32, like.shape());
    for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = first + static_cast<float>(i);
    return out;
  };
  std::map<std::string, std::string> renamed;
  for (const auto& [module, pair] : own.modules) {
    std::string old = module;
    for (const auto& [now, then] : {std::pair(".self_attn.q_proj", ".attn.qkv_proj.MatMul"),
                                    std::pair(".self_attn.k_proj", ".attn.qkv_proj.MatMul.part1"),
                                    std::pair(".self_attn.v_proj", ".attn.qkv_proj.MatMul.part2"),
                                    std::pair(".self_attn.o_proj", ".attn.o_proj.MatMul")})
      if (module.ends_with(now)) old = module.substr(0, module.size() - std::strlen(now)) + then;
    if (old == module) old += ".MatMul";
    renamed[module] = old;
    before.modules[old] = {value(pair.a, 1), value(pair.b, static_cast<float>(renamed.size()))};
  }
  write_adapter(before, folder.path(), "");
  load_adapter(engine, folder.path());
  for (const auto& [module, pair] : adapter_of(engine).modules) {
    const AdapterWeights::Pair& there = before.modules.at(renamed.at(module));
    EXPECT_EQ(std::memcmp(pair.b.data(), there.b.data(), static_cast<size_t>(pair.b.bytes())), 0) << module;
  }
}

}  // namespace
}  // namespace plait::test
