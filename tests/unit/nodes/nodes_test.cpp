// Every case of the standard that the schema claims gives the standard's results, on the reference kernels and on the
// fast ones; every other is refused by an error that names op, domain, opset and node.
#include <gtest/gtest.h>
#include <onnx-ml.pb.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/base/text.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "importers/onnx/import.h"
#include "kernels/reference/base/numbers.h"
#include "tests/unit/support/golden.h"
#include "tests/unit/support/models.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/table.h"

namespace plait::test {
namespace {

/// The standard's own runner allows these; results of integers, bools and narrower formats are exact.
constexpr double relative = 1e-3;

/// Of bf16 two units in the last place, as there, and as much of f16: cases are computed in these types step by step.
double slack_of(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-6;
  return dtype == DType::f16 ? 0x1p-9 : relative;
}

/// What a case's results are compared by.
struct Measure {
  Measure(const std::vector<OpUse>& uses, const std::string& name) {
    by_value = !name.starts_with("test_training_dropout") || name.find("zero_ratio") != std::string::npos;
    // These draw other numbers than NumPy's generator.
    const std::set<std::string> random{"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                                       "RandomUniformLike"};
    for (const OpUse& use : uses) {
      by_value = by_value && !random.count(use.op);
      // NumPy transforms f32 in f32: sums that cancel leave some 2e-7 of numbers up to 50.
      if (use.op == "DFT" || use.op == "STFT") absolute = 1e-6;
    }
  }
  Measure() = default;
  double absolute = 1e-7;
  bool by_value = true;  ///< otherwise by type and shape
};

bool close(double got, double expected, double absolute, double slack) {
  if (std::isnan(got) || std::isnan(expected)) return std::isnan(got) && std::isnan(expected);
  if (got == expected) return true;
  return std::fabs(got - expected) <= absolute + slack * std::fabs(expected);
}

std::string difference(const TensorView& got, const TensorView& expected, const Measure& measure) {
  if (got.dtype != expected.dtype)
    return cat("dtype ", dtype_name(got.dtype), ", expected ", dtype_name(expected.dtype));
  if (!(got.shape == expected.shape)) return cat("shape ", got.shape.text(), ", expected ", expected.shape.text());
  if (got.dtype == DType::string) {
    for (int64_t i = 0; i < got.elements(); ++i)
      if (packed_string(got, i) != packed_string(expected, i))
        return cat("element ", i, " is ", quote(packed_string(got, i)), ", expected ", quote(packed_string(expected, i)));
    return {};
  }
  for (int64_t i = 0; i < got.elements() && measure.by_value; ++i) {
    if (!is_float(got.dtype)) {
      if (reference::get_bits(got, i) != reference::get_bits(expected, i))
        return cat("element ", i, " of ", dtype_name(got.dtype), " has bits ", reference::get_bits(got, i),
                   ", expected ", reference::get_bits(expected, i));
      continue;
    }
    auto a = reference::load_one<double>(got, i), b = reference::load_one<double>(expected, i);
    if (!close(a, b, measure.absolute, slack_of(got.dtype))) return cat("element ", i, " is ", a, ", expected ", b);
  }
  return {};
}

class NodeCase : public testing::TestWithParam<std::string> {};

void run(const Graph& graph, const KernelTable& kernels, const DataSet& data, const Measure& measure, std::string_view how) {
  static ThreadPool pool{2};
  CompileOptions options{World::get().ops, kernels};
  PlainModel model = compile_plain(graph, options);
  Store store;
  store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
  Executor executor(model.program, store, pool);
  std::vector<TensorView> inputs;
  for (const Tensor& tensor : data.inputs) inputs.push_back(tensor.view());
  executor.run(inputs);
  ASSERT_EQ(model.program->outputs.size(), data.outputs.size());
  for (size_t k = 0; k < data.outputs.size(); ++k)
    EXPECT_EQ(difference(executor.copy_of_output(static_cast<int>(k)).view(), data.outputs[k].view(), measure), "")
        << "output " << k << " " << model.program->output_names[k] << " by the " << how << " kernels";
}

/// Whether the refusal is one that the claims foretell, and names what is refused and where.
void expect_good_refusal(const std::string& refusal, const std::vector<OpUse>& uses, const OpSet& ops) {
  bool unclaimed =
      refusal.find("does not take") != std::string::npos || refusal.find("is no tensor") != std::string::npos;
  bool named = false;
  for (const OpUse& use : uses) {
    auto row = ops.all().find(use.op);
    unclaimed |= !use.domain.empty() || row == ops.all().end() || use.opset < row->second.oldest;
    std::string domain = quote(use.domain.empty() ? "ai.onnx" : use.domain);
    named |= refusal.find(use.op) != std::string::npos &&
             refusal.find(cat("opset ", use.opset)) != std::string::npos &&
             refusal.find(cat("domain ", domain)) != std::string::npos && refusal.find("node ") != std::string::npos;
  }
  EXPECT_TRUE(unclaimed) << "all that it holds is claimed, and it is refused: " << refusal;
  EXPECT_TRUE(named) << "names no node with op, domain and opset: " << refusal;
}

TEST_P(NodeCase, IsAsTheStandardSaysOrRefused) {
  const std::string& name = GetParam();
  const World& world = World::get();
  std::vector<OpUse> uses = ops_of(name);
  std::string what;
  for (const OpUse& use : uses) what += cat(" ", use.domain, use.domain.empty() ? "" : ".", use.op, "-", use.opset);
  SCOPED_TRACE(cat("case ", name, " of", what));
  try {
    Judged judged = judge(name, reference_options());
    if (!judged.graph) return expect_good_refusal(judged.refusal, uses, world.ops);
    for (const DataSet& data : data_sets(name)) {
      run(*judged.graph, reference_options().kernels, data, Measure(uses, name), "reference");
      run(*judged.graph, world.kernels, data, Measure(uses, name), "fast");
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.message();
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NodeCase);
INSTANTIATE_TEST_SUITE_P(Standard, NodeCase, testing::ValuesIn(case_names()),
                         [](const auto& info) { return info.param; });

/// Cases of models; of nets of images the fast kernels only. ai.onnx.preview.training's Gradient is refused.
class ModelCase : public testing::TestWithParam<std::string> {};

TEST_P(ModelCase, IsAsTheStandardSays) {
  const std::string& name = GetParam();
  try {
    Judged judged = judge(name, reference_options());
    if (!judged.graph) {
      EXPECT_TRUE(name.starts_with("model_simple_gradient_of_")) << judged.refusal;
      return expect_good_refusal(judged.refusal, ops_of(name), World::get().ops);
    }
    for (const DataSet& data : data_sets(name)) {
      if (!name.starts_with("model_light_")) run(*judged.graph, reference_options().kernels, data, {}, "reference");
      run(*judged.graph, World::get().kernels, data, {}, "fast");
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.message();
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModelCase);
INSTANTIATE_TEST_SUITE_P(Standard, ModelCase, testing::ValuesIn(model_names()), [](const auto& info) { return info.param; });

TEST(NodeCases, AreThere) {
  if (!case_names().empty()) {
    EXPECT_EQ(model_names().size(), 149u) << "tests/unit/nodes/fetch.sh makes them again";
    EXPECT_EQ(case_names().size(), 1884u) << case_folder() << " is not what tests/unit/nodes/fetch.sh makes";
    return;
  }
  // ctest looks for this line, and reports the suite as skipped.
  std::printf("NOT RUN: no node tests in %s; tests/unit/nodes/fetch.sh fetches them\n", case_folder().c_str());
  GTEST_SKIP();
}

/// The standard's case of a Scan before opset 9 with two samples, of which one has fewer elements.
TEST(NodeCases, SequencesOfAScanHaveLengths) {
  const std::filesystem::path from = case_folder() / "test_scan_sum" / "model.onnx";
  if (!std::filesystem::exists(from)) GTEST_SKIP() << "NOT RUN: no node tests";
  onnx::ModelProto model;
  std::ifstream file(from, std::ios::binary);
  ASSERT_TRUE(model.ParseFromIstream(&file));
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.mutable_node(0)->set_input(0, "lengths");
  for (auto* values : {graph.mutable_input(), graph.mutable_output()})
    for (auto& value : *values) value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(2);
  onnx::ValueInfoProto& lengths = *graph.add_input();
  lengths.set_name("lengths");
  lengths.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  lengths.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(2);
  const std::filesystem::path changed = std::filesystem::temp_directory_path() / cat("plait_scan_", getpid(), ".onnx");
  std::ofstream(changed, std::ios::binary) << model.SerializeAsString();
  const Graph read = import_file(changed.string(), World::get().ops).graph;
  std::filesystem::remove(changed);
  auto floats = [](const Shape& shape, const std::vector<float>& values) { return Tensor::of<float>(DType::f32, shape, values); };
  const std::vector<int64_t> counts{2, 3};
  const DataSet data{
      {floats({2, 2}, {0, 0, 0, 1}), floats({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), Tensor::of_ints(counts)},
      {floats({2, 2}, {4, 6, 27, 31}), floats({2, 3, 2}, {1, 2, 4, 6, 0, 0, 7, 9, 16, 19, 27, 31})}};
  run(read, reference_options().kernels, data, Measure({}, ""), "reference");
  run(read, World::get().kernels, data, Measure({}, ""), "fast");
}

TEST(OpsTable, IsWhatTheSchemaSays) {
  const OpSet& ops = World::get().ops;
  // Without the cases at hand their numbers are taken from the page.
  CaseCounts counts = case_names().empty() ? counts_in(golden("docs/ops.md")) : count_cases(reference_options());
  std::string table = ops_table(ops, counts);
  expect_golden("docs/ops.md", table, "unit.nodes");
  EXPECT_EQ(ops_table(ops, counts_in(table)), table);
}

TEST(OpsTable, OpsOfMicrosoftAreThereOrMissingForAReason) {
  EXPECT_EQ(faults_of_microsoft_table(World::get().ops), std::vector<std::string>{});
}

TEST(OpsTable, EveryOpOfTheStandardIsClaimedWithTypesThatItsKernelTakes) {
  const World& world = World::get();
  for (const auto& [name, row] : world.ops.all()) {
    bool standard = name.find('.') == std::string::npos && name != "SimplifiedLayerNormalization";  // ONNX Runtime's
    if (!standard || !row.written_as.empty()) continue;
    EXPECT_GT(row.oldest, 0) << name << " has no row in core/ops/claims.cpp";
    EXPECT_LE(row.oldest, row.since) << name;
    bool by_program = name == "If" || name == "Loop" || name == "Scan";
    for (int number = 1; number <= static_cast<int>(DType::i2) && !by_program; ++number) {
      auto dtype = static_cast<DType>(number);
      const TypeSet* first = TypeRule::of(row.type_rule.operands, 0);
      std::vector<OperandInfo> inputs(static_cast<size_t>(std::max(row.min_inputs, 1)),
                                      OperandInfo{dtype, -1, false});
      if (!first || !first->has(dtype)) continue;
      EXPECT_NE(world.kernels.reference({name, {}, inputs, {}}), nullptr) << name << " of " << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace plait::test
