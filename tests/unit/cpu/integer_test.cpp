// Products and convolutions of 8-bit integers, and what makes them: equal to the reference to the last bit.
#include "kernels/cpu/linear/integer_products.h"
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

Tensor codes(DType dtype, const Shape& shape, uint64_t seed) {
  return dtype == DType::u8 ? random_tensor(dtype, shape, seed, 0, 256)
                            : random_tensor(dtype, shape, seed, -128, 128);
}
Tensor scales(const Shape& shape, uint64_t seed) { return random_tensor(DType::f32, shape, seed, 0.001, 0.02); }

/// With operand `weight` as it is and packed, on each instruction set.
void expect_integers(const std::string& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                     const std::vector<OutputType>& outputs, size_t weight) {
  expect_reference(op, attributes, inputs, outputs, 0, 0, 2);
  const Tensor expected = run_op(kernels(), op, attributes, inputs, outputs, 1, nullptr, "reference")[0];
  for (const auto& kernel : kernels().all())
    if (kernel->op == op && kernel->pack)
      expect_near(run_kernel(*kernel, attributes, inputs, outputs, 2, nullptr, {weight})[0], expected, 0, 0);
}

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
              expect_integers(
                  "MatMulInteger", {},
                  {codes(left, {2, m, k}, 1), codes(right, {k, n}, 2), lines ? codes(left, {}, 3) : a_zero, b_zero},
                  {{DType::i32, {2, m, n}}}, 1);
              expect_integers("MatMulInteger", {}, {codes(left, {m, k}, 1), codes(right, {k, n}, 2), a_zero},
                              {{DType::i32, {m, n}}}, 1);
              const Tensor y_scale = random_tensor(DType::f32, {}, 9, 0.1, 0.2);
              expect_integers(
                  "QLinearMatMul", {},
                  {codes(left, {m, k}, 1), scales(lines ? Shape{m} : Shape{}, 5), a_zero, codes(right, {k, n}, 2),
                   scales(lines ? Shape{n} : Shape{}, 6), b_zero, y_scale, codes(left, {}, 7)},
                  {{left, {m, n}}}, 3);
            }
  for (const Shape& b : {Shape{3, 1, 9, 17}, Shape{1, 2, 9, 17}, Shape{2, 9, 17}})
    expect_reference("MatMulInteger", {}, {codes(DType::u8, {3, 2, 5, 9}, 1), codes(DType::i8, b, 2)},
                     {{DType::i32, {3, 2, 5, 17}}}, 0, 0, 2);
  // Sums beyond 31 bits wrap where the result has 32, and saturate where it has 8.
  const Tensor full = random_tensor(DType::u8, {1, 70000}, 1, 255, 256),
               tall = random_tensor(DType::u8, {70000, 2}, 1, 255, 256);
  expect_integers("MatMulInteger", {}, {full, tall}, {{DType::i32, {1, 2}}}, 1);
  expect_integers("QLinearMatMul", {},
                  {full, scales({}, 1), codes(DType::u8, {}, 1), tall, scales({}, 2), codes(DType::u8, {}, 2),
                   scales({}, 3), codes(DType::i8, {}, 4)},
                  {{DType::i8, {1, 2}}}, 3);
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
          const int64_t made = channels ? 8 : 40;  // within a tile of rows, and more
          const DType codes_of_w = made == 8 || group == 2 ? DType::i8 : DType::u8;
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
          const Tensor x = codes(dtype, window.x, 1), weight = codes(codes_of_w, w, 2), zero = codes(dtype, {}, 3),
                       w_zero = codes(codes_of_w, each, 4);
          expect_integers("ConvInteger", attributes, {x, weight, zero, w_zero}, {{DType::i32, y}}, 1);
          expect_integers("ConvInteger", attributes, {x, weight}, {{DType::i32, y}}, 1);
          expect_integers(
              "QLinearConv", attributes,
              {x, scales({}, 5), zero, weight, scales(each, 6), w_zero, random_tensor(DType::f32, {}, 7, 0.02, 0.05),
               codes(dtype, {}, 8), random_tensor(DType::i32, {made}, 9, -5000, 5000)},
              {{dtype, y}}, 3);
        }
}

