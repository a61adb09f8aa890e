// Types and sizes of single ops, symbolic.
#include "core/graph/dims_rule.h"
#include "tests/unit/ops/ops_test.h"

namespace plait {
namespace {

using test::attrs;
using test::error_of;
using test::Ints;
using test::Net;

TEST(Infer, ElementwiseBroadcasts) {
  Net net;
  ValueId x = net.input("b s 64"), row = net.input("64"), one = net.input("1 s 1");
  EXPECT_EQ(net.type(net.node("Add", {x, row})), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("Mul", {one, row})), "f32[1, s, 64]");
  EXPECT_EQ(net.type(net.node("Less", {x, row})), "bool[b, s, 64]");
  ValueId condition = net.input("s 1", DType::boolean);
  EXPECT_EQ(net.type(net.node("Where", {condition, row, x})), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("Max", {x, row, one})), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("Pow", {x, net.weight({}, DType::i64)})), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("Clip", {x, no_value, net.weight({})})), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("IsNaN", {x})), "bool[b, s, 64]");
  EXPECT_NE(error_of([&] { net.node("Add", {x, net.weight({63})}); }).find("input 1 (b): factor t is 63, but 64"),
            std::string::npos);
}

TEST(Infer, CastsAndGenerators) {
  Net net;
  ValueId x = net.input("b s"), ids = net.input("b s", DType::i64);
  EXPECT_EQ(net.type(net.node("Cast", {x}, attrs({{"to", int64_t{16}}}))), "bf16[b, s]");
  EXPECT_EQ(net.type(net.node("CastLike", {ids, x})), "f32[b, s]");
  for (int64_t number : {-1, 0, 27, 99})
    EXPECT_NE(error_of([&] { net.node("Cast", {x}, attrs({{"to", number}})); }).find("which is no element type"),
              std::string::npos)
        << number;
  EXPECT_NE(error_of([&] { net.node("EyeLike", {x}, attrs({{"dtype", int64_t{0}}})); }).find("no element type"),
            std::string::npos);
  EXPECT_EQ(net.type(net.node("NonZero", {x})).substr(0, 7), "i64[2, ");
  EXPECT_EQ(net.type(net.node("EyeLike", {x}, attrs({{"dtype", int64_t{7}}}))), "i64[b, s]");
  EXPECT_EQ(net.type(net.node("OneHot", {ids, net.scalar(8), net.weight({2})})), "f32[b, s, 8]");
  EXPECT_EQ(net.type(net.node("OneHot", {ids, net.ints({8}), net.weight({2})}, attrs({{"axis", int64_t{1}}}))),
            "f32[b, 8, s]");
  EXPECT_EQ(net.type(net.node("ConstantOfShape", {net.ints({2, 3})})), "f32[2, 3]");
  EXPECT_EQ(net.type(net.node("Trilu", {x, net.scalar(1)})), "f32[b, s]");
  EXPECT_EQ(net.type(net.node("CumSum", {x, net.scalar(1)})), "f32[b, s]");
}

