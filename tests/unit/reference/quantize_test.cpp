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

/// Rows of the whole table that DequantizeLinear makes, by Gather.
Tensor gathered(const Tensor& codes, const Tensor& indices, const Tensor& scales, const Tensor& zeros, int64_t axis,
                int64_t quantize_axis, int64_t block, const Shape& shape) {
  std::vector<Tensor> operands{codes, scales};
  if (zeros.present()) operands.push_back(zeros);
  auto whole = run_reference("DequantizeLinear", attributes({{"axis", quantize_axis}, {"block_size", block}}),
                             operands, {{DType::f32, codes.shape()}});
  return run_reference("Gather", attributes({{"axis", axis}}), {whole[0], indices}, {{DType::f32, shape}})[0];
}

TEST(ReferenceQuantize, GathersRowsOfBlocks) {
  // A table [5, 40] in blocks of 16 (the last is short), as i4, and as u8 that holds 2, 4 or 8 bits an element.
  Tensor rows = i64({2, 2}, {4, -5, 0, 2}), scales = random_tensor(DType::f32, {5, 3}, 2);
  auto run = [&](const Tensor& codes, const Tensor& zeros, int64_t bits) {
    return run_reference("com.microsoft.GatherBlockQuantized",
                         attributes({{"block_size", int64_t{16}}, {"bits", bits}}), {codes, rows, scales, zeros},
                         {{DType::f32, {2, 2, 40}}})[0];
  };
  auto view = [](const Tensor& bytes, DType dtype, const Shape& shape) { return Tensor(dtype, shape, bytes.blob()); };
  Tensor half = random_tensor(DType::u8, {5, 20}, 1, 0, 256), whole = random_tensor(DType::u8, {5, 40}, 1, 0, 256),
         quarter = random_tensor(DType::u8, {5, 10}, 1, 0, 256);
  auto expected = [&](const Tensor& codes, const Tensor& zeros) {
    return gathered(codes, rows, scales, zeros, 0, 1, 16, {2, 2, 40});
  };
  Tensor i4 = view(half, DType::i4, {5, 40}), u4 = view(half, DType::u4, {5, 40}),
         u2 = view(quarter, DType::u2, {5, 40});
  Tensor i4_zeros = view(whole, DType::i4, {5, 3});
  expect_equal_bits(run(i4, {}, 4), expected(i4, {}));
  expect_equal_bits(run(i4, i4_zeros, 4), expected(i4, i4_zeros));
  // Without zero points those of u8 lie in the middle of its range.
  auto middle = [](DType dtype, uint8_t pattern) {
    Tensor out(dtype, {5, 3});
    std::memset(out.data(), pattern, static_cast<size_t>(out.bytes()));
    return out;
  };
  expect_equal_bits(run(half, {}, 4), expected(u4, middle(DType::u4, 0x88)));
  expect_equal_bits(run(quarter, {}, 2), expected(u2, middle(DType::u2, 0xAA)));
  expect_equal_bits(run(whole, {}, 8), expected(whole, middle(DType::u8, 128)));
  // Packed zero points begin a byte with each row, [5, 2] for three blocks.
  Tensor packed = random_tensor(DType::u8, {5, 2}, 3, 0, 256), spread(DType::u8, {5, 3});
  for (int64_t i = 0; i < 15; ++i) {
    auto byte = static_cast<int>(element(packed, i / 3 * 2 + i % 3 / 2));
    set_element(spread, i, i % 3 % 2 ? byte >> 4 : byte & 15);
  }
  Tensor codes(DType::u8, {5, 40});
  for (int64_t i = 0; i < 200; ++i) set_element(codes, i, static_cast<int>(element(half, i / 2)) >> (i % 2 * 4) & 15);
  expect_equal_bits(run(half, packed, 4), expected(codes, spread));
}

TEST(ReferenceQuantize, GathersAlongOtherAxesAndZerosForWhatIsNotThere) {
  Tensor codes = Tensor(DType::i4, {2, 3, 4}, random_tensor(DType::u8, {12}, 1, 0, 256).blob());
  Tensor scales = random_tensor(DType::f32, {1, 3, 4}, 2), rows = ints({2, 0});
  Attributes options =
      attributes({{"gather_axis", int64_t{1}}, {"quantize_axis", int64_t{0}}, {"block_size", int64_t{16}}});
  auto out =
      run_reference("com.microsoft.GatherBlockQuantized", options, {codes, rows, scales}, {{DType::f32, {2, 2, 4}}});
  expect_equal_bits(out[0], gathered(codes, rows, scales, {}, 1, 0, 16, {2, 2, 4}));
  out = run_reference("com.microsoft.GatherBlockQuantized", options, {codes, ints({3}), scales},
                      {{DType::f32, {2, 1, 4}}});
  expect_near(out[0], Tensor(DType::f32, {2, 1, 4}));
  // Of floats one scale may serve a whole axis, and one block all of it.
  Tensor small = run_reference("Cast", attributes({{"to", int64_t{17}}}), {f32({2, 2}, {1, 2, 3, 4})},
                               {{DType::f8e4m3fn, {2, 2}}})[0];
  expect_op("com.microsoft.GatherBlockQuantized", attributes({{"block_size", int64_t{0}}}),
            {small, ints({1}), f32({1, 1}, {0.5})}, f32({1, 2}, {1.5, 2}));
  KernelStatus status = refused("com.microsoft.GatherBlockQuantized", options,
                                {codes, rows, Tensor(DType::f32, {2, 3, 4})}, {{DType::f32, {2, 2, 4}}});
  EXPECT_EQ(status.code, KernelCode::bad_value);
  EXPECT_EQ(status.operand, 2);
}

TEST(ReferenceQuantize, DynamicRangeIncludesZero) {
  auto zeros = run_reference("DynamicQuantizeLinear", {}, {f32({2}, {0, 0})}, {{DType::u8, {2}}, {DType::f32, {}}, {DType::u8, {}}});
  expect_near(zeros[0], tensor(DType::u8, {2}, {0, 0}));
  expect_near(zeros[1], f32({}, {1}));  // as ONNX Runtime: the standard divides by a scale of 0
  auto out = run_reference("DynamicQuantizeLinear", {}, {f32({3}, {0, 255, 51})},
                           {{DType::u8, {3}}, {DType::f32, {}}, {DType::u8, {}}});
  expect_near(out[0], tensor(DType::u8, {3}, {0, 255, 51}));
  expect_near(out[1], f32({}, {1}));
  expect_near(out[2], tensor(DType::u8, {}, {0}));
}

}  // namespace
}  // namespace plait::test
