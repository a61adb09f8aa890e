// Shape arithmetic as exporters write it.
#include "core/ops/base/shape_arithmetic.h"

#include "tests/unit/ops/ops_test.h"

namespace plait {
namespace {

using test::attrs;
using test::error_of;
using test::Ints;
using test::Net;

TEST(ShapeArithmetic, Decisions) {
  SymbolTable symbols;
  Dim s = Dim::parse("s", symbols), t = Dim::parse("t", symbols);
  EXPECT_EQ(least(s * Dim(2) + Dim(3)), 3);
  EXPECT_EQ(least(s - t), std::nullopt);
  EXPECT_EQ(known_equal(s, Dim(-1)), false);  // a size is never -1
  EXPECT_EQ(known_equal(s, Dim(0)), std::nullopt);
  EXPECT_EQ(known_equal(s + t, t + s), true);
  EXPECT_EQ(known_less(s, s + Dim(1)), true);
  EXPECT_EQ(known_less(s + Dim(1), s), false);
  EXPECT_EQ(known_less(s, t), std::nullopt);
  EXPECT_EQ(known_min(s, s + t), s);
  EXPECT_EQ(known_max(s, Dim(0)), s);
  EXPECT_EQ(known_quotient(s * Dim(4), Dim(2)), s * Dim(2));
  EXPECT_EQ(known_quotient(s, Dim(2)), std::nullopt);
  EXPECT_EQ(known_quotient(s, Dim(0)), std::nullopt);
  EXPECT_EQ(known_quotient(Dim(INT64_MIN), Dim(-1)), Dim(INT64_MAX));  // no trap
  EXPECT_EQ(known_quotient(Dim(-7), Dim(2)), Dim(-3));
  EXPECT_EQ(known_floor(Dim(-7), Dim(2)), Dim(-4));
  EXPECT_EQ(known_ceiling(Dim(7), Dim(2)), Dim(4));
  EXPECT_EQ(known_ceiling(Dim(-7), Dim(2)), Dim(-3));
  EXPECT_EQ(known_remainder(Dim(-7), Dim(3)), Dim(2));
  EXPECT_EQ(known_remainder(s * Dim(6), Dim(3)), Dim(0));
}

TEST(ShapeChain, SplitHeads) {
  // x.view(b, s, heads, size): Shape -> Gather -> Unsqueeze -> Concat -> Reshape
  Net net;
  ValueId x = net.input("batch seq 768");
  auto size = [&](int64_t axis) {
    ValueId one = net.node("Gather", {net.node("Shape", {x}), net.scalar(axis)});
    EXPECT_EQ(net.type(one), "i64[]");
    return net.node("Unsqueeze", {one, net.ints({0})});
  };
  ValueId shape =
      net.node("Concat", {size(0), size(1), net.ints({12}), net.ints({64})}, attrs({{"axis", int64_t{0}}}));
  EXPECT_EQ(net.contents(shape), "[batch, seq, 12, 64]");
  EXPECT_EQ(net.type(net.node("Reshape", {x, shape})), "f32[batch, seq, 12, 64]");
}

TEST(ShapeChain, MergeHeads) {
  // Size arithmetic with Mul and Div on scalars, and -1 for what is left.
  Net net;
  ValueId x = net.input("batch 12 seq 64"), shape = net.node("Shape", {x});
  ValueId heads = net.node("Gather", {shape, net.scalar(1)}), size = net.node("Gather", {shape, net.scalar(3)});
  ValueId hidden = net.node("Mul", {heads, size});
  EXPECT_EQ(net.contents(hidden), "[768]");
  ValueId half = net.node("Div", {size, net.scalar(2)});
  EXPECT_EQ(net.contents(half), "[32]");
  ValueId moved = net.node("Transpose", {x}, attrs({{"perm", Ints{0, 2, 1, 3}}}));
  ValueId front = net.node("Slice", {net.node("Shape", {moved}), net.ints({0}), net.ints({1}), net.ints({0})});
  EXPECT_EQ(net.contents(front), "[batch]");
  ValueId back = net.node("Unsqueeze", {hidden, net.ints({0})});
  ValueId target = net.node("Concat", {front, net.ints({-1}), back}, attrs({{"axis", int64_t{0}}}));
  EXPECT_EQ(net.type(net.node("Reshape", {moved, target})), "f32[batch, seq, 768]");
}

TEST(ShapeChain, ExpandAsTorchWritesIt) {
  // Expand(x, Where(Equal(shape, -1), ones, shape))
  Net net;
  ValueId x = net.input("batch 4 1 seq 64");
  ValueId batch = net.node("Shape", {x}, attrs({{"start", int64_t{0}}, {"end", int64_t{1}}}));
  ValueId shape = net.node("Concat", {batch, net.ints({4, 3, -1, 64})}, attrs({{"axis", int64_t{0}}}));
  ValueId ones = net.node("ConstantOfShape", {net.ints({5})},
                          attrs({{"value", Tensor::of_ints(std::vector<int64_t>{1})}}));
  EXPECT_EQ(net.contents(ones), "[1, 1, 1, 1, 1]");
  ValueId minus = net.node("Mul", {ones, net.scalar(-1)});
  ValueId target = net.node("Where", {net.node("Equal", {shape, minus}), ones, shape});
  EXPECT_EQ(net.contents(target), "[batch, 4, 3, 1, 64]");
  EXPECT_EQ(net.type(net.node("Expand", {x, target})), "f32[batch, 4, 3, seq, 64]");
}

TEST(ShapeChain, PositionsAndCausalMask) {
  // arange(past, past + seq), and the mask of [seq, past + seq].
  Net net;
  ValueId ids = net.input("batch seq", DType::i64), past = net.input("batch 4 past 64");
  ValueId seq = net.node("Gather", {net.node("Shape", {ids}), net.scalar(1)});
  ValueId before = net.node("Gather", {net.node("Shape", {past}), net.scalar(2)});
  ValueId total = net.node("Add", {before, seq});
  ValueId positions = net.node("Range", {before, total, net.scalar(1)});
  EXPECT_EQ(net.type(positions), "i64[seq]");
  ValueId keys = net.node("Range", {net.scalar(0), total, net.scalar(1)});
  EXPECT_EQ(net.type(keys), "i64[past + seq]");
  ValueId allowed = net.node("LessOrEqual", {net.node("Unsqueeze", {keys, net.ints({0})}),
                                             net.node("Unsqueeze", {positions, net.ints({1})})});
  EXPECT_EQ(net.type(allowed), "bool[seq, past + seq]");
  ValueId shape = net.node("Concat", {net.node("Unsqueeze", {seq, net.ints({0})}),
                                      net.node("Unsqueeze", {total, net.ints({0})})}, attrs({{"axis", int64_t{0}}}));
  Tensor low(DType::f32, Shape{1});
  ValueId mask = net.node("Trilu", {net.node("ConstantOfShape", {shape}, attrs({{"value", low}})), net.scalar(1)});
  EXPECT_EQ(net.type(mask), "f32[seq, past + seq]");
  EXPECT_EQ(net.type(net.node("Expand", {mask, net.node("Shape", {net.input("batch 1 seq past+seq")})})),
            "f32[batch, 1, seq, past + seq]");
}

TEST(ShapeChain, IntegersInOtherForms) {
  Net net;
  ValueId x = net.input("b s 8");
  ValueId shape = net.node("Cast", {net.node("Shape", {x})}, attrs({{"to", int64_t{6}}}));
  EXPECT_EQ(net.contents(shape), "[b, s, 8]");
  EXPECT_EQ(net.type(shape), "i32[3]");
  EXPECT_EQ(net.contents(net.node("ReduceProd", {shape})), "[8*b*s]");
  EXPECT_EQ(net.contents(net.node("Size", {x})), "[8*b*s]");
  EXPECT_EQ(net.contents(net.node("ReduceMax", {net.ints({3, 9, 4})})), "[9]");
  EXPECT_EQ(net.contents(net.node("Neg", {net.ints({3})})), "[-3]");
  EXPECT_EQ(net.contents(net.node("Mod", {net.ints({7}), net.ints({4})})), "[3]");
  EXPECT_EQ(net.contents(net.node("Min", {net.ints({7, 2}), net.scalar(4)})), "[4, 2]");
  EXPECT_EQ(net.contents(net.node("Not", {net.node("Greater", {net.ints({1, 5}), net.scalar(3)})})), "[1, 0]");
  EXPECT_EQ(net.contents(net.node("And", {net.node("Less", {net.ints({1}), net.scalar(3)}),
                                          net.node("Equal", {net.ints({2}), net.scalar(2)})})),
            "[1]");
  EXPECT_EQ(net.contents(net.node("Range", {net.scalar(0), net.scalar(4), net.scalar(1)})), "[0, 1, 2, 3]");
  EXPECT_EQ(net.contents(net.node("Squeeze", {net.node("Slice", {shape, net.ints({-1}), net.ints({99})})})), "[8]");
  EXPECT_EQ(net.contents(net.node("Expand", {net.scalar(5), net.ints({3})})), "[5, 5, 5]");
  auto parts = net.nodes("Split", {shape}, 3, attrs({{"axis", int64_t{0}}, {"num_outputs", int64_t{3}}}));
  EXPECT_EQ(net.contents(parts[1]), "[s]");
  ValueId four = net.node("Cast", {net.ints({4})}, attrs({{"to", int64_t{6}}}));
  EXPECT_EQ(net.contents(net.node("Equal", {net.node("Gather", {shape, net.ints({1})}), four})), "?");
  EXPECT_NE(error_of([&] { net.node("Gather", {net.ints({1, 2}), net.scalar(2)}); }).find("out of range"),
            std::string::npos);
}

/// Only an op that is the identity on its first operand's elements hands on what is known of them.
TEST(ShapeChain, NewElementsAreNotTheOperands) {
  Net net;
  ValueId shape = net.node("Shape", {net.input("b s 8")}), at = net.ints({1});
  EXPECT_EQ(net.contents(net.node("Identity", {shape})), "[b, s, 8]");
  for (const char* op : {"CumSum", "CumProd"}) EXPECT_EQ(net.contents(net.node(op, {shape, net.scalar(0)})), "?") << op;
  EXPECT_EQ(net.contents(net.node("ScatterND", {shape, net.graph.add_constant(Tensor::of_ints(Ints{1}).reshaped({1, 1})),
                                                net.ints({9})})),
            "?");
  EXPECT_EQ(net.contents(net.node("ScatterElements", {shape, at, net.ints({9})})), "?");
  EXPECT_EQ(net.contents(net.node("BitShift", {net.node("Cast", {shape}, attrs({{"to", int64_t{13}}})),
                                               net.node("Cast", {at}, attrs({{"to", int64_t{13}}}))},
                                  attrs({{"direction", std::string("LEFT")}}))),
            "?");
}

/// Types too narrow for any size wrap when they are computed.
TEST(ShapeChain, NumbersThatATypeCannotHoldAreUnknown) {
  Net net;
  auto cast = [&](ValueId value, DType to) { return net.node("Cast", {value}, attrs({{"to", static_cast<int64_t>(to)}})); };
  ValueId shape = net.node("Shape", {net.input("b s 8")});
  EXPECT_EQ(net.contents(cast(shape, DType::u8)), "?");
  EXPECT_EQ(net.contents(cast(net.ints({300}), DType::u8)), "?");
  EXPECT_EQ(net.contents(cast(net.ints({-1}), DType::u64)), "?");
  ValueId most = cast(net.ints({127}), DType::i8);
  EXPECT_EQ(net.contents(most), "[127]");
  EXPECT_EQ(net.contents(net.node("Add", {most, most})), "?");
  ValueId three = cast(net.ints({3}), DType::u32), five = cast(net.ints({5}), DType::u32);
  EXPECT_EQ(net.contents(net.node("Sub", {five, three})), "[2]");
  EXPECT_EQ(net.contents(net.node("Sub", {three, five})), "?");
}

/// What a few nodes can ask for: a size of degree 2^60.
TEST(ShapeChain, SizesOfHighDegreeAreUnknown) {
  Net net;
  ValueId size = net.node("Gather", {net.node("Shape", {net.input("b s")}), net.ints({1})});
  for (int i = 0; i < 60; ++i) size = net.node("Mul", {size, size});
  EXPECT_EQ(net.contents(size), "?");
  EXPECT_EQ(net.type(net.node("ConstantOfShape", {size})).substr(0, 13), "f32[constant.");
}

TEST(ShapeChain, ReshapeThatDoesNotDivideIsUnknown) {
  Net net;
  ValueId x = net.input("b s");
  EXPECT_EQ(net.type(net.node("Reshape", {x, net.ints({-1, 8})})).substr(0, 12), "f32[reshape.");
  EXPECT_EQ(net.type(net.node("Reshape", {x, net.input("3", DType::i64)})).substr(0, 12), "f32[reshape.");
}

}  // namespace
}  // namespace plait
