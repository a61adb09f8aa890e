// Convolution and pooling with channels last, and chains of element-wise ops, against the reference.
#include "core/base/elementwise_steps.h"
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

using Ints = std::vector<int64_t>;
using Texts = std::vector<std::string>;

/// The fast kernels of `op` on each instruction set, with operand 1 as a weight, against the reference.
void expect_definition(const std::string& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                       const Shape& y, double rtol, double atol) {
  const std::vector<OutputType> outputs{{DType::f32, y}};
  const Tensor expected = run_op(kernels(), op, attributes, inputs, outputs, 1, nullptr, "reference")[0];
  int compared = 0;
  for (const std::string& isa : whole_isas())
    for (const auto& kernel : kernels().all())
      if (kernel->op == op && kernel->isa == isa)
        for (int threads : {1, 3}) {
          SCOPED_TRACE(cat(op, " on ", isa, ", ", threads, " threads"));
          expect_near(run_kernel(*kernel, attributes, inputs, outputs, threads, nullptr, {1})[0], expected, rtol,
                      atol);
          ++compared;
        }
  EXPECT_GT(compared, 0);
}

struct ChannelsLastWindow {
  Ints space, kernel, strides, dilations, pads;

  Attributes attributes() const {
    return test::attributes({{"strides", strides}, {"dilations", dilations}, {"pads", pads}});
  }
  Shape image(int64_t batch, int64_t channels) const {
    Shape out{batch};
    for (int64_t size : space) out.push_back(size);
    out.push_back(channels);
    return out;
  }
  Shape result(int64_t batch, int64_t channels) const {
    Shape out{batch};
    for (size_t k = 0; k < space.size(); ++k)
      out.push_back((space[k] + pads[k] + pads[k + space.size()] - (kernel[k] - 1) * dilations[k] - 1) / strides[k] +
                    1);
    out.push_back(channels);
    return out;
  }
};