TEST(Infer, Layout) {
  Net net;
  ValueId x = net.input("b s 768");
  EXPECT_EQ(net.type(net.node("Transpose", {x}, attrs({{"perm", Ints{0, 2, 1}}}))), "f32[b, 768, s]");
  EXPECT_EQ(net.type(net.node("Transpose", {x})), "f32[768, s, b]");
  ValueId split = net.node("Reshape", {x, net.ints({0, 0, 12, -1})});
  EXPECT_EQ(net.type(split), "f32[b, s, 12, 64]");
  EXPECT_EQ(net.type(net.node("Reshape", {x, net.ints({-1, 768})})), "f32[b*s, 768]");
  EXPECT_EQ(net.type(net.node("Flatten", {x}, attrs({{"axis", int64_t{2}}}))), "f32[b*s, 768]");
  EXPECT_EQ(net.type(net.node("Flatten", {x}, attrs({{"axis", int64_t{3}}}))), "f32[768*b*s, 1]");
  EXPECT_EQ(net.type(net.node("Unsqueeze", {x, net.ints({0, -1})})), "f32[1, b, s, 768, 1]");
  EXPECT_EQ(net.type(net.node("Squeeze", {net.input("b 1 s 1"), net.ints({1})})), "f32[b, s, 1]");
  EXPECT_EQ(net.type(net.node("Squeeze", {net.input("2 1 3 1")})), "f32[2, 3]");
  EXPECT_EQ(net.type(net.node("Squeeze", {net.input("b 1 s 1")})), "f32[b, s]");
  EXPECT_EQ(net.type(net.node("Concat", {x, net.input("b t 768")}, attrs({{"axis", int64_t{1}}}))),
            "f32[b, s + t, 768]");
  EXPECT_EQ(net.type(net.node("Expand", {net.input("b 1 8"), net.ints({2, 1, 5, 1})})), "f32[2, b, 5, 8]");
  EXPECT_EQ(net.type(net.node("Expand", {net.input("b 1 8"), net.ints({-1, 5, -1})})), "f32[b, 5, 8]");
  EXPECT_EQ(net.type(net.node("Tile", {x, net.ints({1, 2, 1})})), "f32[b, 2*s, 768]");
  EXPECT_EQ(net.type(net.node("Pad", {x, net.ints({0, 1, 0, 0, 2, 0})})), "f32[b, s + 3, 768]");
  EXPECT_EQ(net.type(net.node("Pad", {x, net.ints({1, 1}), no_value, net.ints({-1})})), "f32[b, s, 770]");
  EXPECT_EQ(net.type(net.node("DepthToSpace", {net.input("b 12 y x")}, attrs({{"blocksize", int64_t{2}}}))),
            "f32[b, 3, 2*y, 2*x]");
}

