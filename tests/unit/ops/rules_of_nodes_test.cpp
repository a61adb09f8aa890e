// The dims rules that rows write for nodes of known ranks and sizes.
#include "core/graph/dims_rule.h"
#include "tests/unit/ops/ops_test.h"

namespace plait {
namespace {

using test::attrs;
using test::Ints;
using test::Net;

/// The rule of the node that was added last; "" when it has none.
std::string last_rule(const Net& net) {
  const Node& node = net.graph.nodes.back();
  auto types = [&](const std::vector<ValueId>& ids) {
    std::vector<Type> out;
    for (ValueId id : ids) out.push_back(id == no_value ? Type{} : net.graph.value(id).type);
    return out;
  };
  auto rule = rule_of(*test::all_ops().find(node.op), node, types(node.inputs), types(node.outputs));
  return rule ? text(*rule) : "";
}

std::string rule(Net& net, std::string op, std::vector<ValueId> inputs, Attributes attributes = {}, int outputs = 1) {
  net.nodes(std::move(op), std::move(inputs), outputs, std::move(attributes));
  return last_rule(net);
}

TEST(RulesOfNodes, Reshape) {
  Net net;
  ValueId x = net.input("b s 768");
  EXPECT_EQ(rule(net, "Reshape", {x, net.ints({0, 0, 12, 64})}), "*a b (c d), [e] -> a b c d");
  EXPECT_EQ(rule(net, "Reshape", {x, net.ints({-1, 768})}), "*a b c, [d] -> (a b) c");
  EXPECT_EQ(rule(net, "Reshape", {x, net.ints({0, -1, 4, 3, 64})}), "*a b (c d e), [f] -> a b c d e");
  EXPECT_EQ(rule(net, "Reshape", {net.input("b s 4 3 64"), net.ints({0, 0, -1})}), "*a b c d e, [f] -> a b (c d e)");
  EXPECT_EQ(rule(net, "Reshape", {net.input("6 4"), net.ints({4, 6})}), "*[a] [b], [e] -> [c] [d]");
  EXPECT_EQ(rule(net, "Reshape", {net.input("b 6 4 8"), net.ints({0, 4, 6, 8})}), "*a [c] [d] b, [g] -> a [e] [f] b");
  EXPECT_EQ(rule(net, "Reshape", {net.input("4 6 8"), net.ints({8, 3, 2, 4})}), "*a (b c) (d e), [f] -> (a b) c d e");
  EXPECT_EQ(rule(net, "Unsqueeze", {x, net.ints({1})}), "*a b c, [d] -> a 1 b c");
  EXPECT_EQ(rule(net, "Squeeze", {net.input("1 s 1 8")}), "*1 a 1 b -> a b");
  EXPECT_EQ(rule(net, "Flatten", {x}), "*a b c -> a (b c)");
}

TEST(RulesOfNodes, Layout) {
  Net net;
  ValueId x = net.input("b s 8 64");
  EXPECT_EQ(rule(net, "Transpose", {x}, attrs({{"perm", Ints{0, 2, 1, 3}}})), "*a b c d -> a c b d");
  EXPECT_EQ(rule(net, "Concat", {x, x}, attrs({{"axis", int64_t{-1}}})), "+a b c [e], +a b c [f] -> a b c [g]");
  EXPECT_EQ(rule(net, "Expand", {net.input("b 1 8"), net.node("Shape", {net.input("4 b s 8")})}),
            "*b 1 d, [shape] -> a b c d");
  EXPECT_EQ(rule(net, "Tile", {net.input("b 3"), net.ints({1, 2})}), "*a [b], [repeats] -> a [d]");
  EXPECT_EQ(rule(net, "Slice", {x, net.ints({0}), net.ints({32}), net.ints({3})}),
            "*a b c [d], [axes], [axes], [axes] -> a b c [h]");
  EXPECT_EQ(rule(net, "Split", {x}, attrs({{"axis", int64_t{2}}, {"num_outputs", int64_t{2}}}), 2),
            "*a b [c] d -> a b [e] d, a b [f] d");
  EXPECT_EQ(rule(net, "Pad", {net.input("4 4"), net.ints({1, 0, -1, 0})}), "");
  EXPECT_EQ(rule(net, "DepthToSpace", {net.input("b 12 y x")}, attrs({{"blocksize", int64_t{2}}})),
            "*b ([i] [j] c) y x -> b c (y [i]) (x [j])");
}

TEST(RulesOfNodes, Indices) {
  Net net;
  ValueId x = net.input("b s 64"), ids = net.input("b t", DType::i64);
  EXPECT_EQ(rule(net, "Gather", {net.weight({100, 64}), ids}), "*[a] b, c d -> c d b");
  EXPECT_EQ(rule(net, "Gather", {x, net.scalar(0)}, attrs({{"axis", int64_t{1}}})), "*a [b] c, -> a c");
  EXPECT_EQ(rule(net, "GatherND", {x, net.input("b n 1", DType::i64)}, attrs({{"batch_dims", int64_t{1}}})),
            "*a [b] c, a e [f] -> a e c");
  EXPECT_EQ(rule(net, "GatherElements", {x, net.input("b t 64", DType::i64)}, attrs({{"axis", int64_t{1}}})),
            "*a [b] c, a d c -> a d c");
  EXPECT_EQ(rule(net, "ScatterND", {x, net.input("n 1", DType::i64), net.input("n s 64")}),
            "+[a] b c, [d] [e], +[d] b c -> [a] b c");
  EXPECT_EQ(rule(net, "TopK", {x, net.ints({4})}, {}, 2), "a b [c], [one] -> a b [d], a b [d]");
  EXPECT_EQ(rule(net, "plait.GatherRows", {x, ids}), "*b [s] t, b n -> b n t");
}

TEST(RulesOfNodes, Reductions) {
  Net net;
  ValueId x = net.input("b s 64");
  Attributes drop = attrs({{"keepdims", int64_t{0}}});
  EXPECT_EQ(rule(net, "ReduceMean", {x, net.ints({-1})}), "*a b c, [axes] -> a b 1");
  EXPECT_EQ(rule(net, "ReduceMax", {x, net.ints({1})}, drop), "a b c, [axes] -> a c {max}");
  EXPECT_EQ(rule(net, "ReduceProd", {x, net.ints({1})}, drop), "a [b] c, [axes] -> a c");
  EXPECT_EQ(rule(net, "ReduceSum", {net.input("s s"), net.ints({1})}, drop), "");  // which one is not told by sizes
  EXPECT_EQ(rule(net, "ReduceSum", {x}, drop), "*a b c -> {sum}");
  EXPECT_EQ(rule(net, "ArgMax", {x}, attrs({{"axis", int64_t{2}}, {"keepdims", int64_t{0}}})), "a b [c] -> a b");
}

/// Shards cut quantised weights along n, and along k between blocks.
TEST(RulesOfNodes, QuantisedWeights) {
  Net net;
  ValueId x = net.input("b s 64"), odd = net.input("b s 60"), ids = net.input("b s", DType::i64);
  ValueId w = net.weight({8, 2, 32}, DType::u4), scales = net.weight({8, 2}), zeros = net.weight({8, 2}, DType::u8);
  ValueId bias = net.weight({8});
  EXPECT_EQ(rule(net, "plait.Linear", {x, w, no_value, scales}), "*b s (c l), n c l, , *n c -> b s n");
  EXPECT_EQ(rule(net, "plait.Linear", {x, w, no_value, scales, zeros}), "*b s (c l), n c l, , *n c, n c -> b s n");
  EXPECT_EQ(rule(net, "plait.Linear", {x, w, bias, scales, zeros}),
            "b s ([c] [l]), n [c] [l], n, n [c], n [c] -> b s n");
  EXPECT_EQ(rule(net, "plait.Linear", {odd, w, no_value, scales}), "*b s [k], n [c] [l], , *n [c] -> b s n");
  EXPECT_EQ(rule(net, "plait.Linears", {x, w, scales, net.weight({4, 2, 32}, DType::u4), net.weight({4, 2})},
                 attrs({{"parts", int64_t{2}}}), 2),
            "*b s (c l), n1 c l, n1 c, n2 c l, n2 c -> b s n1, b s n2");
  EXPECT_EQ(rule(net, "plait.GatedLinear", {x, w, w, scales, zeros, scales, zeros}),
            "b s ([c] [l]), f [c] [l], f [c] [l], f [c], f [c], *f [c], f [c] -> b s f");
  EXPECT_EQ(rule(net, "plait.Embedding", {w, ids, scales}), "@v c l, b s, *@v c -> b s (c l)");
}

/// Experts are cut by their number, and their hidden dimension where nothing is added after it.
TEST(RulesOfNodes, Experts) {
  Net net;
  ValueId x = net.input("b s 64"), numbers = net.input("b s 2", DType::i64), shares = net.input("b s 2");
  ValueId gate = net.weight({4, 96, 64}), down = net.weight({4, 64, 96}), bias = net.weight({4, 96});
  EXPECT_EQ(rule(net, "plait.Experts", {x, numbers, shares, gate, no_value, down}),
            "b s [h], b s k, *b s k, @e f [h], , *@e o f -> b s o");
  EXPECT_EQ(net.type(net.graph.nodes.back().outputs[0]), "f32[b, s, 64]");
  EXPECT_EQ(rule(net, "plait.Experts", {x, numbers, shares, gate, gate, down}),
            "b s [h], b s k, *b s k, @e f [h], *@e f [h], *@e o f -> b s o");
  EXPECT_EQ(rule(net, "plait.Experts", {x, numbers, shares, gate, gate, down, bias, bias, net.weight({4, 64})}),
            "b s [h], b s k, *b s k, @e [f] [h], @e [f] [h], @e o [f], @e [f], @e [f], @e o -> b s o");
  ValueId codes = net.weight({4, 96, 2, 32}, DType::u4), scales = net.weight({4, 96, 2});
  ValueId down_codes = net.weight({4, 64, 3, 32}, DType::u4), down_scales = net.weight({4, 64, 3});
  ValueId zeros = net.weight({4, 64, 3}, DType::u8);
  EXPECT_EQ(rule(net, "plait.Experts",
                 {x, numbers, shares, codes, codes, down_codes, no_value, no_value, no_value, scales, no_value,
                  scales, no_value, down_scales, zeros}),
            "b s ([c] [l]), b s k, *b s k, @e (m n) [c] [l], @e (m n) [c] [l], @e o m n, , , , @e (m n) [c], , "
            "*@e (m n) [c], , *@e o m, @e o m -> b s o");
}

/// Heads and channels may be cut, and the states with them; tokens stay whole.
TEST(RulesOfNodes, States) {
  Net net;
  ValueId x = net.input("1 t 64"), segments = net.input("1 t", DType::i32), slots = net.input("n 2", DType::i32);
  EXPECT_EQ(rule(net, "plait.CausalConv", {net.input("u 3 64"), x, net.weight({4, 64}), segments, slots}, {}, 2),
            "[u] [m] c, [b] [t] c, [k] c, [b] [t], [n] 2 -> [u] [m] c, [b] [t] c");
  auto heads = [](int64_t queries, int64_t states) {
    return attrs({{"q_num_heads", queries}, {"kv_num_heads", states}});
  };
  ValueId narrow = net.input("1 t 32"), each = net.input("1 t 2"), one = net.input("1 t 1");
  EXPECT_EQ(
      rule(net, "plait.LinearAttention", {net.input("u 2 16 16"), x, narrow, narrow, segments, slots, narrow, each},
           heads(4, 2), 2),
      "[u] g 16 16, [b] [t] (g r 16), [b] [t] (g 16), [b] [t] (g 16), [b] [t], [n] 2, [b] [t] (g 16), [b] [t] g -> "
      "[u] g 16 16, [b] [t] (g r 16)");
  ValueId decay = net.input("1 t 4");
  EXPECT_EQ(rule(net, "plait.LinearAttention",
                 {net.input("u 4 16 16"), narrow, narrow, x, segments, slots, decay, one}, heads(2, 4), 2),
            "[u] (g r) 16 16, [b] [t] (g 16), [b] [t] (g 16), [b] [t] (g r 16), [b] [t], [n] 2, [b] [t] (g r), "
            "[b] [t] 1 -> [u] (g r) 16 16, [b] [t] (g r 16)");
  EXPECT_EQ(rule(net, "plait.LinearAttention", {net.input("u 4 16 16"), narrow, x, x, segments, slots, decay, decay},
                 heads(2, 4), 2),
            "[u] (g r) 16 16, [b] [t] (g 16), [b] [t] (g r 16), [b] [t] (g r 16), [b] [t], [n] 2, [b] [t] (g r), "
            "[b] [t] (g r) -> [u] (g r) 16 16, [b] [t] (g r 16)");
}

TEST(RulesOfNodes, Contractions) {
  Net net;
  ValueId x = net.input("b s 64"), w = net.weight({64, 8});
  EXPECT_EQ(rule(net, "MatMul", {x, w}), "*b q k, *k n -> b q n");
  EXPECT_EQ(rule(net, "MatMul", {net.input("64"), net.input("b 64 s")}), "*k, *b k n -> b n");
  ValueId rows = net.input("m 64");
  EXPECT_EQ(rule(net, "Gemm", {rows, w}), "*m k, *k n -> m n");
  // The bias is added once: the summed factor is whole.
  EXPECT_EQ(rule(net, "Gemm", {rows, w, net.weight({8})}), "m [k], [k] n, n -> m n");
  EXPECT_EQ(rule(net, "Gemm", {rows, w, net.weight({1, 8})}), "m [k], [k] n, 1 n -> m n");
  EXPECT_EQ(rule(net, "Gemm", {rows, w, net.input("c")}), "m [k], [k] [n], [c1] -> m [n]");
  const ValueId codes = net.input("b s 64", DType::u8), open = net.input("k n", DType::i8),
                zero = net.input("z", DType::i8);
  EXPECT_EQ(rule(net, "MatMulInteger", {codes, open, no_value, net.input("n", DType::i8)}),
            "b q k, k n, , n -> b q n");
  EXPECT_EQ(rule(net, "MatMulInteger", {codes, open, no_value, zero}), "b q k, k [n], , [z3] -> b q [n]");
  EXPECT_EQ(rule(net, "plait.Linear", {x, net.weight({8, 64})}), "*b s k, *n k -> b s n");
  EXPECT_EQ(rule(net, "plait.Linear", {x, net.weight({8, 64}), net.weight({8})}), "b s [k], n [k], n -> b s n");
  EXPECT_EQ(rule(net, "plait.Linears", {x, net.weight({8, 64}), net.weight({4, 64})}, {}, 2),
            "*b s k, n1 k, n2 k -> b s n1, b s n2");
  EXPECT_EQ(rule(net, "Einsum", {x, w}, attrs({{"equation", std::string("bsi,ij->bsj")}})), "*b s i, *i j -> b s j");
  EXPECT_EQ(rule(net, "com.microsoft.FusedMatMul", {x, net.weight({8, 64})}, attrs({{"transB", int64_t{1}}})),
            "*a0 q k, *n k -> a0 q n");
  // The first matrix dim before the batch, and vectors.
  ValueId deep = net.weight({8, 3, 64});
  EXPECT_EQ(
      rule(net, "com.microsoft.FusedMatMul", {deep, net.weight({3, 64, 5})}, attrs({{"transBatchA", int64_t{1}}})),
      "*q a0 k, *a0 k n -> a0 q n");
  EXPECT_EQ(rule(net, "com.microsoft.FusedMatMul", {deep, net.weight({3})}, attrs({{"transA", int64_t{1}}})),
            "*a0 k q, *k -> a0 q");
  EXPECT_EQ(rule(net, "com.microsoft.FusedMatMul", {net.weight({1, 1, 64}), net.weight({1, 64, 5})}),
            "*1 1 k, *1 k n -> 1 1 n");
}

TEST(RulesOfNodes, IntegersAreNotDividedLinearly) {
  Net net;
  EXPECT_EQ(rule(net, "Div", {net.input("b 4"), net.input("4")}), "*b s, s -> b s");
  EXPECT_EQ(rule(net, "Div", {net.input("b 4", DType::i64), net.input("4", DType::i64)}), "b s, s -> b s");
}

TEST(RulesOfNodes, Others) {
  Net net;
  ValueId x = net.input("b s 64"), h = net.weight({64});
  EXPECT_EQ(rule(net, "Softmax", {x}, attrs({{"axis", int64_t{1}}})), "a [b] c -> a [b] c");
  EXPECT_EQ(rule(net, "RMSNormalization", {x, h}), "a b [c], *[c] -> a b [c]");
  EXPECT_EQ(rule(net, "LayerNormalization", {x, h, h}, {}, 2), "a b [c], [c], [c] -> a b [c], a b 1");
  EXPECT_EQ(rule(net, "Cast", {net.input("b", DType::bf16)}, attrs({{"to", int64_t{1}}})), "*b -> b");
  EXPECT_EQ(rule(net, "Cast", {x}, attrs({{"to", int64_t{16}}})), "b s t -> b s t");  // rounds: not linear
  ValueId q = net.input("b 12 s 64"), k = net.input("b 4 s 64");
  EXPECT_EQ(rule(net, "Attention", {q, k, k, net.input("b 1 s t")}),
            "b (g r) q [d], b g [k] [d], *b g [k] [e], b 1 q [m] -> b (g r) q [e]");
  EXPECT_EQ(rule(net, "Attention", {net.input("b s 768"), net.input("b s 256"), net.input("b s 256")},
                 attrs({{"q_num_heads", int64_t{12}}, {"kv_num_heads", int64_t{4}}, {"is_causal", int64_t{1}}})),
            "b [q] (g r 64), b [k] (g 64), *b [k] (g 64) -> b [q] (g r 64)");
  ValueId w = net.weight({64, 96}, DType::i8);
  EXPECT_EQ(rule(net, "DequantizeLinear", {w, net.weight({64, 3})}, attrs({{"block_size", int64_t{32}}})),
            "a (b 32), a b -> a (b 32)");
  EXPECT_EQ(rule(net, "Conv", {net.input("b 6 s"), net.weight({6, 1, 4})}, attrs({{"group", int64_t{6}}})),
            "*b (g c) [x0], *(g m) c [x1] -> b (g m) [x2]");
}

}  // namespace
}  // namespace plait
