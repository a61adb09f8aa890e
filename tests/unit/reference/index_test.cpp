#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

const Tensor index_grid = f32({3, 2}, {1, 2, 3, 4, 5, 6});

TEST(ReferenceIndex, Gather) {
  expect_op("Gather", {}, {index_grid, ints({2, -3})}, f32({2, 2}, {5, 6, 1, 2}));
  expect_op("Gather", attributes({{"axis", int64_t{1}}}), {index_grid, i32({}, {1})}, f32({3}, {2, 4, 6}));
  expect_op("GatherElements", attributes({{"axis", int64_t{1}}}), {index_grid, i64({2, 1}, {1, 0})},
            f32({2, 1}, {2, 3}));
  expect_op("GatherND", {}, {index_grid, i64({2, 2}, {0, 1, -1, 0})}, f32({2}, {2, 5}));
  expect_op("GatherND", attributes({{"batch_dims", int64_t{1}}}), {index_grid, i64({3, 1}, {1, 0, 1})},
            f32({3}, {2, 3, 6}));
}

TEST(ReferenceIndex, RefusesIndicesOutOfRange) {
  auto expect_refused = [](KernelStatus status, int32_t slot, int64_t value) {
    EXPECT_EQ(status.code, KernelCode::index_out_of_range);
    EXPECT_EQ(status.operand, slot);
    EXPECT_EQ(status.value, value);
  };
  expect_refused(refused("Gather", {}, {index_grid, ints({0, 3})}, {{DType::f32, {2, 2}}}), 1, 3);
  expect_refused(refused("Gather", {}, {index_grid, ints({-4})}, {{DType::f32, {1, 2}}}), 1, -4);
  expect_refused(refused("GatherElements", {}, {index_grid, i64({1, 1}, {3})}, {{DType::f32, {1, 1}}}), 1, 3);
  expect_refused(refused("GatherND", {}, {index_grid, i64({1, 2}, {0, 2})}, {{DType::f32, {1}}}), 1, 2);
  expect_refused(
      refused("ScatterND", {}, {index_grid, i64({1, 1}, {9}), f32({1, 2}, {0, 0})}, {{DType::f32, {3, 2}}}), 1, 9);
  expect_refused(
      refused("ScatterElements", {}, {index_grid, i64({1, 1}, {-7}), f32({1, 1}, {0})}, {{DType::f32, {3, 2}}}), 1,
      -7);
  expect_refused(refused("plait.Embedding", {}, {index_grid, ints({1, -1})}, {{DType::f32, {2, 2}}}), 1, -1);
  expect_refused(refused("plait.GatherRows", {}, {index_grid, i32({3, 1}, {0, 1, 2})}, {{DType::f32, {3, 1}}}), 1, 2);
  expect_refused(refused("TensorScatter", attributes({{"axis", int64_t{1}}}),
                         {index_grid, f32({3, 1}, {7, 8, 9}), ints({0, 1, 2})}, {{DType::f32, {3, 2}}}),
                 2, 2);
}

TEST(ReferenceIndex, Scatter) {
  expect_op("ScatterND", {}, {index_grid, i64({2, 1}, {2, 0}), f32({2, 2}, {7, 8, 9, 0})},
            f32({3, 2}, {9, 0, 3, 4, 7, 8}));
  Attributes sum = attributes({{"reduction", std::string("add")}});
  expect_op("ScatterND", sum, {index_grid, i64({2, 2}, {0, 0, 0, 0}), f32({2}, {10, 20})},
            f32({3, 2}, {31, 2, 3, 4, 5, 6}));
  expect_op("ScatterElements", sum, {i32({3}, {1, 2, 3}), i64({3}, {1, 1, -1}), i32({3}, {5, 6, 7})},
            i32({3}, {1, 13, 10}));
  expect_op("TensorScatter", attributes({{"axis", int64_t{1}}, {"mode", std::string("circular")}}),
            {f32({1, 3}, {1, 2, 3}), f32({1, 2}, {8, 9}), ints({2})}, f32({1, 3}, {9, 2, 8}));
}

TEST(ReferenceIndex, OneHotIgnoresWhatIsOutside) {
  expect_op("OneHot", {}, {ints({0, -1, 5}), i64({}, {3}), f32({2}, {0, 1})},
            f32({3, 3}, {1, 0, 0, 0, 0, 1, 0, 0, 0}));
}

/// The shape that the kernel returns for its output.
Shape shape_of(const char* op, const Attributes& attributes, const std::vector<Tensor>& inputs, int output = 0) {
  std::vector<OperandInfo> infos;
  std::vector<TensorView> views;
  for (const Tensor& input : inputs)
    infos.push_back({input.dtype(), input.shape().rank(), false}), views.push_back(input.view());
  NodeInfo node{op, attributes, infos, {}};
  const Kernel* kernel = reference_table().find(node);
  auto state = kernel->prepare ? kernel->prepare(node) : nullptr;
  return kernel->output_shape(state.get(), views, output);
}

TEST(ReferenceIndex, SizesThatDependOnData) {
  Tensor x = f32({2, 3}, {0, 1, 0, 2, 0, 3});
  EXPECT_EQ(shape_of("NonZero", {}, {x}), (Shape{2, 3}));
  expect_op("NonZero", {}, {x}, i64({2, 3}, {0, 1, 1, 1, 0, 2}));
  Tensor keep = tensor(DType::boolean, {2}, {0, 1});
  Attributes rows = attributes({{"axis", int64_t{0}}});
  EXPECT_EQ(shape_of("Compress", rows, {x, keep}), (Shape{1, 3}));
  expect_op("Compress", rows, {x, keep}, f32({1, 3}, {2, 0, 3}));
  Tensor values = i32({5}, {4, 1, 4, 2, 1});
  EXPECT_EQ(shape_of("Unique", {}, {values}), (Shape{3}));
  EXPECT_EQ(shape_of("Unique", {}, {values}, 2), (Shape{5}));
  auto out = run_reference("Unique", attributes({{"sorted", int64_t{0}}}), {values},
                           {{DType::i32, {3}}, {DType::i64, {3}}, {DType::i64, {5}}, {DType::i64, {3}}});
  expect_near(out[0], i32({3}, {4, 1, 2}));
  expect_near(out[1], ints({0, 1, 3}));
  expect_near(out[2], ints({0, 1, 0, 2, 1}));
  expect_near(out[3], ints({2, 2, 1}));
}

}  // namespace
}  // namespace plait::test