TEST(Infer, LayoutErrors) {
  Net net;
  ValueId x = net.input("2 3 8");
  EXPECT_NE(error_of([&] { net.node("Reshape", {x, net.ints({5, -1})}); }), "");
  EXPECT_NE(error_of([&] {
              net.node("Reshape", {x, net.ints({-1, -1})});
            }).find("more than one -1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { net.node("Reshape", {x, net.ints({7})}); }), "");
  EXPECT_NE(error_of([&] { net.node("Squeeze", {x, net.ints({0})}); }), "");
  EXPECT_NE(error_of([&] { net.node("Unsqueeze", {x, net.ints({9})}); }).find("axis 9 is out of range for rank 4"),
            std::string::npos);
  EXPECT_NE(error_of([&] { net.node("Transpose", {x}, attrs({{"perm", Ints{0, 0, 1}}})); }), "");
  EXPECT_NE(error_of([&] { net.node("Concat", {x, net.input("2 4 9")}, attrs({{"axis", int64_t{1}}})); }), "");
  EXPECT_NE(error_of([&] { net.node("Expand", {x, net.ints({5})}); }), "");
}

TEST(Infer, Slices) {
  Net net;
  ValueId x = net.input("b s 64");
  auto slice = [&](Ints starts, Ints ends, Ints axes, Ints steps = {}) {
    std::vector<ValueId> inputs{x, net.ints(starts), net.ints(ends), net.ints(axes)};
    if (!steps.empty()) inputs.push_back(net.ints(steps));
    return net.type(net.node("Slice", inputs));
  };
  constexpr int64_t end = INT64_MAX;
  EXPECT_EQ(slice({0}, {32}, {2}), "f32[b, s, 32]");
  EXPECT_EQ(slice({-32}, {end}, {-1}), "f32[b, s, 32]");
  EXPECT_EQ(slice({-1}, {end}, {1}), "f32[b, 1, 64]");
  EXPECT_EQ(slice({1}, {end}, {1}), "f32[b, s + -1, 64]");
  EXPECT_EQ(slice({0}, {-1}, {1}), "f32[b, s + -1, 64]");
  EXPECT_EQ(slice({0}, {end}, {1}), "f32[b, s, 64]");
  EXPECT_EQ(slice({0}, {1}, {1}), "f32[b, 1, 64]");
  EXPECT_EQ(slice({0}, {end}, {2}, {2}), "f32[b, s, 32]");
  EXPECT_EQ(slice({-1}, {INT64_MIN}, {1}, {-1}), "f32[b, s, 64]");
  EXPECT_EQ(slice({100}, {200}, {2}), "f32[b, s, 0]");
  // A window may be longer than the sequence: not known before a run.
  EXPECT_EQ(slice({-4096}, {end}, {1}).substr(0, 13), "f32[b, slice.");
  EXPECT_EQ(slice({0}, {4}, {1}).substr(0, 13), "f32[b, slice.");
  EXPECT_NE(error_of([&] { slice({0}, {4}, {1}, {0}); }), "");
}

TEST(Infer, SymbolicSliceEnds) {
  Net net;
  ValueId x = net.input("b p+s"), past = net.input("b p");
  ValueId p = net.node("Shape", {past}, attrs({{"start", int64_t{1}}}));
  ValueId total = net.node("Shape", {x}, attrs({{"start", int64_t{1}}}));
  EXPECT_EQ(net.type(net.node("Slice", {x, p, total, net.ints({1})})), "f32[b, s]");
  ValueId mask = net.weight({1, 2048});
  EXPECT_EQ(net.type(net.node("Slice", {mask, net.ints({0}), total, net.ints({1})})).substr(0, 13), "f32[1, slice.");
}

TEST(Infer, Splits) {
  Net net;
  ValueId x = net.input("b 3*h 10");
  auto third = net.nodes("Split", {x}, 3, attrs({{"axis", int64_t{1}}, {"num_outputs", int64_t{3}}}));
  EXPECT_EQ(net.type(third[2]), "f32[b, h, 10]");
  auto uneven = net.nodes("Split", {x}, 3, attrs({{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}}));
  EXPECT_EQ(net.type(uneven[0]), "f32[b, 3*h, 4]");
  EXPECT_EQ(net.type(uneven[2]), "f32[b, 3*h, 2]");
  auto sized = net.nodes("Split", {x, net.ints({7, 3})}, 2, attrs({{"axis", int64_t{2}}}));
  EXPECT_EQ(net.type(sized[1]), "f32[b, 3*h, 3]");
  EXPECT_NE(error_of([&] { net.nodes("Split", {x, net.ints({7, 4})}, 2, attrs({{"axis", int64_t{2}}})); }), "");
}

TEST(Infer, Indices) {
  Net net;
  ValueId table = net.weight({1000, 64}), ids = net.input("b s", DType::i64), x = net.input("b s 64");
  EXPECT_EQ(net.type(net.node("Gather", {table, ids})), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("Gather", {x, net.scalar(-1)}, attrs({{"axis", int64_t{1}}}))), "f32[b, 64]");
  EXPECT_EQ(net.type(net.node("GatherElements", {x, net.input("b t 64", DType::i64)}, attrs({{"axis", int64_t{1}}}))),
            "f32[b, t, 64]");
  EXPECT_EQ(net.type(net.node("GatherND", {x, net.input("n 2", DType::i64)})), "f32[n, 64]");
  EXPECT_EQ(net.type(net.node("GatherND", {x, net.input("b n 1", DType::i64)}, attrs({{"batch_dims", int64_t{1}}}))),
            "f32[b, n, 64]");
  EXPECT_EQ(net.type(net.node("ScatterND", {x, net.input("n 1", DType::i64), net.input("n s 64")})), "f32[b, s, 64]");
  auto top = net.nodes("TopK", {x, net.ints({8})}, 2);
  EXPECT_EQ(net.type(top[0]), "f32[b, s, 8]");
  EXPECT_EQ(net.type(top[1]), "i64[b, s, 8]");
  EXPECT_NE(error_of([&] { net.nodes("TopK", {x, net.ints({65})}, 2); }), "");
}

TEST(Infer, Reductions) {
  Net net;
  ValueId x = net.input("b s 64");
  EXPECT_EQ(net.type(net.node("ReduceMean", {x, net.ints({-1})})), "f32[b, s, 1]");
  EXPECT_EQ(net.type(net.node("ReduceSum", {x, net.ints({1})}, attrs({{"keepdims", int64_t{0}}}))), "f32[b, 64]");
  EXPECT_EQ(net.type(net.node("ReduceMax", {x}, attrs({{"keepdims", int64_t{0}}}))), "f32[]");
  EXPECT_EQ(net.type(net.node("ReduceSum", {x}, attrs({{"noop_with_empty_axes", int64_t{1}}}))), "f32[b, s, 64]");
  EXPECT_EQ(net.type(net.node("ArgMax", {x}, attrs({{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}))), "i64[b, s]");
}

TEST(Infer, Contractions) {
  Net net;
  ValueId x = net.input("b s 64"), w = net.weight({64, 10}), heads = net.input("b 4 s 16");
  EXPECT_EQ(net.type(net.node("MatMul", {x, w})), "f32[b, s, 10]");
  EXPECT_EQ(net.type(net.node("MatMul", {heads, net.input("b 4 16 t")})), "f32[b, 4, s, t]");
  EXPECT_EQ(net.type(net.node("MatMul", {heads, net.input("1 1 16 t")})), "f32[b, 4, s, t]");
  EXPECT_EQ(net.type(net.node("MatMul", {net.input("64"), w})), "f32[10]");
  EXPECT_EQ(net.type(net.node("MatMul", {x, net.input("64")})), "f32[b, s]");
  EXPECT_EQ(net.type(net.node("MatMul", {net.input("64"), net.input("64")})), "f32[]");
  EXPECT_EQ(net.type(net.node("Gemm", {net.input("n 64"), net.weight({10, 64}), net.weight({10})},
                              attrs({{"transB", int64_t{1}}}))),
            "f32[n, 10]");
  EXPECT_EQ(net.type(net.node("Gemm", {net.input("n 64"), w, net.weight({1, 10})})), "f32[n, 10]");
  // What is added may have one row or column when it runs.
  EXPECT_EQ(net.type(net.node("Gemm", {net.input("m 64"), net.input("64 p"), net.input("m n")})), "f32[m, p]");
  EXPECT_EQ(net.type(net.node("Gemm", {net.input("m 64"), net.input("64 p"), net.input("c")})), "f32[m, p]");
  EXPECT_EQ(net.type(net.node("Einsum", {heads, net.input("b 4 t 16")},
                              attrs({{"equation", std::string("bhqd, bhkd -> bhqk")}}))),
            "f32[b, 4, s, t]");
  EXPECT_EQ(net.type(net.node("Einsum", {x, w}, attrs({{"equation", std::string("...i,ij")}}))), "f32[b, s, 10]");
  EXPECT_EQ(net.type(net.node("MatMulInteger", {net.input("b s 64", DType::u8), net.weight({64, 10}, DType::i8),
                                                net.weight({}, DType::u8), net.weight({10}, DType::i8)})),
            "i32[b, s, 10]");
  std::string error = error_of([&] { net.node("MatMul", {x, net.weight({63, 10})}); });
  EXPECT_NE(error.find("MatMul: input 1 (b): factor k is 63, but 64 by input 0 (a)"), std::string::npos) << error;
}

TEST(Infer, Normalisations) {
  Net net;
  ValueId x = net.input("b s 64"), scale = net.weight({64});
  EXPECT_EQ(net.type(net.node("Softmax", {x})), "f32[b, s, 64]");
  auto norm = net.nodes("LayerNormalization", {x, scale, scale}, 3);
  EXPECT_EQ(net.type(norm[0]), "f32[b, s, 64]");
  EXPECT_EQ(net.type(norm[2]), "f32[b, s, 1]");
  EXPECT_EQ(net.type(net.node("RMSNormalization", {x, scale})), "f32[b, s, 64]");
  EXPECT_NE(error_of([&] { net.node("RMSNormalization", {x, net.weight({32})}); }), "");
  for (const char* op : {"RMSNormalization", "SimplifiedLayerNormalization"})
    EXPECT_EQ(net.type(net.node(op, {x, net.weight({64}, DType::f16)})), "f16[b, s, 64]") << op;
  EXPECT_EQ(net.type(net.node("BatchNormalization", {net.input("b 8 y x"), net.weight({8}), net.weight({8}),
                                                     net.weight({8}), net.weight({8})})),
            "f32[b, 8, y, x]");
  auto skip = net.nodes("com.microsoft.SkipSimplifiedLayerNormalization", {x, x, scale}, 4);
  EXPECT_EQ(net.type(skip[3]), "f32[b, s, 64]");
}

TEST(Infer, Attention) {
  Net net;
  ValueId q = net.input("b 12 s 64"), k = net.input("b 4 s 64"), past = net.input("b 4 p 64");
  ValueId mask = net.input("b 1 s p+s");
  auto out = net.nodes("Attention", {q, k, k, mask, past, past}, 4);
  EXPECT_EQ(net.type(out[0]), "f32[b, 12, s, 64]");
  EXPECT_EQ(net.type(out[1]), "f32[b, 4, p + s, 64]");
  EXPECT_EQ(net.type(out[3]), "f32[b, 12, s, p + s]");
  ValueId packed = net.input("b s 768"), kv = net.input("b s 256");
  Attributes heads = attrs({{"q_num_heads", int64_t{12}}, {"kv_num_heads", int64_t{4}}, {"is_causal", int64_t{1}}});
  auto flat = net.nodes("Attention", {packed, kv, kv}, 3, heads);
  EXPECT_EQ(net.type(flat[0]), "f32[b, s, 768]");
  EXPECT_EQ(net.type(flat[2]), "f32[b, 4, s, 64]");
  EXPECT_NE(error_of([&] { net.node("Attention", {packed, kv, kv}); }).find("number of heads"), std::string::npos);
  EXPECT_EQ(net.type(net.node("RotaryEmbedding", {q, net.weight({99, 32}), net.weight({99, 32}),
                                                  net.input("b s", DType::i64)})),
            "f32[b, 12, s, 64]");
}

TEST(Infer, PlaitOps) {
  Net net;
  ValueId x = net.input("1 t 64"), w = net.weight({32, 64}, DType::bf16);
  EXPECT_EQ(net.type(net.node("plait.Linear", {x, w})), "f32[1, t, 32]");
  EXPECT_EQ(net.type(net.node("plait.Linear", {x, w, net.weight({32})})), "f32[1, t, 32]");
  auto many = net.nodes("plait.Linears", {x, w, net.weight({8, 64})}, 2);
  EXPECT_EQ(net.type(many[1]), "f32[1, t, 8]");
  EXPECT_NE(error_of([&] { net.nodes("plait.Linears", {x, w}, 2); }), "");
  EXPECT_EQ(net.type(net.node("plait.GatedLinear", {x, w, w})), "f32[1, t, 32]");
  ValueId ids = net.input("1 t", DType::i32);
  EXPECT_EQ(net.type(net.node("plait.Embedding", {net.weight({100, 64}, DType::bf16), ids})), "f32[1, t, 64]");
  EXPECT_EQ(net.type(net.node("plait.GatherRows", {x, net.input("1 n", DType::i32)})), "f32[1, n, 64]");
  ValueId q = net.input("1 t 12 64"), k = net.input("1 t 4 64"), angles = net.input("1 t 32");
  EXPECT_EQ(net.type(net.node("plait.RoPE", {q, angles, angles})), "f32[1, t, 12, 64]");
  ValueId k_pages = net.input("p 4 64 16", DType::bf16), v_pages = net.input("p 4 16 64", DType::bf16);
  auto pages = net.nodes("plait.KvWrite", {k_pages, v_pages, k, k, ids}, 2);
  EXPECT_EQ(net.type(pages[0]), "bf16[p, 4, 64, 16]");
  EXPECT_EQ(net.type(pages[1]), "bf16[p, 4, 16, 64]");
  EXPECT_EQ(net.type(net.node("plait.PagedAttention",
                              {q, pages[0], pages[1], ids, ids, net.input("n m", DType::i32), no_value,
                               net.weight({12})},
                              attrs({{"scale", 0.125}}))),
            "f32[1, t, 12, 64]");
  ValueId logits = net.input("1 r 100"), settings = net.input("1 r 6", DType::i64), edits = net.input("1 e 5", DType::i32);
  EXPECT_EQ(net.type(net.node("plait.Sample", {logits, settings, edits})), "i32[1, r]");
  EXPECT_EQ(net.type(net.node("plait.Sizes", {}, attrs({{"sizes", std::vector<std::string>{"t", "2*t"}}}))),
            "i64[2]");
  ValueId slots = net.input("n 2", DType::i32);
  auto conv = net.nodes("plait.CausalConv", {net.input("u 3 64"), x, net.weight({4, 64}), ids, slots}, 2);
  EXPECT_EQ(net.type(conv[0]), "f32[u, 3, 64]");
  EXPECT_EQ(net.type(conv[1]), "f32[1, t, 64]");
  Attributes heads = attrs({{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}});
  ValueId states = net.input("u 2 16 8"), few = net.input("1 t 32"), v = net.input("1 t 16"), g = net.input("1 t 2");
  auto linear = net.nodes("plait.LinearAttention", {states, x, few, v, ids, slots, g, g}, 2, heads);
  EXPECT_EQ(net.type(linear[0]), "f32[u, 2, 16, 8]");
  EXPECT_EQ(net.type(linear[1]), "f32[1, t, 32]");
}

TEST(Infer, MicrosoftOps) {
  Net net;
  ValueId x = net.input("b s 768"), kv = net.input("b s 256"), past = net.input("b 4 p 64");
  Attributes heads = attrs({{"num_heads", int64_t{12}}, {"kv_num_heads", int64_t{4}}});
  ValueId seen = net.input("b", DType::i32), total = net.input("", DType::i32);
  auto grouped = net.nodes("com.microsoft.GroupQueryAttention", {x, kv, kv, past, past, seen, total}, 3, heads);
  EXPECT_EQ(net.type(grouped[0]), "f32[b, s, 768]");
  EXPECT_EQ(net.type(grouped[1]).substr(0, 10), "f32[b, 4, ");
  heads.set("sliding_window_cache", int64_t{1});
  ValueId qkv = net.input("b s 1280");
  auto packed = net.nodes("com.microsoft.GroupQueryAttention", {qkv, no_value, no_value, past, past, seen, total}, 3,
                          heads);
  EXPECT_EQ(net.type(packed[0]), "f32[b, s, 768]");
  EXPECT_EQ(net.type(packed[2]), "f32[b, 4, p, 64]");
  Attributes bits = attrs({{"K", int64_t{768}}, {"N", int64_t{10}}, {"block_size", int64_t{32}}});
  EXPECT_EQ(net.type(net.node("com.microsoft.MatMulNBits",
                              {x, net.weight({10, 24, 16}, DType::u8), net.weight({240}),
                               net.weight({120}, DType::u8)}, bits)),
            "f32[b, s, 10]");
  EXPECT_EQ(
      net.type(net.node("com.microsoft.FusedMatMul", {x, net.weight({10, 768})}, attrs({{"transB", int64_t{1}}}))),
      "f32[b, s, 10]");
  EXPECT_EQ(net.type(net.node("com.microsoft.GatherBlockQuantized",
                              {net.weight({100, 32}, DType::u8), net.input("b s", DType::i64), net.weight({100, 2})},
                              attrs({{"block_size", int64_t{32}}}))),
            "f32[b, s, 64]");
}

TEST(Infer, QuantisationAndConvolution) {
  Net net;
  ValueId w = net.weight({64, 96}, DType::i8);
  EXPECT_EQ(net.type(net.node("DequantizeLinear", {w, net.weight({})})), "f32[64, 96]");
  EXPECT_EQ(net.type(net.node("DequantizeLinear", {w, net.weight({96})})), "f32[64, 96]");
  EXPECT_EQ(net.type(net.node("DequantizeLinear", {w, net.weight({64, 3})}, attrs({{"block_size", int64_t{32}}}))),
            "f32[64, 96]");
  EXPECT_NE(error_of([&] { net.node("DequantizeLinear", {w, net.weight({95})}); }), "");
  auto dynamic = net.nodes("DynamicQuantizeLinear", {net.input("b s")}, 3);
  EXPECT_EQ(net.type(dynamic[0]), "u8[b, s]");
  EXPECT_EQ(net.type(dynamic[1]), "f32[]");
  EXPECT_EQ(net.type(net.node("QuantizeLinear", {net.input("b s"), net.weight({}), net.weight({}, DType::i8)})),
            "i8[b, s]");
  EXPECT_EQ(net.type(net.node("Conv", {net.input("b 6 s"), net.weight({6, 1, 4})},
                              attrs({{"group", int64_t{6}}, {"pads", Ints{3, 3}}}))),
            "f32[b, 6, s + 3]");
  EXPECT_EQ(net.type(net.node("Conv", {net.input("b 3 224 224"), net.weight({64, 3, 7, 7}), net.weight({64})},
                              attrs({{"strides", Ints{2, 2}}, {"pads", Ints{3, 3, 3, 3}}}))),
            "f32[b, 64, 112, 112]");
  EXPECT_NE(error_of([&] {
              net.node("Conv", {net.input("b 6 s"), net.weight({6, 6, 4})}, attrs({{"group", int64_t{0}}}));
            }).find("\"group\" is 0"),
            std::string::npos);
  for (const char* op : {"Conv", "ConvTranspose"})
    EXPECT_NE(error_of([&] {
                net.node(op, {net.input("b 6 s 4"), net.weight({6, 6, 3, 0})});
              }).find("size 0 in dimension 3"),
              std::string::npos);
}

TEST(Infer, UnknownRanksStayOpen) {
  Net net;
  ValueId x = net.graph.add_value({}, {DType::f32, {}});
  EXPECT_EQ(net.type(net.node("Add", {x, net.input("b s")})), "f32[...]");
  ValueId target = net.input("3", DType::i64);
  std::string reshaped = net.type(net.node("Reshape", {x, target}));
  EXPECT_EQ(reshaped.substr(0, 12), "f32[reshape.");
}

TEST(Infer, TheFilesWordStandsForUnknownSizes) {
  Net net;
  ValueId x = net.input("b s", DType::boolean);
  Node& node = net.graph.add_node("NonZero", {x}, 1);
  net.graph.value(node.outputs[0]).type.dims = Dims{net.graph.symbol("r"), net.graph.symbol("tokens")};
  infer_node(test::all_ops(), net.graph, node, net.known);
  EXPECT_EQ(net.type(node.outputs[0]), "i64[2, tokens]");
  int32_t symbols = net.graph.symbols.size();
  infer_graph(test::all_ops(), net.graph, net.known);
  EXPECT_EQ(net.graph.symbols.size(), symbols);  // a second time makes nothing new
  EXPECT_EQ(net.type(node.outputs[0]), "i64[2, tokens]");
}

TEST(Infer, ExpandToLessThanNothing) {
  OpSet ops;
  register_ops(ops);
  Graph graph = parse_graph(R"(const %0 = inline : i64[1] = 3
const %1 = inline : i64[1] = -5
node "expand" : %2 : ?[...] = Expand(%0, %1)
output %2
)");
  Knowledge knowledge;
  EXPECT_THROW(infer_graph(ops, graph, knowledge), Error);
}

}  // namespace
}  // namespace plait
