#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

const Tensor grid = f32({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(ReferenceLayout, Transpose) {
  expect_op("Transpose", {}, {grid}, f32({3, 2}, {1, 4, 2, 5, 3, 6}));
  Tensor cube = i32({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  expect_op("Transpose", attributes({{"perm", std::vector<int64_t>{1, 2, 0}}}), {cube},
            i32({1, 3, 2}, {1, 4, 2, 5, 3, 6}));
}

TEST(ReferenceLayout, TransposesLargeArraysOnThreads) {
  Tensor x = random_tensor(DType::f32, {3, 200, 300}, 1);
  OutputType type{DType::f32, {300, 3, 200}};
  Attributes order = attributes({{"perm", std::vector<int64_t>{2, 0, 1}}});
  auto one = run_reference("Transpose", order, {x}, {type}, 1),
       many = run_reference("Transpose", order, {x}, {type}, 3);
  expect_equal_bits(one[0], many[0]);
  EXPECT_EQ(element(one[0], (7 * 3 + 2) * 200 + 11), element(x, (2 * 200 + 11) * 300 + 7));
}

TEST(ReferenceLayout, ConcatAndSplit) {
  Attributes last = attributes({{"axis", int64_t{-1}}});
  Tensor joined = f32({2, 4}, {1, 2, 3, 9, 4, 5, 6, 8});
  expect_op("Concat", last, {grid, f32({2, 0}, {}), f32({2, 1}, {9, 8})}, joined);
  auto parts = run_reference("Split", last, {joined, ints({3, 1})}, {{DType::f32, {2, 3}}, {DType::f32, {2, 1}}});
  expect_near(parts[0], grid);
  expect_near(parts[1], f32({2, 1}, {9, 8}));
  // Five columns in three parts: the last is the short one; the middle one is not asked for.
  parts = run_reference("Split", attributes({{"axis", int64_t{0}}, {"num_outputs", int64_t{3}}}),
                        {f32({5}, {1, 2, 3, 4, 5})}, {{DType::f32, {2}}, {}, {DType::f32, {1}}});
  expect_near(parts[2], f32({1}, {5}));
}

TEST(ReferenceLayout, Slice) {
  expect_op("Slice", {}, {grid, ints({1}), ints({3}), ints({1})}, f32({2, 2}, {2, 3, 5, 6}));
  expect_op("Slice", {}, {grid, ints({-1}), ints({INT64_MIN}), ints({1}), ints({-2})}, f32({2, 2}, {3, 1, 6, 4}));
  expect_op("Slice", {}, {grid, ints({5}), ints({9}), ints({0})}, f32({0, 3}, {}));
}

TEST(ReferenceLayout, ExpandAndTile) {
  expect_op("Expand", {}, {f32({2, 1}, {1, 2}), ints({2, 2, 3})},
            f32({2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  expect_op("Tile", {}, {f32({2}, {1, 2}), ints({3})}, f32({6}, {1, 2, 1, 2, 1, 2}));
}

TEST(ReferenceLayout, PadModes) {
  Tensor x = f32({3}, {1, 2, 3}), pads = ints({2, 2});
  auto padded = [&](const char* mode, const std::vector<double>& expected) {
    expect_op("Pad", attributes({{"mode", std::string(mode)}}), {x, pads}, f32({7}, expected));
  };
  padded("constant", {0, 0, 1, 2, 3, 0, 0});
  padded("reflect", {3, 2, 1, 2, 3, 2, 1});
  padded("edge", {1, 1, 1, 2, 3, 3, 3});
  padded("wrap", {2, 3, 1, 2, 3, 1, 2});
  expect_op("Pad", {}, {grid, ints({-1, 1}), f32({}, {7}), ints({1})}, f32({2, 3}, {2, 3, 7, 5, 6, 7}));
}

TEST(ReferenceLayout, CopiesUnalignedElements) {
  auto blob = make_blob(13);
  float values[] = {1, 2, 3};
  std::memcpy(blob->mutable_data() + 1, values, sizeof values);
  Tensor x(DType::f32, {3}, blob, 1);
  expect_op("Neg", {}, {x}, f32({3}, {-1, -2, -3}));
  expect_op("Slice", {}, {x, ints({2}), ints({-4}), ints({0}), ints({-1})}, f32({3}, {3, 2, 1}));
}

TEST(ReferenceCreate, ShapesRangesAndMasks) {
  expect_op("Shape", attributes({{"start", int64_t{-2}}}), {Tensor(DType::f32, {2, 3, 4})}, ints({3, 4}));
  expect_op("Size", {}, {Tensor(DType::f32, {2, 3, 4})}, i64({}, {24}));
  expect_op("Range", {}, {i64({}, {10}), i64({}, {4}), i64({}, {-2})}, ints({10, 8, 6}));
  expect_op("ConstantOfShape", attributes({{"value", i32({1}, {7})}}), {ints({2, 2})}, i32({2, 2}, {7, 7, 7, 7}));
  expect_op("Trilu", attributes({{"upper", int64_t{0}}}), {grid, i64({}, {1})}, f32({2, 3}, {1, 2, 0, 4, 5, 6}));
  expect_op("Trilu", {}, {grid}, f32({2, 3}, {1, 2, 3, 0, 5, 6}));
  expect_op("EyeLike", attributes({{"k", int64_t{1}}}), {grid}, f32({2, 3}, {0, 1, 0, 0, 0, 1}));
}

}  // namespace
}  // namespace plait::test
