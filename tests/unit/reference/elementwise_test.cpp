#include <limits>

#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(ReferenceUnary, Functions) {
  Tensor x = f32({4}, {-2, -0.5, 0.5, 2.5});
  expect_op("Abs", {}, {x}, f32({4}, {2, 0.5, 0.5, 2.5}));
  expect_op("Round", {}, {x}, f32({4}, {-2, -0.0, 0, 2}));  // ties go to the even neighbour
  expect_op("Sigmoid", {}, {x}, f32({4}, {0.11920292, 0.37754067, 0.62245933, 0.92414182}));
  expect_op("Gelu", {}, {x}, f32({4}, {-0.04550026, -0.15426877, 0.34573123, 2.48447587}), 1e-5);
  expect_op("Gelu", attributes({{"approximate", std::string("tanh")}}), {x},
            f32({4}, {-0.04540229, -0.15428599, 0.34571401, 2.48492001}), 1e-5);
  expect_op("Relu", {}, {f32({3}, {-1, nan, 2})}, f32({3}, {0, nan, 2}));
  expect_op("Softplus", {}, {f32({2}, {-800, 800})}, f32({2}, {0, 800}));
  expect_op("Swish", attributes({{"alpha", 2.0}}), {f32({1}, {0.5})}, f32({1}, {0.36552929}));
  expect_op("com.microsoft.QuickGelu", {}, {f32({1}, {0.5})}, f32({1}, {0.5 / (1 + std::exp(-0.851))}));
}

TEST(ReferenceUnary, ClipTakesTheUpperBoundWhenBoundsCross) {
  Tensor x = f32({3}, {-5, 0, 5});
  expect_op("Clip", {}, {x, f32({}, {-1}), f32({}, {2})}, f32({3}, {-1, 0, 2}));
  expect_op("Clip", {}, {x, {}, f32({}, {2})}, f32({3}, {-5, 0, 2}));
  expect_op("Clip", {}, {x, f32({}, {3}), f32({}, {2})}, f32({3}, {2, 2, 2}));
}

TEST(ReferenceUnary, RoundsSmallFloatsOnce) {
  Tensor x = tensor(DType::bf16, {2}, {1, 2});
  // exp(1) = 2.71828 and exp(2) = 7.38906 lie between neighbours 2^-7 relative apart.
  expect_op("Exp", {}, {x}, tensor(DType::bf16, {2}, {2.71875, 7.375}), 0, 0);
}

TEST(ReferenceBinary, Broadcasts) {
  expect_op("Add", {}, {f32({2, 1}, {1, 2}), f32({3}, {10, 20, 30})}, f32({2, 3}, {11, 21, 31, 12, 22, 32}));
  expect_op("Sub", {}, {f32({}, {1}), f32({2, 2}, {1, 2, 3, 4})}, f32({2, 2}, {0, -1, -2, -3}));
  expect_op("Mul", {}, {f32({0, 3}, {}), f32({3}, {1, 2, 3})}, f32({0, 3}, {}));
  expect_op("Where", {}, {tensor(DType::boolean, {2, 1}, {1, 0}), i64({2}, {1, 2}), i64({}, {9})},
            i64({2, 2}, {1, 2, 9, 9}));
  expect_op("Max", {}, {f32({2}, {1, nan}), f32({2}, {3, 3}), f32({1}, {2})}, f32({2}, {3, nan}));
  expect_op("Mean", {}, {f32({2}, {1, 2}), f32({2}, {3, 6})}, f32({2}, {2, 4}));
}

TEST(ReferenceBinary, IntegersCutWrapAndRefuseZero) {
  expect_op("Div", {}, {i32({3}, {-7, 7, 7}), i32({3}, {2, -2, 2})}, i32({3}, {-3, -3, 3}));
  expect_op("Mod", {}, {i32({3}, {-7, 7, 6}), i32({3}, {3, -3, 3})}, i32({3}, {2, -2, 0}));
  expect_op("Mod", attributes({{"fmod", int64_t{1}}}), {i32({2}, {-7, 7}), i32({2}, {3, -3})}, i32({2}, {-1, 1}));
  expect_op("Add", {}, {tensor(DType::u8, {1}, {250}), tensor(DType::u8, {1}, {10})}, tensor(DType::u8, {1}, {4}));
  expect_op("Pow", {}, {i32({2}, {3, -2}), i32({2}, {4, 3})}, i32({2}, {81, -8}));
  KernelStatus status = refused("Div", {}, {i64({2}, {1, 2}), i64({2}, {1, 0})}, {{DType::i64, {2}}});
  EXPECT_EQ(status.code, KernelCode::division_by_zero);
  EXPECT_EQ(status.operand, 1);
  // Division by zero of floats has a result.
  expect_op("Div", {}, {f32({2}, {1, -1}), f32({}, {0})}, f32({2}, {INFINITY, -INFINITY}));
}

