// Multi-device annotations: what is read of a file's, and that none of them, however wrong, keeps a model from loading.
#include <gmock/gmock.h>

#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A node that reads the weight "w" of [6, 8], which is annotated in the configuration "two" of two devices.
struct Annotated : ModelBuilder {
  Annotated() {
    input("x", {"b", "6"});
    initializer("w", 1, {6, 8}).set_raw_data(std::string(192, 'w'));
    auto& one = *model.add_configuration();
    one.set_name("two");
    one.set_num_devices(2);
    output("y");
    devices().set_configuration_id("two");
    spec().set_tensor_name("w");
  }
  onnx::NodeProto& reader() {
    if (!graph().node_size()) node("MatMul", {"x", "w"}, {"y"}).set_name("n");
    return *graph().mutable_node(0);
  }
  onnx::NodeDeviceConfigurationProto& devices() {
    if (!reader().device_configurations_size()) reader().add_device_configurations();
    return *reader().mutable_device_configurations(0);
  }
  onnx::ShardingSpecProto& spec() {
    if (!devices().sharding_spec_size()) devices().add_sharding_spec();
    return *devices().mutable_sharding_spec(0);
  }
  /// Cuts an axis into so many shards of factors of so many; 0 leaves the size open.
  Annotated& cut(int64_t axis, const std::vector<std::pair<int64_t, int64_t>>& factors) {
    auto& dim = *spec().add_sharded_dim();
    dim.set_axis(axis);
    for (const auto& [size, shards] : factors) {
      auto& factor = *dim.add_simple_sharding();
      if (size) factor.set_dim_value(size);
      factor.set_num_shards(shards);
    }
    return *this;
  }
  Annotated& on(const std::vector<int64_t>& numbers) {
    for (int64_t number : numbers) spec().add_device(number);
    return *this;
  }
  Annotated& group(int64_t key, const std::vector<int64_t>& numbers) {
    auto& entry = *spec().add_index_to_device_group_map();
    entry.set_key(key);
    for (int64_t number : numbers) entry.add_value(number);
    return *this;
  }
};

/// The one spec that is read, without a warning.
ShardingSpec read(const Annotated& b) {
  ImportedModel model = b.import();
  EXPECT_THAT(model.warnings, testing::IsEmpty());
  EXPECT_EQ(model.configurations.size(), 1u);
  EXPECT_EQ(model.configurations.at(0).devices, 2);
  return model.configurations.at(0).tensors.at(0);
}
/// Nothing is read, with a warning.
void expect_passed_over(const Annotated& b, const Names& parts) {
  ImportedModel model = b.import();
  for (const DeviceConfiguration& one : model.configurations) EXPECT_THAT(one.tensors, testing::IsEmpty());
  ASSERT_EQ(model.warnings.size(), 1u) << parts[0];
  for (const std::string& part : parts) EXPECT_THAT(model.warnings[0], HasSubstr(part));
}

