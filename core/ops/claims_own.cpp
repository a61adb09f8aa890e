// Element types of the ops of com.microsoft and Plait's own, and which operands share one (grammar:
// core/graph/type_rule.h). Those of com.microsoft follow ONNX Runtime's schemas. Plait's own read activations,
// weights and states in their own types, and convert each element.
#include "core/ops/families.h"

namespace plait {

namespace {

struct OwnClaim {
  const char* op;
  const char* types;
};

constexpr OwnClaim microsoft[] = {
    {"SimplifiedLayerNormalization", "floats, floats"},
    {"com.microsoft.SimplifiedLayerNormalization", "floats, floats"},
    {"com.microsoft.BiasGelu", "T:floats"},
    {"com.microsoft.FastGelu", "T:floats"},
    {"com.microsoft.FusedMatMul", "T:floats"},
    {"com.microsoft.GatherBlockQuantized", "Q:u8 i4 u4, index, floats, Q"},
    {"com.microsoft.Gelu", "floats"},
    {"com.microsoft.GroupQueryAttention",
     "T:floats, T, T, K:floats, K, index, index, T, T, index, T, T, floats, floats"},
    {"com.microsoft.MatMulNBits", "T:floats, u8, T, floats u8 i32, i32, T"},
    {"com.microsoft.MultiHeadAttention", "T:floats, T, T, T, i32, T, T, T, i32"},
    {"com.microsoft.QuickGelu", "floats"},
    {"com.microsoft.RotaryEmbedding", "T:floats, index, T"},
    {"com.microsoft.SkipLayerNormalization", "T:floats"},
    {"com.microsoft.SkipSimplifiedLayerNormalization", "T:floats"},
};

constexpr OwnClaim inference[] = {
    {"plait.AdaptedLinear", "floats, any, floats, floats, any, floats, floats, index"},
    {"plait.AddAdapters", "floats, floats, floats, floats, index"},
    {"plait.CausalConv", "floats, floats, floats, index, index, floats"},
    {"plait.ChannelsLastConv", "T:floats, T, any"},
    {"plait.ChannelsLastPool", "floats"},
    {"plait.Elementwise", "any -> any"},
    {"plait.Embedding", "any, index, floats, any"},
    {"plait.Experts", "floats, index, floats, any"},
    {"plait.GatedLinear", "floats, any"},
    {"plait.GatherRows", "any, index"},
    {"plait.KvWrite", "floats, floats, floats, floats, index"},
    {"plait.Linear", "floats, any, floats, floats, any"},
    {"plait.LinearAttention", "floats, floats, floats, floats, index, index, floats"},
    {"plait.Linears", "floats, any"},
    {"plait.PagedAttention", "floats, floats, floats, index, index, index, floats"},
    {"plait.RoPE", "floats"},
    {"plait.Sample", "f32, i64, i32"},
    {"plait.Sizes", "-> i64"},
    {"plait.State", "any"},
    {"plait.StringNormalizer", "string, i64"},
    {"plait.StringPieces", "string"},
    {"plait.StringSplit", "string, i64"},
    {"plait.StringsKept", "string"},
};

constexpr OwnClaim training[] = {
    {"plait.Accumulate", "floats"},
    {"plait.AdamW", "floats"},
    {"plait.AddLinear", "floats, floats, any"},
    {"plait.Assign", "floats"},
    {"plait.Dropout", "floats, index"},
    {"plait.AveragePoolBack", "floats"},
    {"plait.ConvWeight", "floats, floats, index"},
    {"plait.CumProdBack", "T:floats"},
    {"plait.DeformConvBack", "floats"},
    {"plait.DetBack", "floats"},
    {"plait.EmbeddingBack", "floats, index"},
    {"plait.MaxPoolBack", "floats"},
    {"plait.ExpertsBack", "floats, floats, index, floats, any"},
    {"plait.FactoredSquares", "floats"},
    {"plait.FactoredStep", "floats"},
    {"plait.GatherBack", "floats, index"},
    {"plait.GridSampleBack", "floats"},
    {"plait.HeadBack", "floats, any, index, floats, floats, floats, floats, any"},
    {"plait.HeadLoss", "floats, any, index, floats, floats, floats, any"},
    {"plait.HeadStatistics", "floats, any, index, floats, floats, any"},
    {"plait.LayerNormBack", "floats"},
    {"plait.LinearBack", "floats, any"},
    {"plait.LinearWeight", "floats"},
    {"plait.LpPoolBack", "floats"},
    {"plait.MaxRoiPoolBack", "floats"},
    {"plait.PackedAttention", "floats, floats, floats, index, floats"},
    {"plait.PackedAttentionBack", "floats, floats, floats, floats, floats, floats, index, floats"},
    {"plait.PackedConv", "floats, floats, index, floats"},
    {"plait.PackedConvBack", "floats, floats, floats, index, floats"},
    {"plait.PackedLinearAttention", "floats, floats, floats, index, floats"},
    {"plait.PackedLinearAttentionBack", "floats, floats, floats, floats, index, floats"},
    {"plait.RMSNormBack", "floats"},
    {"plait.RecurrentBack", "floats, floats, floats, floats, i32, floats"},
    {"plait.ResizeBack", "floats, i64, floats, f32, i64"},
    {"plait.RoiAlignBack", "floats, floats, floats, i64"},
    {"plait.RowsBack", "floats, index"},
    {"plait.SGD", "floats"},
    {"plait.SliceBack", "floats, index"},
    {"plait.SoftmaxBack", "T:floats"},
    {"plait.UnaryBack", "T:floats"},
};

constexpr OwnClaim collectives[] = {
    {"plait.AllGather", "any"}, {"plait.AllReduce", "any"}, {"plait.AllToAll", "any"},
    {"plait.Cross", "T:any"},   {"plait.ReduceScatter", "any"}, {"plait.Shard", "any"},
};

}  // namespace

void register_own_claims(OpSet& ops) {
  for (std::span<const OwnClaim> rows : {std::span<const OwnClaim>(microsoft), std::span<const OwnClaim>(inference),
                                    std::span<const OwnClaim>(training), std::span<const OwnClaim>(collectives)})
    for (const OwnClaim& row : rows) ops.claim(row.op, 0, row.types);
}

}  // namespace plait