TEST(ReferenceBinary, ComparesUnsignedWordsAsUnsigned) {
  Tensor big = Tensor::of<uint64_t>(DType::u64, {1}, std::array<uint64_t, 1>{uint64_t{1} << 63});
  expect_op("Greater", {}, {big, tensor(DType::u64, {1}, {1})}, tensor(DType::boolean, {1}, {1}));
  expect_op("BitShift", attributes({{"direction", std::string("RIGHT")}}),
            {tensor(DType::u8, {2}, {128, 7}), tensor(DType::u8, {2}, {3, 1})}, tensor(DType::u8, {2}, {16, 3}));
}

/// As opset 28's text has it: sign bits only where the shift is negative or at least the width.
TEST(ReferenceBinary, ShiftsByTheWidthAndMore) {
  const std::vector<double> shifts{1, 7, 8, 127, -1}, numbers{-8, -8, -8, -8, 4};
  const Tensor x = tensor(DType::i8, {5}, numbers), by = tensor(DType::i8, {5}, shifts);
  expect_op("BitShift", attributes({{"direction", std::string("RIGHT")}}), {x, by},
            tensor(DType::i8, {5}, {-4, -1, -1, -1, 0}));
  expect_op("BitShift", attributes({{"direction", std::string("LEFT")}}), {x, by},
            tensor(DType::i8, {5}, {-16, 0, 0, 0, 0}));
  expect_op("BitShift", attributes({{"direction", std::string("RIGHT")}}),
            {tensor(DType::u8, {3}, {200, 200, 200}), tensor(DType::u8, {3}, {1, 8, 255})},
            tensor(DType::u8, {3}, {100, 0, 0}));
  EXPECT_THROW(run_reference("BitShift", attributes({{"direction", std::string("UP")}}), {x, by}, {{DType::i8, {5}}}),
               Error);
}

/// The bias of FastGelu is optional; ONNX Runtime's optimizer leaves it out.
TEST(ReferenceUnary, FastGeluTakesNoBias) {
  const Tensor x = f32({2, 2}, {-1, 0, 1, 2}), y = f32({2, 2}, {-0.15880801, 0, 0.841192, 1.9545977});
  expect_op("com.microsoft.FastGelu", {}, {x}, y);
  expect_op("com.microsoft.FastGelu", {}, {x, {}}, y);
  expect_op("com.microsoft.FastGelu", {}, {f32({2, 2}, {-2, -1, 0, 1}), f32({2}, {1, 1})}, y);
}

TEST(ReferenceCast, CutsSaturatesAndTests) {
  expect_op("Cast", {}, {f32({4}, {-1.9, 1.9, 300, nan})}, i32({4}, {-1, 1, 300, 0}));
  expect_op("Cast", {}, {f32({3}, {0, 0.1, nan})}, tensor(DType::boolean, {3}, {0, 1, 1}));
  expect_op("Cast", {}, {i64({2}, {257, -1})}, tensor(DType::u8, {2}, {1, 255}));
  expect_op("Cast", {}, {f32({2}, {65520, 1e-9})}, tensor(DType::f16, {2}, {INFINITY, 0}));
}

TEST(ReferenceCast, SmallFormats) {
  auto bits = [](DType dtype, double value, int64_t saturate) {
    auto out = run_reference("Cast", attributes({{"saturate", saturate}}), {f32({1}, {value})}, {{dtype, {1}}});
    return static_cast<int>(out[0].as<uint8_t>()[0]);
  };
  EXPECT_EQ(bits(DType::f8e4m3fn, 448, 1), 0x7E);
  EXPECT_EQ(bits(DType::f8e4m3fn, 1000, 1), 0x7E);
  EXPECT_EQ(bits(DType::f8e4m3fn, 1000, 0), 0x7F);
  EXPECT_EQ(bits(DType::f8e4m3fn, 0, 1), 0);
  EXPECT_EQ(bits(DType::f8e5m2, 1e9, 0), 0x7C);
  EXPECT_EQ(bits(DType::f8e5m2fnuz, -0.0, 1), 0);
  // Every code of a format survives the way to f32 and back.
  for (DType dtype : {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz}) {
    Tensor codes(dtype, {256});
    for (int i = 0; i < 256; ++i) codes.as<uint8_t>()[i] = static_cast<uint8_t>(i);
    auto wide = run_reference("Cast", {}, {codes}, {{DType::f32, {256}}});
    auto back = run_reference("Cast", attributes({{"saturate", int64_t{0}}}), wide, {{dtype, {256}}});
    for (int64_t i = 0; i < 256; ++i) {
      if (std::isnan(element(wide[0], i))) continue;
      EXPECT_EQ(back[0].as<uint8_t>()[i], i) << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace plait::test