TEST(Devices, CutsAndGroups) {
  ShardingSpec spec = read(Annotated().cut(-1, {{0, 2}}).on({1, 0}));
  EXPECT_EQ(spec.tensor, "w");
  EXPECT_THAT(spec.axes, ElementsAre(ShardingSpec::Axis{1, {{8, 2}}}));
  EXPECT_THAT(spec.groups, ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(spec.holders, ElementsAre(0, 1));

  spec = read(Annotated().cut(0, {{3, 1}, {0, 2}}).cut(1, {{8, 2}}).on({0, -1, 1, -1}).group(-1, {1, 0}));
  EXPECT_THAT(spec.axes, ElementsAre(ShardingSpec::Axis{0, {{3, 1}, {2, 2}}}, ShardingSpec::Axis{1, {{8, 2}}}));
  EXPECT_THAT(spec.groups, ElementsAre(ElementsAre(0), ElementsAre(0, 1), ElementsAre(1)));
  EXPECT_THAT(spec.holders, ElementsAre(0, 1, 2, 1));

  spec = read(Annotated().on({7}).group(7, {0, 1}));
  EXPECT_THAT(spec.axes, testing::IsEmpty());
  EXPECT_THAT(spec.groups, ElementsAre(ElementsAre(0, 1)));
}

TEST(Devices, StagesAndSeveralConfigurations) {
  Annotated b;
  auto& four = *b.model.add_configuration();
  four.set_name("four");
  four.set_num_devices(4);
  b.cut(1, {{8, 2}}).on({0, 1});
  b.devices().set_pipeline_stage(3);
  auto& other = *b.reader().add_device_configurations();
  other.set_configuration_id("four");
  other.set_pipeline_stage(5);
  *other.add_sharding_spec() = b.spec();
  ImportedModel model = b.import();
  ASSERT_EQ(model.configurations.size(), 2u);
  EXPECT_EQ(model.configurations[1].name, "four");
  EXPECT_EQ(model.configurations[1].devices, 4);
  EXPECT_EQ(model.configurations[1].tensors, model.configurations[0].tensors);
  EXPECT_EQ(model.graph.nodes[0].stage, 3) << "of the first configuration";
}

TEST(Devices, AFunctionsParametersAndABodysCapturesAreTheWeights) {
  Annotated b;
  b.cut(1, {{8, 2}}).on({0, 1});
  const onnx::NodeProto reader = b.reader();
  auto& call = b.reader();
  call.set_op_type("f");
  call.set_domain("local");
  call.clear_device_configurations();
  b.import_opset("local", 1);
  auto& function = b.function("f", {"p", "q"}, {"r"});
  auto& inside = *function.add_node();
  inside = reader;
  inside.set_input(0, "p");
  inside.set_input(1, "q");
  inside.set_output(0, "r");
  inside.mutable_device_configurations(0)->mutable_sharding_spec(0)->set_tensor_name("q");
  EXPECT_EQ(read(b).tensor, "w");

  Annotated c;
  c.cut(1, {{8, 2}}).on({0, 1});
  onnx::NodeProto within = c.reader();
  within.set_output(0, "z");
  c.graph().clear_node();
  c.input("choice", {}, 9);
  auto& choice = c.node("If", {"choice"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& body = set_graph(choice, name);
    *body.add_node() = within;
    body.add_output()->set_name("z");
  }
  EXPECT_EQ(read(c).tensor, "w");
}

TEST(Devices, WhatIsWrongIsPassedOver) {
  expect_passed_over(Annotated().cut(2, {{8, 2}}).on({0, 1}), {"node \"n\"", "\"w\"", "axis 2", "rank 2"});
  expect_passed_over(Annotated().cut(-3, {{8, 2}}).on({0, 1}), {"axis -3"});
  expect_passed_over(Annotated().cut(INT64_MIN, {{8, 2}}).on({0, 1}), {"axis -9223372036854775808"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).cut(-1, {{8, 1}}).on({0, 1}), {"axis 1 is sharded twice"});
  expect_passed_over(Annotated().cut(1, {}).on({0}), {"axis 1", "number of shards"});
  expect_passed_over(Annotated().cut(1, {{8, 0}}).on({}), {"into 0 shards"});
  expect_passed_over(Annotated().cut(1, {{8, -2}}).on({0, 1}), {"into -2 shards"});
  expect_passed_over(Annotated().cut(1, {{8, 3}}).on({0, 1, 0}), {"8 has no 3 equal shards"});
  expect_passed_over(Annotated().cut(1, {{16, 2}}).on({0, 1}), {"size 8", "factor of 16"});
  expect_passed_over(Annotated().cut(1, {{-8, 2}}).on({0, 1}), {"factor of -8"});
  expect_passed_over(Annotated().cut(1, {{4, 2}}).on({0, 1}), {"size 8", "make 4"});
  expect_passed_over(Annotated().cut(1, {{0, 2}, {0, 1}}).on({0, 1}), {"two sizes", "open"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).on({0}), {"2 shards", "for 1"});
  expect_passed_over(Annotated().on({}), {"1 shards", "for 0"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).on({0, 2}), {"no device 2 among 2"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).on({0, -1}), {"no device -1 among 2"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).on({0, 5}).group(5, {}), {"group is empty"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).on({0, 5}).group(5, {1, 1}), {"device twice"});
  expect_passed_over(Annotated().cut(1, {{8, 2}}).on({0, 5}).group(5, {1}).group(5, {1}), {"group 5", "twice"});
  Annotated unknown;
  unknown.devices().set_configuration_id("three");
  expect_passed_over(unknown, {"node \"n\"", "no device configuration \"three\""});
  Annotated stranger;
  stranger.spec().set_tensor_name("v");
  expect_passed_over(stranger, {"\"v\"", "neither reads nor makes"});
  Annotated activation;
  activation.spec().set_tensor_name("y");
  expect_passed_over(activation, {"1 device annotations of values other than weights"});
  Annotated stage;
  stage.devices().clear_sharding_spec();
  stage.devices().set_pipeline_stage(-1);
  expect_passed_over(stage, {"stage is -1"});
}

TEST(Devices, ConfigurationsThatAreNone) {
  for (int32_t devices : {0, -1, INT32_MAX}) {
    Annotated b;
    b.devices().clear_sharding_spec();
    b.reader().clear_device_configurations();
    b.model.mutable_configuration(0)->set_num_devices(devices);
    expect_passed_over(b, {"device configuration \"two\"", std::to_string(devices)});
  }
  Annotated twice;
  twice.reader().clear_device_configurations();
  *twice.model.add_configuration() = twice.model.configuration(0);
  expect_passed_over(twice, {"\"two\"", "twice"});
}

TEST(Devices, ReadersOfAWeightHaveToAgree) {
  Annotated b;
  b.cut(1, {{8, 2}}).on({0, 1});
  onnx::NodeProto second = b.reader();
  second.set_name("second");
  second.set_output(0, "z");
  *b.graph().add_node() = second;
  b.output("z");
  EXPECT_THAT(read(b).holders, ElementsAre(0, 1));
  auto& other = *b.graph().mutable_node(1)->mutable_device_configurations(0)->mutable_sharding_spec(0);
  other.mutable_sharded_dim(0)->set_axis(0);
  ImportedModel model = b.import();
  EXPECT_EQ(model.configurations[0].tensors.at(0).axes.at(0).axis, 1);
  ASSERT_EQ(model.warnings.size(), 1u);
  EXPECT_THAT(model.warnings[0], HasSubstr("node \"second\""));
}

TEST(Devices, ManyWrongOnesAreAFewWarnings) {
  Annotated b;
  for (int i = 0; i < 1000; ++i) *b.devices().add_sharding_spec() = b.spec();
  ImportedModel model = b.import();
  ASSERT_EQ(model.warnings.size(), 9u);
  EXPECT_THAT(model.warnings[8], HasSubstr("993 more"));
}

}  // namespace
}  // namespace plait
