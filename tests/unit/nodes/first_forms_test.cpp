// Forms of ops that early opsets have give what the present form of the same computation gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx-ml.pb.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "importers/onnx/import.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

using testing::HasSubstr;
using Sizes = std::vector<int64_t>;

/// One node on f32 inputs "a", "b", ... of these shapes, which hold different numbers.
class Form {
 public:
  Form(int64_t opset, const std::string& op, std::vector<Shape> inputs, int outputs = 1)
      : shapes_(std::move(inputs)), outputs_(outputs) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    node_ = model_.mutable_graph()->add_node();
    node_->set_op_type(op);
    node_->set_name("node");
    for (size_t k = 0; k < shapes_.size(); ++k) {
      node_->add_input(std::string(1, static_cast<char>('a' + k)));
      onnx::ValueInfoProto& value = *model_.mutable_graph()->add_input();
      value.set_name(node_->input(static_cast<int>(k)));
      auto& type = *value.mutable_type()->mutable_tensor_type();
      type.set_elem_type(onnx::TensorProto::FLOAT);
      for (int64_t size : shapes_[k]) type.mutable_shape()->add_dim()->set_dim_value(size);
    }
    for (int k = 0; k < outputs; ++k) {
      node_->add_output(cat("y", k));
      onnx::ValueInfoProto& value = *model_.mutable_graph()->add_output();
      value.set_name(node_->output(k));
      value.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    }
  }

  Form& set(const char* name, int64_t value) {
    onnx::AttributeProto& one = attribute(name, onnx::AttributeProto::INT);
    one.set_i(value);
    return *this;
  }
  Form& set(const char* name, double value) {
    attribute(name, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
    return *this;
  }
  Form& set(const char* name, const std::string& value) {
    attribute(name, onnx::AttributeProto::STRING).set_s(value);
    return *this;
  }
  Form& set(const char* name, const Sizes& values) {
    onnx::AttributeProto& one = attribute(name, onnx::AttributeProto::INTS);
    for (int64_t value : values) one.add_ints(value);
    return *this;
  }
  /// Input `k` holds these.
  Form& with(size_t k, std::vector<float> values) {
    given_[k] = std::move(values);
    return *this;
  }
  /// Input `k` is an initializer of integers.
  Form& with_integers(const char* name, const Sizes& values) {
    onnx::TensorProto& tensor = *model_.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor.add_int64_data(value);
    node_->add_input(name);
    return *this;
  }

  std::vector<std::vector<float>> run() const {
    static ThreadPool pool{1};
    const PlainModel model = compile_plain(import(), reference_options());
    Store store;
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
    Executor executor(model.program, store, pool);
    std::vector<Tensor> tensors;
    std::vector<TensorView> inputs;
    for (size_t k = 0; k < shapes_.size(); ++k) {
      Tensor one(DType::f32, shapes_[k]);
      for (int64_t i = 0; i < one.elements(); ++i)
        one.as<float>()[i] = given_.contains(k) ? given_.at(k)[static_cast<size_t>(i)]
                                                : static_cast<float>((7 * i + 3 * k) % 11) - 4.5f;
      tensors.push_back(one);
    }
    for (const Tensor& one : tensors) inputs.push_back(one.view());
    executor.run(inputs);
    std::vector<std::vector<float>> out;
    for (int k = 0; k < outputs_; ++k) {
      const Tensor made = executor.copy_of_output(k);
      out.emplace_back(made.as<float>(), made.as<float>() + made.elements());
    }
    return out;
  }

  std::string refusal() const {
    try {
      import();
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }

 private:
  onnx::AttributeProto& attribute(const char* name, onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto& out = *node_->add_attribute();
    out.set_name(name);
    out.set_type(type);
    return out;
  }
  Graph import() const {
    const std::filesystem::path path = std::filesystem::temp_directory_path() / cat("plait_form_", getpid(), ".onnx");
    std::ofstream(path, std::ios::binary) << model_.SerializeAsString();
    try {
      Graph out = import_file(path.string(), World::get().ops).graph;
      std::filesystem::remove(path);
      return out;
    } catch (...) {
      std::filesystem::remove(path);
      throw;
    }
  }

  std::vector<Shape> shapes_;
  int outputs_;
  onnx::ModelProto model_;
  onnx::NodeProto* node_ = nullptr;
  std::map<size_t, std::vector<float>> given_;
};

const std::vector<float> slopes{0.5f, -2, 3};

TEST(FirstForms, OperandsAreAlignedAlongAnAxis) {
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) {
    auto old = [&](const Shape& b, int64_t axis) {
      return Form(6, op, {{2, 3, 2}, b}).set("broadcast", int64_t{1}).set("axis", axis);
    };
    EXPECT_EQ(old({3}, 1).run(), Form(14, op, {{2, 3, 2}, {3, 1}}).run()) << op;
    EXPECT_EQ(old({3}, -2).run(), Form(14, op, {{2, 3, 2}, {3, 1}}).run()) << op;
    EXPECT_EQ(old({2, 3}, 0).run(), Form(14, op, {{2, 3, 2}, {2, 3, 1}}).run()) << op;
    EXPECT_EQ(old({3, 2}, 1).run(), Form(14, op, {{2, 3, 2}, {3, 2}}).run()) << op;
  }
  EXPECT_EQ(Form(6, "Add", {{2, 3}, {3}}).set("broadcast", int64_t{1}).run(), Form(14, "Add", {{2, 3}, {3}}).run());
}

