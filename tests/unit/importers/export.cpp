// What is read can be written again: the same file with its weights next to it, or with other weights.
#include "importers/onnx/export.h"

#include "core/base/mapped_file.h"
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class Export : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  ImportedModel written(const ModelBuilder& builder, const ExternalResolver& resolver = {},
                        const ChangedTensor& changed = {}) {
    export_model(blob_of(builder.bytes()), resolver, {changed}, folder_.string(), "m.onnx");
    return import_file((folder_ / "m.onnx").string(), test_ops());
  }
  onnx::ModelProto message() const {
    onnx::ModelProto out;
    std::string text = read_text_file((folder_ / "m.onnx").string());
    EXPECT_TRUE(out.ParseFromString(text));
    return out;
  }
  fs::path folder_ = fs::path(testing::TempDir()) / ("plait_export_" + std::to_string(getpid()));
};

std::string filled(int64_t bytes, int seed) {
  std::string out(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>((i * 31 + static_cast<size_t>(seed)) % 120);
  return out;
}

std::string output_bytes(const ImportedModel& model, size_t index) {
  const Tensor& tensor = *model.graph.constant(model.graph.outputs[index]);
  return std::string(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
}

TEST_F(Export, LargeInitializersGoBesideTheFile) {
  ModelBuilder b;
  b.initializer("large", 1, {512}).set_raw_data(filled(2048, 1));
  b.initializer("paged", 1, {20000}).set_raw_data(filled(80000, 2));
  b.initializer("small", 1, {2}).set_raw_data(filled(8, 3));
  auto& typed = b.initializer("typed", 1, {2});
  for (float value : {1.5f, -2.0f}) typed.add_float_data(value);
  for (const char* name : {"large", "paged", "small", "typed"}) b.output(name);
  b.model.set_doc_string("kept");
  auto& note = *b.model.add_metadata_props();
  note.set_key("k");
  note.set_value("v");
  ImportedModel before = b.import(), after = written(b);
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(output_bytes(after, k), output_bytes(before, k)) << k;
  EXPECT_EQ(text(after.graph), text(before.graph));
  EXPECT_EQ(after.metadata.at("k"), "v");
  onnx::ModelProto model = message();
  EXPECT_EQ(model.doc_string(), "kept");
  EXPECT_EQ(model.graph().initializer(0).data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(model.graph().initializer(1).external_data(1).value(), "4096") << "large ones begin a page";
  EXPECT_EQ(model.graph().initializer(2).data_location(), onnx::TensorProto::DEFAULT);
  EXPECT_EQ(fs::file_size(folder_ / "m.onnx.data"), 4096u + 80000u);
}

TEST_F(Export, ExternalDataAndWhatNodesHoldMoveAlong) {
  ModelBuilder b;
  std::string data = filled(8192, 5);
  auto resolver = [&](const std::string&) { return blob_of(data); };
  b.external("a", {512}, {{"location", "w.bin"}, {"offset", "3"}, {"length", "2048"}});
  b.external("b", {512}, {{"location", "w.bin"}, {"offset", "3"}, {"length", "2048"}});
  auto& tensor = *add_attribute(b.node("Constant", {}, {"c"}), "value", onnx::AttributeProto::TENSOR).mutable_t();
  tensor.set_data_type(1);
  tensor.add_dims(1024);
  tensor.set_raw_data(filled(4096, 7));
  for (const char* name : {"a", "b", "c"}) b.output(name);
  ImportedModel before = b.import(resolver), after = written(b, resolver);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(output_bytes(after, k), output_bytes(before, k)) << k;
  EXPECT_EQ(fs::file_size(folder_ / "m.onnx.data"), 2048u) << "what was shared is written once";
}

TEST_F(Export, ChangedTensorsTakeTheirPlaces) {
  ModelBuilder b;
  b.initializer("w", 1, {2}).set_raw_data(filled(8, 1));
  b.initializer("v", 1, {2}).set_raw_data(filled(8, 2));
  b.output("w");
  b.output("v");
  std::vector<float> numbers{3, 4};
  Tensor other = Tensor::of<float>(DType::f32, Shape{2}, numbers);
  ImportedModel after =
      written(b, {}, [&](const std::string& name) { return name == "w" ? std::optional(other) : std::nullopt; });
  EXPECT_EQ(after.graph.constant(after.graph.outputs[0])->as<float>()[1], 4);
  EXPECT_EQ(output_bytes(after, 1), filled(8, 2));
}

TEST_F(Export, NothingIsOverwrittenAndNothingHalfWrittenStays) {
  ModelBuilder b;
  b.initializer("w", 1, {512}).set_raw_data(filled(2048, 1));
  b.output("w");
  written(b);
  expect_error(Code::invalid_argument, {"m.onnx", "already"}, [&] { written(b); });
  expect_error(Code::invalid_argument, {"a/b"},
               [&] { export_model(blob_of(b.bytes()), {}, {}, folder_.string(), "a/b"); });
  fs::remove_all(folder_);
  b.external("x", {2}, {{"location", "gone.bin"}});
  expect_error(Code::not_found, {"tensor \"x\"", "gone.bin"}, [&] { written(b); });
  EXPECT_TRUE(fs::is_empty(folder_));
  b.model.mutable_graph()->mutable_initializer(0)->set_raw_data(filled(2047, 1));
  expect_error(Code::bad_model, {"2048"}, [&] { written(b); });
}

class ExportPlan : public Export {
 protected:
  ImportedModel planned(const ModelBuilder& builder) {
    unread_ = export_model(blob_of(builder.bytes()), {}, {{}, &plan_}, folder_.string(), "m.onnx");
    return import_file((folder_ / "m.onnx").string(), test_ops());
  }
  DeviceConfiguration plan_{
      "tensor=2",
      2,
      {{"w", {{1, {{3, 1}, {4, 2}}}}, {{0}, {1}}, {0, 1}}, {"v", {{0, {{8, 4}}}}, {{0, 1}, {1}}, {0, 1, 1, 0}}}};
  Names unread_;
};

ModelBuilder two_products() {
  ModelBuilder b;
  b.input("x", {"b", "8"});
  b.initializer("w", 1, {8, 12}).set_raw_data(filled(384, 1));
  b.initializer("v", 1, {8, 12}).set_raw_data(filled(384, 2));
  b.node("MatMul", {"x", "w"}, {"y"}).set_name("first");
  b.node("Gemm", {"x", "v", "w"}, {"z"}).set_name("second");
  b.output("y");
  b.output("z");
  return b;
}

TEST_F(ExportPlan, NodesSayItOfWhatTheyRead) {
  ModelBuilder b = two_products();
  b.model.set_doc_string("kept");
  ImportedModel before = b.import(), after = planned(b);
  EXPECT_EQ(text(after.graph), text(before.graph));
  EXPECT_EQ(after.ir_version, 11);
  EXPECT_EQ(after.warnings, before.warnings);
  EXPECT_EQ(unread_, Names{});
  ASSERT_EQ(after.configurations.size(), 1u);
  EXPECT_EQ(after.configurations[0].name, "tensor=2");
  EXPECT_EQ(after.configurations[0].devices, 2);
  EXPECT_EQ(after.configurations[0].tensors, plan_.tensors);
  onnx::ModelProto model = message();
  EXPECT_EQ(model.graph().node(0).device_configurations(0).sharding_spec_size(), 1);
  EXPECT_EQ(model.graph().node(1).device_configurations(0).sharding_spec_size(), 2);
  EXPECT_FALSE(model.graph().node(0).device_configurations(0).has_pipeline_stage());
  // All else is as it is without a plan.
  model.clear_configuration();
  model.set_ir_version(10);
  for (auto& node : *model.mutable_graph()->mutable_node()) node.clear_device_configurations();
  EXPECT_EQ(model.SerializeAsString(), b.bytes());
}

TEST_F(ExportPlan, OthersStayAndItsOwnAreReplaced) {
  ModelBuilder b = two_products();
  b.model.set_ir_version(12);
  for (const char* name : {"other", "tensor=2"}) {
    auto& one = *b.model.add_configuration();
    one.set_name(name);
    one.set_num_devices(5);
    auto& devices = *b.graph().mutable_node(0)->add_device_configurations();
    devices.set_configuration_id(name);
    devices.set_pipeline_stage(1);
  }
  ImportedModel after = planned(b);
  EXPECT_EQ(after.ir_version, 12);
  ASSERT_EQ(after.configurations.size(), 2u);
  EXPECT_EQ(after.configurations[0].devices, 5);
  EXPECT_EQ(after.configurations[1].devices, 2);
  EXPECT_EQ(after.configurations[1].tensors, plan_.tensors);
  EXPECT_EQ(after.graph.nodes[0].stage, 1) << "as the other specifies";
  EXPECT_EQ(message().graph().node(0).device_configurations_size(), 2);
}

TEST_F(ExportPlan, NodesGetTheStageOfWhatTheyRead) {
  ModelBuilder b;
  b.input("x", {"b", "8"});
  for (const char* name : {"table", "a", "c"}) b.initializer(name, 1, {8, 8}).set_raw_data(filled(256, 1));
  b.node("MatMul", {"x", "table"}, {"h0"}).set_name("first");
  b.node("Neg", {"x"}, {"mask"}).set_name("aside");
  b.node("MatMul", {"h0", "a"}, {"h1"}).set_name("second");
  b.node("Add", {"h1", "mask"}, {"h2"}).set_name("sum");
  b.node("MatMul", {"h2", "c"}, {"h3"}).set_name("third");
  b.node("MatMul", {"h3", "table"}, {"y"}).set_name("head");  // tied to the first
  b.output("y");
  auto& other = *b.model.add_configuration();
  other.set_name("other");
  other.set_num_devices(5);
  plan_ = {"pipeline=3", 3, {}, {{"table", {0, 2}}, {"a", {1}}, {"c", {2}}}};
  const ImportedModel after = planned(b);
  std::map<std::string, int32_t> stages;
  for (const Node& node : after.graph.nodes) stages[node.name] = node.stage;
  EXPECT_EQ(stages, (std::map<std::string, int32_t>{
                        {"first", 0}, {"aside", 0}, {"second", 1}, {"sum", 1}, {"third", 2}, {"head", 2}}));
  ASSERT_EQ(after.configurations.size(), 2u);
  EXPECT_EQ(after.configurations[0].name, "pipeline=3");
}

TEST_F(ExportPlan, NamesOfBodiesAndFunctionsAreTheirOwn) {
  ModelBuilder b;
  b.input("x", {"b", "8"});
  b.input("choice", {}, 9);
  b.initializer("w", 1, {8, 12}).set_raw_data(filled(384, 1));
  b.initializer("v", 1, {8, 12}).set_raw_data(filled(384, 2));
  auto& choice = b.node("If", {"choice"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& body = set_graph(choice, name);
    add_node(*body.mutable_node(), "MatMul", {"x", "w"}, {"z"});
    body.add_output()->set_name("z");
  }
  auto& other = *b.graph().mutable_node(0)->mutable_attribute(1)->mutable_g();
  auto& initializer = *other.add_initializer();
  initializer = b.graph().initializer(1);
  initializer.set_name("w");
  b.import_opset("local", 1);
  auto& function = b.function("f", {"w"}, {"r"});
  add_node(*function.mutable_node(), "Neg", {"w"}, {"r"});
  b.node("f", {"x"}, {"q"}, "local");
  b.output("y");
  b.output("q");
  planned(b);
  onnx::ModelProto model = message();
  EXPECT_EQ(unread_, Names{"v"});
  const auto& branches = model.graph().node(0);
  EXPECT_EQ(branches.attribute(0).g().node(0).device_configurations_size(), 1);
  EXPECT_EQ(branches.attribute(1).g().node(0).device_configurations_size(), 0) << "it has a w of its own";
  EXPECT_EQ(model.functions(0).node(0).device_configurations_size(), 0);
}

}  // namespace
}  // namespace plait
