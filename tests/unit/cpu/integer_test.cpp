// Products and convolutions of 8-bit integers, and what makes them: equal to the reference to the last bit.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

Tensor codes(DType dtype, const Shape& shape, uint64_t seed) {
  return dtype == DType::u8 ? random_tensor(dtype, shape, seed, 0, 256)
                            : random_tensor(dtype, shape, seed, -128, 128);
}
Tensor scales(const Shape& shape, uint64_t seed) { return random_tensor(DType::f32, shape, seed, 0.001, 0.02); }

/// Rows and columns within a tile and beyond, odd depths, zero points for all or for each line, and batches that broadcast.
TEST(CpuMatMulInteger, EqualsReference) {
  for (const DType left : {DType::u8, DType::i8})
    for (const DType right : {DType::u8, DType::i8})
      for (const int64_t m : {1, 3, 13, 50})
        for (const int64_t n : {1, 31, 70})
          for (const int64_t k : {1, 2, 33, 260})
            for (const bool lines : {false, true}) {
              SCOPED_TRACE(cat(dtype_name(left), " ", dtype_name(right), " ", m, " ", n, " ", k, " ", lines));
              const Tensor a_zero = codes(left, lines ? Shape{m} : Shape{}, 3),
                           b_zero = codes(right, lines ? Shape{n} : Shape{}, 4);
              expect_reference(
                  "MatMulInteger", {},
                  {codes(left, {2, m, k}, 1), codes(right, {k, n}, 2), lines ? codes(left, {}, 3) : a_zero, b_zero},
                  {{DType::i32, {2, m, n}}}, 0, 0, 2);
              expect_reference("MatMulInteger", {}, {codes(left, {m, k}, 1), codes(right, {k, n}, 2), a_zero},
                               {{DType::i32, {m, n}}}, 0, 0, 2);
              const Tensor y_scale = random_tensor(DType::f32, {}, 9, 0.1, 0.2);
              expect_reference(
                  "QLinearMatMul", {},
                  {codes(left, {m, k}, 1), scales(lines ? Shape{m} : Shape{}, 5), a_zero, codes(right, {k, n}, 2),
                   scales(lines ? Shape{n} : Shape{}, 6), b_zero, y_scale, codes(left, {}, 7)},
                  {{left, {m, n}}}, 0, 0, 2);
            }
  for (const Shape& b : {Shape{3, 1, 9, 17}, Shape{1, 2, 9, 17}, Shape{2, 9, 17}})
    expect_reference("MatMulInteger", {}, {codes(DType::u8, {3, 2, 5, 9}, 1), codes(DType::i8, b, 2)},
                     {{DType::i32, {3, 2, 5, 17}}}, 0, 0, 2);
  // Sums beyond 31 bits wrap where the result has 32, and saturate where it has 8.
  const Tensor full = random_tensor(DType::u8, {1, 70000}, 1, 255, 256),
               tall = random_tensor(DType::u8, {70000, 2}, 1, 255, 256);
  expect_reference("MatMulInteger", {}, {full, tall}, {{DType::i32, {1, 2}}}, 0, 0, 2);
  expect_reference("QLinearMatMul", {},
                   {full, scales({}, 1), codes(DType::u8, {}, 1), tall, scales({}, 2), codes(DType::u8, {}, 2),
                    scales({}, 3), codes(DType::i8, {}, 4)},
                   {{DType::i8, {1, 2}}}, 0, 0, 2);
}

struct IntegerWindow {
  Shape x, kernel, out;
  std::vector<int64_t> strides, dilations, pads;
};