TEST(FirstForms, SlopesAreOfChannels) {
  for (int64_t opset : {1, 6}) {
    EXPECT_EQ(Form(opset, "PRelu", {{2, 3, 2, 2}, {3}}).with(1, slopes).run(),
              Form(16, "PRelu", {{2, 3, 2, 2}, {3, 1, 1}}).with(1, slopes).run());
    EXPECT_EQ(Form(opset, "PRelu", {{2, 3}, {1}}).run(), Form(16, "PRelu", {{2, 3}, {1}}).run());
  }
}

TEST(FirstForms, OfBatchNormalization) {
  const std::vector<float> variances{0.5f, 1, 2};
  const std::vector<Shape> by_channel{{2, 3, 2}, {3}, {3}, {3}, {3}};
  const auto expected = Form(15, "BatchNormalization", by_channel).with(4, variances).set("epsilon", 1e-3).run();
  auto old = [&](int64_t opset) {
    Form out(opset, "BatchNormalization", by_channel);
    out.with(4, variances).set("epsilon", 1e-3);
    return out;
  };
  for (int64_t opset : {1, 6})
    EXPECT_EQ(old(opset).set("is_test", int64_t{1}).set("spatial", int64_t{1}).run(), expected);
  EXPECT_EQ(old(7).run(), expected);
  // By place: a number for each element of a sample.
  const std::vector<float> each{0.5f, 1, 2, 3, 4, 5};
  const std::vector<Shape> by_place{{2, 3, 2}, {3, 2}, {3, 2}, {3, 2}, {3, 2}};
  const auto made =
      Form(7, "BatchNormalization", by_place).with(4, each).set("spatial", int64_t{0}).set("epsilon", 0.0).run()[0];
  const std::vector<float> x = Form(14, "Identity", {by_place[0]}).run()[0];
  for (size_t i = 0; i < x.size(); ++i) {
    auto number = [&](size_t k) { return static_cast<float>((7 * (i % 6) + 3 * k) % 11) - 4.5f; };
    EXPECT_NEAR(made[i], (x[i] - number(3)) / std::sqrt(each[i % 6]) * number(1) + number(2), 1e-4) << i;
  }
}

/// Training was the default, then implied by more than one output, then an attribute.
TEST(FirstForms, OfBatchNormalizationThatTrains) {
  const std::vector<float> variances{0.5f, 1, 2};
  const std::vector<Shape> shapes{{2, 3, 2}, {3}, {3}, {3}, {3}};
  auto form = [&](int64_t opset, int outputs, double momentum) {
    Form out(opset, "BatchNormalization", shapes, outputs);
    out.with(4, variances).set("momentum", momentum);
    return out;
  };
  auto present = form(15, 3, 0.75).set("training_mode", int64_t{1}).run();
  EXPECT_EQ(form(6, 1, 0.75).run()[0], present[0]);
  for (int64_t opset : {1, 6, 7, 9}) {
    EXPECT_EQ(form(opset, 3, 0.75).run(), present) << opset;
    const auto all = form(opset, 5, 0.75).run();
    const auto batch = form(15, 3, 0).set("training_mode", int64_t{1}).run();
    EXPECT_EQ(all[2], present[2]) << opset;
    EXPECT_EQ(all[3], batch[1]) << opset;
    EXPECT_EQ(all[4], batch[2]) << opset;
  }
}

/// With numbers by place, a sample's elements are as channels of one element.
TEST(FirstForms, OfBatchNormalizationByPlaceThatTrains) {
  auto form = [&](int64_t opset, Shape x, Shape numbers) {
    Form out(opset, "BatchNormalization", {x, numbers, numbers, numbers, numbers}, 5);
    out.set("momentum", 0.75);
    return out;
  };
  const auto places = form(7, {4, 3, 2}, {3, 2}).set("spatial", int64_t{0}).run();
  const auto channels = form(7, {4, 6}, {6}).run();
  for (size_t k = 0; k < 5; ++k)
    for (size_t i = 0; i < places[k].size(); ++i) EXPECT_NEAR(places[k][i], channels[k][i], 1e-5) << k << " " << i;
}

