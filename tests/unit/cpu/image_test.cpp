// Convolution and pooling against the reference.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

using Ints = std::vector<int64_t>;

struct Window {
  Shape x, kernel;
  Ints strides, dilations, pads;

  Attributes attributes() const {
    Attributes out;
    out.set("strides", strides);
    out.set("dilations", dilations);
    out.set("pads", pads);
    return out;
  }
  /// [b, channels, out...]
  Shape out(int64_t channels) const {
    Shape out{x[0], channels};
    for (int i = 0; i < kernel.rank(); ++i) {
      const auto k = static_cast<size_t>(i), rank = static_cast<size_t>(kernel.rank());
      out.push_back((x[i + 2] + pads[k] + pads[k + rank] - (kernel[i] - 1) * dilations[k] - 1) / strides[k] + 1);
    }
    return out;
  }
};

/// One to three space dims, rows of more and fewer elements than a vector, and padding that hides whole rows.
const Window windows[] = {
    {{2, 4, 37}, {3}, {1}, {1}, {1, 1}},
    {{1, 4, 37}, {5}, {2}, {2}, {0, 3}},
    {{2, 4, 9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {{1, 4, 12, 35}, {3, 3}, {2, 2}, {1, 1}, {1, 0, 1, 2}},
    {{2, 4, 7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {{1, 4, 7, 9}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {{1, 4, 11, 13}, {2, 4}, {3, 1}, {2, 3}, {2, 2, 0, 1}},
    {{1, 4, 3, 4, 33}, {2, 2, 3}, {1, 1, 1}, {1, 1, 1}, {1, 0, 1, 0, 1, 1}},
    {{1, 4, 2, 2}, {3, 3}, {1, 1}, {1, 1}, {3, 3, 3, 3}},
};

TEST(CpuConv, EqualsReference) {
  for (const Window& window : windows)
    for (int64_t group : {1, 2, 4})
      for (int64_t made : {4, 20})
        for (bool bias : {false, true}) {
          SCOPED_TRACE(
              cat("x ", window.x.text(), " kernel ", window.kernel.text(), " group ", group, " made ", made));
          Shape w{made, 4 / group};
          for (int64_t size : window.kernel) w.push_back(size);
          Attributes attributes = window.attributes();
          attributes.set("group", group);
          std::vector<Tensor> inputs{random_tensor(DType::f32, window.x, 1), random_tensor(DType::f32, w, 2)};
          if (bias) inputs.push_back(random_tensor(DType::f32, {made}, 3));
          expect_reference("Conv", attributes, inputs, {{DType::f32, window.out(made)}}, 1e-5, 1e-5, 2);
        }
}

/// Back from the results to the size of x, and further by output_padding.
TEST(CpuConvTranspose, EqualsReference) {
  for (const Window& window : windows)
    for (int64_t group : {1, 2})
      for (int64_t extra : {0, 1}) {
        SCOPED_TRACE(
            cat("x ", window.x.text(), " kernel ", window.kernel.text(), " group ", group, " extra ", extra));
        const Shape x = window.out(4);
        Shape w{4, 3}, y{x[0], 3 * group};
        for (int64_t size : window.kernel) w.push_back(size);
        Ints padding;
        for (int i = 0; i < window.kernel.rank(); ++i) {
          const auto k = static_cast<size_t>(i), rank = static_cast<size_t>(window.kernel.rank());
          padding.push_back(window.strides[k] > extra ? extra : 0);
          y.push_back((x[i + 2] - 1) * window.strides[k] + (window.kernel[i] - 1) * window.dilations[k] + 1 -
                      window.pads[k] - window.pads[k + rank] + padding[k]);
        }
        Attributes attributes = window.attributes();
        attributes.set("group", group);
        attributes.set("output_padding", padding);
        expect_reference("ConvTranspose", attributes,
                         {random_tensor(DType::f32, x, 1), random_tensor(DType::f32, w, 2),
                          random_tensor(DType::f32, {3 * group}, 3)},
                         {{DType::f32, y}}, 1e-5, 1e-5, 2);
      }
}

/// Enough columns for several blocks of them.
TEST(CpuConv, EqualsReferenceBlockByBlock) {
  Attributes attributes;
  attributes.set("pads", Ints{1, 1, 1, 1});
  expect_reference("Conv", attributes,
                   {random_tensor(DType::f32, {1, 64, 60, 61}, 1), random_tensor(DType::f32, {9, 64, 3, 3}, 2)},
                   {{DType::f32, {1, 9, 60, 61}}}, 1e-4, 1e-4, 2);
}

TEST(CpuPool, EqualsReference) {
  for (const Window& window : windows)
    for (const char* op : {"MaxPool", "AveragePool"})
      for (int64_t counts : {0, 1}) {
        if (counts && std::string_view(op) == "MaxPool") continue;
        SCOPED_TRACE(cat(op, " x ", window.x.text(), " kernel ", window.kernel.text()));
        Attributes attributes = window.attributes();
        attributes.set("kernel_shape", Ints(window.kernel.begin(), window.kernel.end()));
        if (counts) attributes.set("count_include_pad", counts);
        expect_reference(op, attributes, {random_tensor(DType::f32, window.x, 1)},
                         {{DType::f32, window.out(window.x[1])}}, 1e-5, 1e-6, 2);
      }
}

TEST(CpuPool, HandsOnNaN) {
  Tensor x = random_tensor(DType::f32, {1, 1, 6, 40}, 4);
  for (int64_t i : {0, 17, 85, 239}) x.as<float>()[i] = NAN;
  Attributes attributes;
  attributes.set("kernel_shape", Ints{2, 2});
  expect_reference("MaxPool", attributes, {x}, {{DType::f32, {1, 1, 5, 39}}}, 0, 0);
  attributes.set("strides", Ints{2, 2});
  expect_reference("MaxPool", attributes, {x}, {{DType::f32, {1, 1, 3, 20}}}, 0, 0);
}

/// Rows of more than a vector, whose last one ends with the image, or before.
TEST(CpuPool, OfEverySecondColumnEqualsReference) {
  for (int64_t width : {63, 64, 65, 66, 67, 97, 130}) {
    SCOPED_TRACE(width);
    for (int64_t pad : {0, 1}) {
      Attributes attributes;
      attributes.set("kernel_shape", Ints{3, 3}), attributes.set("strides", Ints{2, 2});
      attributes.set("pads", Ints(4, pad));
      for (const char* op : {"MaxPool", "AveragePool"})
        expect_reference(op, attributes, {random_tensor(DType::f32, {1, 2, 9, width}, 1)},
                         {{DType::f32, {1, 2, (6 + 2 * pad) / 2 + 1, (width - 3 + 2 * pad) / 2 + 1}}}, 1e-5, 1e-6, 2);
    }
  }
}

TEST(CpuPool, MeansOfChannelsEqualReference) {
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{1, 7, 13, 11}, Shape{3, 2, 4, 5, 6}}) {
    Shape out{shape[0], shape[1]};
    for (int i = 2; i < shape.rank(); ++i) out.push_back(1);
    expect_reference("GlobalAveragePool", {}, {random_tensor(DType::f32, shape, 5)}, {{DType::f32, out}}, 1e-5, 1e-6,
                     2);
    Tensor x = random_tensor(DType::f32, shape, 6);
    expect_reference("GlobalMaxPool", {}, {x}, {{DType::f32, out}}, 0, 0, 2);
    x.as<float>()[7] = NAN;
    expect_reference("GlobalMaxPool", {}, {x}, {{DType::f32, out}}, 0, 0, 2);
  }
}

TEST(CpuChannels, EqualReference) {
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1, 40, 33}, Shape{3, 4}, Shape{2, 0, 3}}) {
    SCOPED_TRACE(shape.text());
    Tensor x = random_tensor(DType::f32, shape, 6, -4, 4);
    if (x.elements() > 3) x.as<float>()[3] = NAN;
    const std::vector<OutputType> same{{DType::f32, shape}};
    for (const char* op : {"HardSigmoid", "HardSwish", "LeakyRelu", "Clip"})
      expect_reference(op, {}, {x}, same, 1e-6, 1e-6, 2);
    const Tensor low = random_tensor(DType::f32, {}, 7, -1, 0), high = random_tensor(DType::f32, {}, 8, 0, 1);
    expect_reference("Clip", {}, {x, low, high}, same, 0, 0);
    expect_reference("Clip", {}, {x, high, low}, same, 0, 0);
    const Shape channels{shape[1]};
    expect_reference("BatchNormalization", {},
                     {x, random_tensor(DType::f32, channels, 1), random_tensor(DType::f32, channels, 2),
                      random_tensor(DType::f32, channels, 3), random_tensor(DType::f32, channels, 4, 0.1, 2)},
                     same, 1e-5, 1e-5, 2);
  }
}

}  // namespace
}  // namespace plait::test