/// A plane that is made in bands.
TEST(CpuConvInteger, LargePlanesOfOneChannelEqualReference) {
  for (const int64_t stride : {1, 2}) {
    Attributes attributes;
    attributes.set("group", int64_t{2});
    attributes.set("strides", std::vector<int64_t>{stride, stride});
    attributes.set("pads", std::vector<int64_t>{1, 1, 1, 1});
    const int64_t rows = (300 - 1) / stride + 1, columns = (270 - 1) / stride + 1;
    expect_integers(
        "ConvInteger", attributes,
        {codes(DType::u8, {1, 2, 300, 270}, 1), codes(DType::i8, {2, 1, 3, 3}, 2), codes(DType::u8, {}, 3)},
        {{DType::i32, {1, 2, rows, columns}}}, 1);
  }
}

/// What this processor may not have.
TEST(CpuIntegerTiles, EmulatedAmxHasTheSumsOfPairs) {
  if (!has_isa("avx512_bf16")) GTEST_SKIP() << "needs VNNI for what is around it";
  const cpu::IntegerTiles &pairs = cpu::integer_tiles(cpu::Isa::avx512),
                          matrices = cpu::amx_tiles(cpu::integer_tiles(cpu::Isa::avx512_bf16), true);
  for (const bool is_signed : {false, true})
    for (const int64_t m : {3, 16, 31})
      for (const int64_t k : {5, 64, 200}) {
        const DType dtype = is_signed ? DType::i8 : DType::u8;
        const Tensor a = codes(dtype, {m, k}, 1), b = codes(dtype, {k, pairs.columns}, 2);
        auto sums = [&](const cpu::IntegerTiles& tiles) {
          const cpu::IntegerPlan plan(tiles, m, k);
          std::vector<int32_t> left(static_cast<size_t>(plan.row_tiles * plan.tile_units)),
              right(static_cast<size_t>(plan.panel_units)), out(static_cast<size_t>(m * tiles.columns)),
              own(static_cast<size_t>(tiles.rows * tiles.columns));
          std::vector<uint8_t> lines(static_cast<size_t>((tiles.depth + 1) * tiles.columns));
          auto line = [](const Tensor& all, int64_t row) {
            return reinterpret_cast<const uint8_t*>(all.data()) + row * all.shape()[1];
          };
          pack_right_panel(
              tiles, plan, k, is_signed, true, lines.data(), [&](int64_t row, uint8_t*) { return line(b, row); },
              right.data());
          const std::vector<int32_t> zeros(static_cast<size_t>(tiles.columns), tiles.right_shift(is_signed));
          for (int64_t tile = 0; tile < plan.row_tiles; ++tile) {
            pack_left_tile(
                tiles, plan, tile, m, k, is_signed, [&](int64_t row) { return line(a, row); }, left.data());
            const int32_t *units = left.data() + tile * plan.tile_units, zero = tiles.left_shift(is_signed);
            const int64_t rows = std::min(tiles.rows, m - tile * tiles.rows);
            tiles.multiply(units, right.data(), plan.steps, 0, plan.steps, rows, own.data());
            for (int64_t i = 0; i < rows; ++i) {
              tiles.correct(zero, right.data() + plan.steps * tiles.columns, zeros.data(),
                            units[plan.steps * tiles.rows + i] - static_cast<int32_t>(k) * zero,
                            own.data() + i * tiles.columns);
              std::copy_n(own.data() + i * tiles.columns, tiles.columns,
                          out.data() + (tile * tiles.rows + i) * tiles.columns);
            }
          }
          return out;
        };
        EXPECT_EQ(sums(matrices), sums(pairs)) << m << " " << k << " " << is_signed;
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
