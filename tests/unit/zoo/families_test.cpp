// The exports of one model hold one model: whatever dialect they are written in, raise makes the same canonical ops of
// them, with the same weights.
#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/support/zoo.h"

namespace plait::test {
namespace {

/// What the canonical ops of a raised graph are, and what their weights hold.
struct Canonical {
  std::map<std::string, int> ops;
  std::multiset<std::string> weights;  ///< shape and bytes, in f32
};

Canonical canonical(const ZooModel& model) {
  CompileOptions options = World::get().options();
  Canonical out;
  options.dump = [&](std::string_view pass, const Graph& graph) {
    if (pass != "raise") return;
    static const std::set<std::string, std::less<>> counted = {
        "plait.Linear",       "plait.Embedding", "plait.RoPE", "plait.PagedAttention", "RMSNormalization", "Gelu",
        "LayerNormalization", "Swish",           "Relu",       "plait.Experts"};
    for (const Node& node : graph.nodes) {
      if (!counted.count(node.op)) continue;
      // Tables of angles are looked up once a layer, or once in all.
      if (node.op == "plait.Embedding" && graph.value(node.inputs[1]).name != "input_ids") continue;
      ++out.ops[node.op];
      bool weighs = node.op == "plait.Linear" || node.op == "plait.Embedding" || node.op == "plait.Experts" ||
                    node.op.ends_with("Normalization");
      for (size_t k = 0; weighs && k < node.inputs.size(); ++k) {
        const auto& constant = node.inputs[k] == no_value ? nullptr : graph.value(node.inputs[k]).constant;
        if (!constant || !is_float(constant->dtype())) continue;
        Constant wide = *constant;
        wide.steps.push_back({RecipeStep::Kind::cast, {}, DType::f32});
        Tensor tensor = materialize(wide);
        out.weights.insert(tensor.shape().text() + std::string(reinterpret_cast<const char*>(tensor.data()),
                                                               static_cast<size_t>(tensor.bytes())));
      }
    }
  };
  Decoder found = recognise(imported(model), options);
  EXPECT_TRUE(found.recognised) << found.why_not;
  return out;
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, DialectsBecomeOneGraph) {
  std::optional<Canonical> first;
  std::string name;
  for (const ZooModel& model : zoo()) {
    if (model.family != GetParam() || !model.comparable) continue;
    SCOPED_TRACE(model.name + " beside " + name);
    Canonical now = canonical(model);
    if (!first) {
      first = std::move(now);
      name = model.name;
      continue;
    }
    EXPECT_EQ(now.ops, first->ops);
    EXPECT_EQ(now.weights.size(), first->weights.size());
    EXPECT_TRUE(now.weights == first->weights) << "weights differ";
  }
}

/// However experts are written, each mixture is one op.
TEST(Experts, AreOneOpInEveryDialect) {
  const std::map<std::string, int> layers = {{"deepseek_v3", 1}, {"gpt_oss", 2}, {"gpt_oss_fused", 2},
                                             {"granitemoe", 2},  {"lfm2_moe", 1}, {"mixtral", 2},
                                             {"qwen2_moe", 2},   {"qwen3_moe", 2}};
  size_t seen = 0;
  for (const ZooModel& model : zoo()) {
    auto family = layers.find(model.family);
    if (family == layers.end()) continue;
    ++seen;
    Decoder found = recognise(imported(model), World::get().options());
    int mixtures = 0;
    for (const auto& [what, count] : found.features())
      if (what.starts_with("Experts ")) mixtures += count;
    EXPECT_EQ(mixtures, family->second) << model.name;
  }
  EXPECT_GE(seen, layers.size());
}

std::vector<std::string> families() {
  std::map<std::string, int> count;
  for (const ZooModel& model : zoo()) count[model.family] += model.comparable;
  std::vector<std::string> out;
  for (const auto& [family, exports] : count)
    if (exports > 1) out.push_back(family);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(families()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace plait::test