const IntegerWindow integer_windows[] = {
    {{2, 4, 37}, {3}, {37}, {1}, {1}, {1, 1}},
    {{1, 4, 9, 40}, {3, 3}, {9, 40}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {{2, 4, 12, 35}, {3, 3}, {6, 18}, {2, 2}, {1, 1}, {1, 0, 1, 2}},
    {{1, 4, 7, 7}, {1, 1}, {7, 7}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {{1, 4, 40, 33}, {1, 3}, {40, 33}, {1, 1}, {1, 1}, {0, 1, 0, 1}},
    {{1, 4, 11, 13}, {2, 4}, {5, 8}, {3, 1}, {2, 2}, {2, 1, 2, 0}},
    {{1, 4, 3, 4, 33}, {2, 2, 3}, {3, 3, 33}, {1, 1, 1}, {1, 1, 1}, {1, 0, 1, 0, 0, 1}},
};

TEST(CpuConvInteger, EqualsReference) {
  for (const IntegerWindow& window : integer_windows)
    for (const int64_t group : {1, 2, 4})
      for (const DType dtype : {DType::u8, DType::i8})
        for (const bool channels : {false, true}) {
          const int64_t made = 8;
          SCOPED_TRACE(
              cat(window.x.text(), " ", window.kernel.text(), " ", group, " ", dtype_name(dtype), " ", channels));
          Shape w{made, 4 / group}, y{window.x[0], made};
          for (int64_t size : window.kernel) w.push_back(size);
          for (int64_t size : window.out) y.push_back(size);
          Attributes attributes;
          attributes.set("group", group);
          attributes.set("strides", window.strides);
          attributes.set("dilations", window.dilations);
          attributes.set("pads", window.pads);
          const Shape each = channels ? Shape{made} : Shape{};
          const Tensor x = codes(dtype, window.x, 1), weight = codes(DType::i8, w, 2), zero = codes(dtype, {}, 3),
                       w_zero = codes(DType::i8, each, 4);
          expect_reference("ConvInteger", attributes, {x, weight, zero, w_zero}, {{DType::i32, y}}, 0, 0, 2);
          expect_reference("ConvInteger", attributes, {x, weight}, {{DType::i32, y}}, 0, 0, 2);
          expect_reference(
              "QLinearConv", attributes,
              {x, scales({}, 5), zero, weight, scales(each, 6), w_zero, random_tensor(DType::f32, {}, 7, 0.02, 0.05),
               codes(dtype, {}, 8), random_tensor(DType::i32, {made}, 9, -5000, 5000)},
              {{dtype, y}}, 0, 0, 2);
        }
}

TEST(CpuQuantize, EqualsReference) {
  for (const DType dtype : {DType::u8, DType::i8})
    for (const int64_t axis : {0, 1, -1})
      for (const bool channels : {false, true}) {
        const Shape shape{3, 5, 41}, each = channels ? Shape{shape[axis < 0 ? 2 : static_cast<int>(axis)]} : Shape{};
        Attributes attributes;
        attributes.set("axis", axis);
        const Tensor scale = random_tensor(DType::f32, each, 1, 0.01, 0.03), zero = codes(dtype, each, 2);
        Tensor x = random_tensor(DType::f32, shape, 3, -4, 4);
        set_element(x, 7, INFINITY);
        set_element(x, 8, -1e30);
        set_element(x, 9, 2.5 * element(scale, 0));  // a tie
        expect_reference("QuantizeLinear", attributes, {x, scale, zero}, {{dtype, shape}}, 0, 0, 2);
        expect_reference("DequantizeLinear", attributes, {codes(dtype, shape, 4), scale, zero}, {{DType::f32, shape}},
                         0, 0, 2);
      }
  for (const double low : {-3.0, 0.5})
    expect_reference("DynamicQuantizeLinear", {}, {random_tensor(DType::f32, {7, 300}, 5, low, 4)},
                     {{DType::u8, {7, 300}}, {DType::f32, {}}, {DType::u8, {}}}, 0, 0, 2);
}

TEST(CpuQuantize, NamesWhatIsNoNumber) {
  Tensor x = random_tensor(DType::f32, {100}, 3);
  set_element(x, 41, NAN);
  KernelStatus status;
  run_op(kernels(), "QuantizeLinear", {}, {x, scales({}, 1), codes(DType::u8, {}, 2)}, {{DType::u8, {100}}}, 2,
         &status, "avx2");
  EXPECT_EQ(status.code, KernelCode::not_a_number);
  EXPECT_EQ(status.value, 41);
}

}  // namespace
}  // namespace plait::test
