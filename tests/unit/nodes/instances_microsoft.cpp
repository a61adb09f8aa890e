// One node of each op of com.microsoft that a graph may hold, in each layout of its operands.
#include "tests/unit/nodes/instances.h"

namespace plait::test {
namespace {
namespace microsoft {

/// Rows of 24 features: 3 heads of 8, or 6 of 4. Caches of 8 positions for heads of 8, of which half turn: 4 columns.
const Operand x{"f32[2, 4, 24]"}, row{"f32[24]"}, cache{"f32[8, 4]"};
const Operand places{"i64[2, 4]", "0 1 2 3 4 5 6 7"}, offset{"i64[1]", "2"};
const Operand codes{"u8[6, 3, 8]"}, scales{"f32[6, 3]"}, absent{""};

/// Queries of 4 heads and keys of 2, of 8 elements each, with 3 positions in the cache.
const Operand query{"f32[2, 4, 32]"}, key{"f32[2, 4, 16]"}, past{"f32[2, 2, 3, 8]"};
const Operand lengths{"i32[2]", "6 6"}, total{"i32[]", "7"};

const std::vector<Instance> instances{
    {"SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization", {x, row}, 1, {}, {}},
    {"SkipSimplifiedLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization", {x, x, row}, 1, {}, {}},
    {"SkipSimplifiedLayerNormalizationOfOneSkip",
     "com.microsoft.SkipSimplifiedLayerNormalization",
     {x, {"f32[4, 24]"}, row, row},
     4,
     {},
     {}},
    {"SkipLayerNormalization", "com.microsoft.SkipLayerNormalization", {x, x, row, row, row}, 4, {}, {}},
    {"SkipLayerNormalizationWithoutBeta", "com.microsoft.SkipLayerNormalization", {x, x, row, absent, row}, 1, {}, {}},
    {"Gelu", "com.microsoft.Gelu", {x}},
    {"QuickGelu", "com.microsoft.QuickGelu", {x}, 1, {{"alpha", 1.5}}},
    {"FastGelu", "com.microsoft.FastGelu", {x}, 1, {}, {}},
    {"FastGeluWithBias", "com.microsoft.FastGelu", {x, row}, 1, {}, {"h"}},
    {"BiasGelu", "com.microsoft.BiasGelu", {x, row}, 1, {}, {"h"}},
    {"FusedMatMul", "com.microsoft.FusedMatMul", {{"f32[2, 6, 8]"}, {"f32[2, 8, 12]"}}, 1, {{"alpha", 0.5}}, {"k", "n"}},
    {"FusedMatMulTransposed",
     "com.microsoft.FusedMatMul",
     {{"f32[2, 8, 6]"}, {"f32[12, 8]"}},
     1,
     {{"transA", int64_t{1}}, {"transB", int64_t{1}}},
     {"q", "k", "n"}},
    {"FusedMatMulWithBatchInside",
     "com.microsoft.FusedMatMul",
     {{"f32[6, 2, 8]"}, {"f32[2, 8, 12]"}},
     1,
     {{"transBatchA", int64_t{1}}},
     {"q", "k", "n"}},
    {"MatMulNBits",
     "com.microsoft.MatMulNBits",
     {{"f32[2, 4, 48]"}, codes, scales},
     1,
     {{"K", int64_t{48}}, {"N", int64_t{6}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}},
     {"n"}},
    {"MatMulNBitsWithZerosAndBias",
     "com.microsoft.MatMulNBits",
     {{"f32[2, 4, 48]"}, codes, {"f32[18]"}, {"u8[6, 2]"}, absent, {"f32[6]"}},
     1,
     {{"K", int64_t{48}}, {"N", int64_t{6}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}},
     {"n"}},
    {"GatherBlockQuantized",
     "com.microsoft.GatherBlockQuantized",
     {{"u8[12, 16]"}, {"i64[2, 4]", "below 12"}, {"f32[12, 2]"}},
     1,
     {{"bits", int64_t{4}}, {"block_size", int64_t{16}}},
     {}},
    {"GatherBlockQuantizedOfCodes",
     "com.microsoft.GatherBlockQuantized",
     {{"u4[12, 32]"}, {"i64[2, 4]", "below 12"}, {"f32[12, 2]"}, {"u4[12, 2]"}},
     1,
     {{"block_size", int64_t{16}}},
     {}},
    {"RotaryEmbedding", "com.microsoft.RotaryEmbedding", {x, places, cache, cache}, 1, {}, {"b", "s", "g"}},
    {"RotaryEmbeddingFromAnOffset", "com.microsoft.RotaryEmbedding", {x, offset, cache, cache}, 1, {}, {"b", "g"}},
    {"RotaryEmbeddingOfHeads",
     "com.microsoft.RotaryEmbedding",
     {{"f32[2, 3, 4, 8]"}, places, cache, cache},
     1,
     {{"interleaved", int64_t{1}}},
     {"b", "g", "s"}},
    {"GroupQueryAttention",
     "com.microsoft.GroupQueryAttention",
     {query, key, key, past, past, lengths, total},
     3,
     {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}},
     {"b", "g", "r"}},
    {"GroupQueryAttentionThatTurns",
     "com.microsoft.GroupQueryAttention",
     {query, key, key, past, past, lengths, total, cache, cache},
     3,
     {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}, {"do_rotary", int64_t{1}}},
     {"b", "g", "r"}},
    {"GroupQueryAttentionOfPackedOperands",
     "com.microsoft.GroupQueryAttention",
     {{"f32[2, 4, 64]"}, absent, absent, past, past, lengths, total},
     3,
     {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}},
     {"b"}},
    {"GroupQueryAttentionWithSinks",
     "com.microsoft.GroupQueryAttention",
     {query, key, key, past, past, lengths, total, absent, absent, absent, {"f32[2, 4, 4, 7]"}, {"f32[4]"}},
     3,
     {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}, {"local_window_size", int64_t{3}}},
     {"b", "g", "r"}},
};

}  // namespace microsoft
}  // namespace

const std::vector<Instance>& microsoft_instances() { return microsoft::instances; }

}  // namespace plait::test
