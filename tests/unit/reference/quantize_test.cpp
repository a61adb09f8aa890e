#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

TEST(ReferenceQuantize, DequantizesPerTensorAxisAndBlock) {
  Tensor x = tensor(DType::u8, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  expect_op("DequantizeLinear", {}, {x, f32({}, {0.5}), tensor(DType::u8, {1}, {2})},
            f32({2, 4}, {-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5}));
  expect_op("DequantizeLinear", attributes({{"axis", int64_t{0}}}), {x, f32({2}, {1, 10})},
            f32({2, 4}, {0, 1, 2, 3, 40, 50, 60, 70}));
  // Blocks of 3 along axis 1: the last one is short.
  expect_op("DequantizeLinear", attributes({{"axis", int64_t{1}}, {"block_size", int64_t{3}}}),
            {x, f32({2, 2}, {1, 2, 3, 4})}, f32({2, 4}, {0, 1, 2, 6, 12, 15, 18, 28}));
  EXPECT_EQ(refused("DequantizeLinear", {}, {x, f32({3}, {1, 2, 3})}, {{DType::f32, {2, 4}}}).code,
            KernelCode::bad_value);
}

TEST(ReferenceQuantize, FourBitsLowNibbleFirst) {
  Tensor x(DType::i4, {3});
  x.as<uint8_t>()[0] = 0xF7;  // 7, -1
  x.as<uint8_t>()[1] = 0x08;  // -8
  expect_op("DequantizeLinear", {}, {x, f32({}, {2})}, f32({3}, {14, -2, -16}));
  auto back = run_reference("QuantizeLinear", {}, {f32({3}, {14, -2, -100}), f32({}, {2}), Tensor(DType::i4, {1})},
                            {{DType::i4, {3}}});
  expect_equal_bits(back[0], x);
}

TEST(ReferenceQuantize, RoundsHalvesToEvenAndSaturates) {
  expect_op("QuantizeLinear", {}, {f32({5}, {1, 3, -1000, 1000, 5}), f32({}, {2}), tensor(DType::u8, {}, {128})},
            tensor(DType::u8, {5}, {128, 130, 0, 255, 130}));
  EXPECT_EQ(refused("QuantizeLinear", {}, {f32({1}, {NAN}), f32({}, {2})}, {{DType::u8, {1}}}).code,
            KernelCode::not_a_number);
}

TEST(ReferenceQuantize, DynamicRangeIncludesZero) {
  auto out = run_reference("DynamicQuantizeLinear", {}, {f32({3}, {0, 255, 51})},
                           {{DType::u8, {3}}, {DType::f32, {}}, {DType::u8, {}}});
  expect_near(out[0], tensor(DType::u8, {3}, {0, 255, 51}));
  expect_near(out[1], f32({}, {1}));
  expect_near(out[2], tensor(DType::u8, {}, {0}));
}

}  // namespace
}  // namespace plait::test