/// Lines and planes; padding on each side, and beyond the image; strides and dilations; results of less than a tile.
const ChannelsLastWindow channels_last_windows[] = {
    {{37}, {3}, {1}, {1}, {1, 1}},
    {{37}, {5}, {2}, {2}, {0, 3}},
    {{9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {{12, 35}, {3, 3}, {2, 2}, {1, 1}, {1, 0, 1, 2}},
    {{7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {{7, 9}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {{11, 13}, {2, 4}, {3, 1}, {2, 3}, {2, 2, 0, 1}},
    {{2, 2}, {3, 3}, {1, 1}, {1, 1}, {3, 3, 3, 3}},
    {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
};

TEST(CpuChannelsLastConv, EqualsReference) {
  struct Channels {
    int64_t read, made, group;
  };
  for (const ChannelsLastWindow& window : channels_last_windows)
    for (const Channels& n : {Channels{3, 16, 1},
                              {5, 40, 1},
                              {20, 33, 1},
                              {16, 64, 2},
                              {6, 9, 3},
                              {24, 24, 24},
                              {19, 19, 19},
                              {5, 10, 5}}) {
      SCOPED_TRACE(cat(window.image(2, n.read).text(), " group ", n.group, " made ", n.made));
      Attributes attributes = window.attributes();
      attributes.set("group", n.group);
      Shape w{n.made, n.read / n.group};
      for (int64_t size : window.kernel) w.push_back(size);
      const Shape y = window.result(2, n.made);
      std::vector<Tensor> inputs{random_tensor(DType::f32, window.image(2, n.read), 1),
                                 random_tensor(DType::f32, w, 2)};
      expect_definition("plait.ChannelsLastConv", attributes, inputs, y, 1e-5, 1e-5);
      inputs.push_back(random_tensor(DType::f32, {n.made}, 3));
      inputs.push_back(random_tensor(DType::f32, y, 4));
      attributes.set("steps", Texts{"Add 0 1", "Add 3 2", "Relu 4"});
      expect_definition("plait.ChannelsLastConv", attributes, inputs, y, 1e-5, 1e-5);
    }
}

/// Many pixels in several items, and few with outputs in several parts.
TEST(CpuChannelsLastConv, EqualsReferenceInItemsAndParts) {
  for (const Shape& x : {Shape{1, 60, 61, 64}, Shape{1, 4, 4, 300}}) {
    const Shape y{1, x[1], x[2], 130};
    expect_definition("plait.ChannelsLastConv",
                      attributes({{"pads", Ints{1, 1, 1, 1}}, {"steps", Texts{"Add 0 1", "HardSwish 2"}}}),
                      {random_tensor(DType::f32, x, 1), random_tensor(DType::f32, {130, x[3], 3, 3}, 2),
                       random_tensor(DType::f32, {130}, 3)},
                      y, 1e-4, 1e-4);
  }
}

/// A result's bits do not depend on how many images are in the batch.
TEST(CpuChannelsLastConv, BitsInAnyCompany) {
  const Tensor x = random_tensor(DType::f32, {5, 9, 7, 24}, 1), w = random_tensor(DType::f32, {48, 24, 3, 3}, 2);
  const Attributes how = attributes({{"pads", Ints{1, 1, 1, 1}}});
  for (const std::string& isa : isas())
    for (const auto& kernel : kernels().all())
      if (kernel->op == "plait.ChannelsLastConv" && kernel->isa == isa) {
        const Tensor all = run_kernel(*kernel, how, {x, w}, {{DType::f32, {5, 9, 7, 48}}}, 2, nullptr, {1})[0];
        for (int64_t i = 0; i < 5; ++i)
          expect_equal_bits(
              run_kernel(*kernel, how, {rows(x, i, i + 1), w}, {{DType::f32, {1, 9, 7, 48}}}, 1, nullptr, {1})[0],
              rows(all, i, i + 1));
      }
}

TEST(CpuChannelsLastPool, EqualsReference) {
  for (const ChannelsLastWindow& window : channels_last_windows)
    for (const std::string kind : {"max", "mean"})
      for (int64_t counts : {0, 1})
        for (int64_t channels : {3, 16, 40}) {
          SCOPED_TRACE(cat(kind, " ", window.image(2, channels).text(), " counts ", counts));
          Attributes attributes = window.attributes();
          attributes.set("kernel_shape", window.kernel);
          attributes.set("kind", kind);
          attributes.set("count_include_pad", counts);
          Tensor x = random_tensor(DType::f32, window.image(2, channels), 1);
          if (x.elements() > 70) x.as<float>()[70] = NAN;
          expect_definition("plait.ChannelsLastPool", attributes, {x}, window.result(2, channels), 1e-5, 1e-6);
        }
}

/// All ops; operands that repeat along any dims; more elements than a tile.
TEST(CpuElementwise, EqualsReference) {
  Texts all;
  for (size_t i = 0; i < step_ops.size(); ++i)
    all.push_back(cat(step_ops[i].name, " ", i % 5, step_ops[i].operands == 2 ? cat(" ", (i + 2) % 5) : ""));
  for (const Shape& y : {Shape{2, 3, 5, 48}, Shape{3, 1, 1, 700}, Shape{1, 1, 1, 1}, Shape{2, 0, 3, 4}}) {
    auto sized = [&](const std::vector<bool>& keeps) {
      Shape out;
      for (size_t i = 0; i < keeps.size(); ++i)
        out.push_back(keeps[i] ? y[static_cast<int>(i) + y.rank() - static_cast<int>(keeps.size())] : 1);
      return out;
    };
    const std::vector<Tensor> inputs{random_tensor(DType::f32, y, 1, 0.5, 2),
                                     random_tensor(DType::f32, sized({true}), 2, 0.5, 2),
                                     random_tensor(DType::f32, {}, 3, 0.5, 2),
                                     random_tensor(DType::f32, sized({true, false, false, true}), 4, 0.5, 2),
                                     random_tensor(DType::f32, sized({true, false, true, false}), 5, 0.5, 2)};
    for (const std::string& one : all) {
      SCOPED_TRACE(cat(y.text(), " ", one));
      expect_definition("plait.Elementwise", attributes({{"steps", Texts{one, "Add 5 0"}}}), inputs, y, 1e-5, 1e-6);
    }
    expect_definition("plait.Elementwise",
                      attributes({{"steps", Texts{"Mul 0 1", "Sigmoid 5", "Mul 5 6", "Sub 7 3", "Max 8 4", "Mul 9 2",
                                                  "Add 10 5"}}}),
                      inputs, y, 1e-5, 1e-6);
  }
}

/// Operands of 8 and 32 bits, whole or repeated, next to floats; results as codes that saturate at both ends, with ties.
TEST(CpuElementwise, ReadsIntegersAndMakesCodes) {
  for (const Shape& y : {Shape{3, 5, 300}, Shape{2, 1, 7}})
    for (DType to : {DType::u8, DType::i8, DType::f32})
      for (const Shape& own : {y, Shape{y[2]}, Shape{}, Shape{y[0], 1, y[2]}, Shape{y[1], 1}}) {
        SCOPED_TRACE(cat(y.text(), " ", own.text(), " ", dtype_name(to)));
        const std::vector<Tensor> inputs{random_tensor(DType::u8, own, 1, 0, 256),
                                         random_tensor(DType::i8, y, 2, -128, 128),
                                         random_tensor(DType::i32, own, 3, -2000000000, 2000000000),
                                         tensor(DType::f32, {}, {0x1p-24}), tensor(DType::f32, {}, {0.5})};
        Attributes how = attributes({{"steps", Texts{"Sub 0 1", "Mul 2 3", "Add 5 6", "Mul 7 4"}}});
        if (to != DType::f32)
          how.set("to", static_cast<int64_t>(to)), how.set("zero", int64_t{to == DType::u8 ? 200 : -3});
        expect_reference("plait.Elementwise", how, inputs, {{to, y}}, 0, to == DType::f32 ? 1e-4 : 1, 2);
        how.set("steps", Texts{"Sub 0 1", "Mul 5 4"});  // halves: exact
        expect_reference("plait.Elementwise", how, {inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]}, {{to, y}},
                         0, 0, 2);
      }
}

/// Zero points and scales of operands and results, which are applied as codes are read and made, and steps that only look like them. All
/// numbers are exact.
TEST(CpuElementwise, ScalesCodes) {
  for (const Shape& own : {Shape{3, 5, 300}, Shape{300}, Shape{}})
    for (DType to : {DType::u8, DType::i8, DType::f32})
      for (const Texts& steps :
           {Texts{"Sub 0 3", "Mul 5 4", "Sub 1 3", "Mul 2 4", "Mul 4 7", "Add 6 9", "Add 10 8", "Relu 11",
                  "Div 12 4"},
            Texts{"Mul 0 4", "Sub 5 3", "Add 6 1"}, Texts{"Sub 0 3", "Mul 5 4", "Mul 6 4", "Add 7 1"},
            Texts{"Sub 0 3", "Add 5 0"}, Texts{"Sub 3 0", "Add 5 1"}, Texts{"Sub 1 3"}, Texts{"Mul 1 4"},
            Texts{"Sub 0 3", "Sub 5 3", "Mul 6 1"}, Texts{"Mul 1 4", "Mul 5 5", "Div 6 4"}, Texts{"Div 4 1"},
            Texts{"Div 1 4"}, Texts{"Sub 1 3", "Div 5 4"}, Texts{"Add 1 0", "Div 4 4", "Mul 5 6"}}) {
        SCOPED_TRACE(cat(own.text(), " ", dtype_name(to), " ", steps.front(), " ... ", steps.back()));
        const Shape y{3, 5, 300};
        Tensor odd = random_tensor(DType::i8, y, 2, -128, 128);  // no quotient by 0
        for (int64_t i = 0; i < odd.elements(); ++i) odd.as<int8_t>()[i] |= 1;
        const std::vector<Tensor> inputs{random_tensor(DType::u8, own, 1, 0, 256), odd,
                                         random_tensor(DType::i32, own, 3, -100, 100), tensor(DType::f32, {}, {7}),
                                         tensor(DType::f32, {}, {0.25})};
        Attributes how = attributes({{"steps", steps}});
        if (to != DType::f32)
          how.set("to", static_cast<int64_t>(to)), how.set("zero", int64_t{to == DType::u8 ? 100 : -3});
        expect_reference("plait.Elementwise", how, inputs, {{to, y}}, 0, 0, 2);
      }
}

TEST(CpuElementwise, NamesTheResultThatIsNotANumber) {
  Tensor x = random_tensor(DType::f32, {1300}, 1);
  x.as<float>()[1100] = NAN;
  for (const char* step : {"Neg 0", "Div 0 1"})
    for (const std::string& isa : with_reference(whole_isas())) {
      const Attributes how = attributes({{"steps", Texts{step}}, {"to", static_cast<int64_t>(DType::i8)}});
      KernelStatus status;
      run_op(kernels(), "plait.Elementwise", how, {x, tensor(DType::f32, {}, {0.5})}, {{DType::i8, {1300}}}, 2,
             &status, isa);
      EXPECT_EQ(status.code, KernelCode::not_a_number) << isa;
      EXPECT_EQ(status.value, 1100) << isa;
    }
}

TEST(ElementwiseSteps, RefusesWhatIsNotThere) {
  for (const char* step :
       {"Add 0", "Add 0 2", "Relu -1", "Relu 0 1", "Tangle 0", "", "Relu x", "Add 0 99999999999999999999"})
    EXPECT_THROW(parse_steps({step}, 2), Error) << step;
  EXPECT_THROW(parse_steps(Texts(most_steps + 1, "Relu 0"), 1), Error);
  EXPECT_THROW(parse_steps({"Relu 0"}, most_step_operands + 1), Error);
  EXPECT_EQ(parse_steps({"Add 0 1", "Relu 2"}, 2)[1].a, 2);
}

}  // namespace
}  // namespace plait::test