TEST(FirstForms, OfDropout) {
  const auto x = Form(14, "Identity", {{4, 25}}).run()[0];
  EXPECT_EQ(Form(6, "Dropout", {{4, 25}}).set("is_test", int64_t{1}).run()[0], x);
  const auto made = Form(6, "Dropout", {{4, 25}}).set("ratio", 0.75).run()[0];  // training was the default
  size_t dropped = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    dropped += made[i] == 0 && x[i] != 0;
    if (made[i] != 0) {
      EXPECT_NEAR(made[i], 4 * x[i], 1e-5);
    }
  }
  EXPECT_GT(dropped, 50u);
  EXPECT_LT(dropped, 100u);
}

TEST(FirstForms, OfGroupNormalization) {
  const std::vector<float> two{0.5f, -2}, four{0.5f, 0.5f, -2, -2};
  EXPECT_EQ(Form(18, "GroupNormalization", {{2, 4, 3}, {2}, {2}})
                .with(1, two)
                .with(2, two)
                .set("num_groups", int64_t{2})
                .run(),
            Form(21, "GroupNormalization", {{2, 4, 3}, {4}, {4}})
                .with(1, four)
                .with(2, four)
                .set("num_groups", int64_t{2})
                .run());
}

TEST(FirstForms, OfPowersOfPools) {
  EXPECT_EQ(Form(1, "GlobalLpPool", {{1, 2, 3, 3}}).set("p", 3.0).run(),
            Form(2, "GlobalLpPool", {{1, 2, 3, 3}}).set("p", int64_t{3}).run());
  EXPECT_EQ(Form(1, "LpPool", {{1, 2, 3, 3}}).set("kernel_shape", Sizes{2, 2}).run(),
            Form(18, "LpPool", {{1, 2, 3, 3}}).set("kernel_shape", Sizes{2, 2}).run());
  // A power that is no integer, by the definition.
  const std::vector<float> x = Form(14, "Identity", {{1, 2, 3, 3}}).run()[0];
  const auto all = Form(1, "GlobalLpPool", {{1, 2, 3, 3}}).set("p", 2.5).run()[0];
  const auto windows = Form(1, "LpPool", {{1, 2, 3, 3}})
                           .set("kernel_shape", Sizes{2, 2})
                           .set("pads", Sizes{1, 0, 0, 0})
                           .set("p", 2.5)
                           .run()[0];
  ASSERT_EQ(all.size(), 2u);
  ASSERT_EQ(windows.size(), 12u);
  for (size_t c = 0; c < 2; ++c) {
    auto norm = [&](size_t from, size_t to, size_t left, size_t right) {
      double sum = 0;
      for (size_t row = from; row < to; ++row)
        for (size_t column = left; column < right; ++column)
          sum += std::pow(std::abs(x[9 * c + 3 * row + column]), 2.5);
      return std::pow(sum, 1 / 2.5);
    };
    EXPECT_NEAR(all[c], norm(0, 3, 0, 3), 1e-4);
    for (size_t row = 0; row < 3; ++row)
      for (size_t column = 0; column < 2; ++column)
        EXPECT_NEAR(windows[6 * c + 2 * row + column], norm(row == 0 ? 0 : row - 1, row + 1, column, column + 2),
                    1e-4);
  }
  EXPECT_THAT(Form(1, "GlobalLpPool", {{1, 2, 3, 3}}).set("p", -1.0).refusal(), HasSubstr("p is -1"));
}

TEST(FirstForms, OfSplit) {
  const auto expected = Form(13, "Split", {{5, 2}}, 2).with_integers("sizes", {2, 3}).run();
  EXPECT_EQ(Form(1, "Split", {{5, 2}}, 2).set("split", Sizes{2, 3}).run(), expected);
  EXPECT_EQ(Form(2, "Split", {{5, 2}}, 2).set("split", Sizes{2, 3}).run(), expected);
}

TEST(FirstForms, OfTile) {
  EXPECT_EQ(Form(1, "Tile", {{2, 3}, {1}, {1}}).with(1, {3}).with(2, {1}).run(),
            Form(13, "Tile", {{2, 3}}).with_integers("repeats", {1, 3}).run());
}

TEST(FirstForms, OfUpsample) {
  for (const std::string mode : {"nearest", "bilinear"})
    EXPECT_EQ(
        Form(1, "Upsample", {{1, 2, 2, 3}}).set("height_scale", 2.0).set("width_scale", 3.0).set("mode", mode).run(),
        Form(9, "Upsample", {{1, 2, 2, 3}, {4}})
            .with(1, {1, 1, 2, 3})
            .set("mode", mode == "bilinear" ? std::string("linear") : mode)
            .run());
}

}  // namespace
}  // namespace plait::test
