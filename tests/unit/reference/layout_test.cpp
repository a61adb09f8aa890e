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
  expect_op("Slice", {}, {grid, ints({-9}), ints({-9}), ints({1}), ints({-1})}, f32({2, 1}, {1, 4}));
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

/// The operators' definitions in terms of Reshape and Transpose.
Tensor by_transpose(const Tensor& x, const Shape& apart, const std::vector<int64_t>& order, const Shape& together) {
  Shape moved = apart;
  for (size_t i = 0; i < order.size(); ++i) moved[static_cast<int>(i)] = apart[static_cast<int>(order[i])];
  auto out = run_reference("Transpose", attributes({{"perm", order}}), {x.reshaped(apart)}, {{x.dtype(), moved}});
  return out[0].reshaped(together);
}

TEST(ReferenceLayout, DepthAndSpace) {
  Attributes two = attributes({{"blocksize", int64_t{2}}});
  Attributes crd = attributes({{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}});
  // One block: channels in reading order, whatever the mode.
  expect_op("DepthToSpace", two, {f32({1, 4, 1, 1}, {0, 1, 2, 3})}, f32({1, 1, 2, 2}, {0, 1, 2, 3}));
  expect_op("DepthToSpace", crd, {f32({1, 4, 1, 1}, {0, 1, 2, 3})}, f32({1, 1, 2, 2}, {0, 1, 2, 3}));
  for (DType dtype : {DType::f32, DType::u8, DType::f64}) {
    for (int64_t block : {1, 2, 3}) {
      int64_t b = 2, c = 3, y = 4, x = 5, deep = c * block * block;
      Tensor in = random_tensor(dtype, {b, deep, y, x}, 7, 0, 200);
      Shape out{b, c, y * block, x * block};
      auto to_space = [&](const char* mode) {
        return run_reference("DepthToSpace", attributes({{"blocksize", block}, {"mode", std::string(mode)}}), {in},
                             {{dtype, out}})[0];
      };
      expect_equal_bits(to_space("DCR"), by_transpose(in, {b, block, block, c, y, x}, {0, 3, 4, 1, 5, 2}, out));
      expect_equal_bits(to_space("CRD"), by_transpose(in, {b, c, block, block, y, x}, {0, 1, 4, 2, 5, 3}, out));
      auto back =
          run_reference("SpaceToDepth", attributes({{"blocksize", block}}), {to_space("DCR")}, {{dtype, in.shape()}});
      expect_equal_bits(back[0], in);
    }
  }
  for (const Attributes& bad :
       {attributes({{"blocksize", int64_t{0}}}), attributes({{"blocksize", int64_t{1} << 40}}),
        attributes({{"blocksize", int64_t{1}}, {"mode", std::string("RCD")}})})
    EXPECT_THROW(run_reference("DepthToSpace", bad, {f32({1, 1, 1, 1}, {0})}, {{DType::f32, {1, 1, 1, 1}}}), Error);
}

TEST(ReferenceLayout, ReversesSequences) {
  Tensor x = f32({3, 2}, {1, 2, 3, 4, 5, 6});  // [time, batch]
  expect_op("ReverseSequence", {}, {x, ints({3, 2})}, f32({3, 2}, {5, 4, 3, 2, 1, 6}));
  expect_op("ReverseSequence", {}, {x, ints({0, 1})}, x);
  Attributes rows = attributes({{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}});
  expect_op("ReverseSequence", rows, {f32({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), ints({2, 1})},
            f32({2, 2, 2}, {3, 4, 1, 2, 5, 6, 7, 8}));
  KernelStatus status = refused("ReverseSequence", {}, {x, ints({3, 4})}, {{DType::f32, {3, 2}}});
  EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(status.value, 4);
  EXPECT_EQ(refused("ReverseSequence", {}, {x, ints({3})}, {{DType::f32, {3, 2}}}).operand, 1);
  EXPECT_EQ(refused("ReverseSequence", {}, {f32({1}, {1}), ints({1})}, {{DType::f32, {1}}}).operand, 0);
  EXPECT_THROW(run_reference("ReverseSequence", attributes({{"time_axis", int64_t{1}}}), {x, ints({3, 3})},
                             {{DType::f32, {3, 2}}}),
               Error);
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
