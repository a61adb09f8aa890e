// The ops that ONNX Runtime registers in com.microsoft, for docs/ops.md. tests/bindings/differential/optimized_test.py compares the list
// with an installed ONNX Runtime.
#include <algorithm>

#include "core/base/text.h"
#include "tests/unit/nodes/table.h"

namespace plait::test {
namespace {

constexpr std::string_view microsoft_head = R"(
## com.microsoft

The ops that ONNX Runtime 1.32.0 registers in com.microsoft, and whether its CPU provider has them ("cpu"). Those that Plait reads as
others take each operand's own type where the others do, and round once where ONNX Runtime rounds in steps: results of 8-bit
integers may be one step apart. ONNX Runtime's optimizer writes files of these and ONNX's ops at the level extended; at the level
all its files have layouts of the machine (com.microsoft.nchwc), which are refused.

| op | cpu | what it does, or why it is not there |
|---|---|---|
)";

struct RegisteredOp {
  std::string_view name;
  bool on_cpu;
  std::string_view missing;  ///< why Plait does not have it; "" if it does
};

constexpr RegisteredOp registered_ops[] = {
    {"Attention", true, ""},
    {"AttnLSTM", true, "no exporter writes it"},
    {"BeamSearch", true, "a generator does this: export the decoder by itself"},
    {"BiasAdd", false, ""},
    {"BiasDropout", false, "of training with its former add-on"},
    {"BiasGelu", true, ""},
    {"BiasSoftmax", false, "for GPUs only"},
    {"BiasSplitGelu", false, ""},
    {"BifurcationDetector", true, "only within a loop of generation"},
    {"BitmaskBiasDropout", false, "of training with its former add-on"},
    {"BitmaskDropout", false, "of training with its former add-on"},
    {"BranchwiseRMSNorm", true, "of experimental decoders"},
    {"CDist", true, ""},
    {"CausalConvWithState", true, ""},
    {"ComplexMul", false, "for GPUs only"},
    {"ComplexMulConj", false, "for GPUs only"},
    {"ConvStateReplay", false, "of speculative decoding on GPUs"},
    {"ConvTransposeWithDynamicPads", true, ""},
    {"CropAndResize", true, ""},
    {"DecoderAttention", false, "only within a loop of generation"},
    {"DecoderMaskedMultiHeadAttention", true, "only within a loop of generation"},
    {"DecoderMaskedSelfAttention", false, "only within a loop of generation"},
    {"DequantizeBFP", false, "of one vendor's backend"},
    {"DequantizeLinear", true, ""},
    {"DequantizeWithOrder", false, "for GPUs only"},
    {"DynamicQuantizeLSTM", true, ""},
    {"DynamicQuantizeMatMul", true, ""},
    {"DynamicSparseAttention", false, "for GPUs only"},
    {"DynamicTimeWarping", true, "part of a pipeline for word times, not of a model"},
    {"EPContext", false, "of one vendor's backend"},
    {"EmbedLayerNormalization", true, ""},
    {"EngramGate", true, "of experimental decoders"},
    {"ExpandDims", true, ""},
    {"FastGelu", true, ""},
    {"FusedConv", true, ""},
    {"FusedGemm", true, ""},
    {"FusedMatMul", true, ""},
    {"FusedMatMulActivation", false, "for GPUs only"},
    {"GatedAdd", true, ""},
    {"GatedDeltaNet", true, "read is LinearAttention"},
    {"GatedDeltaNetStateReplay", false, "of speculative decoding on GPUs"},
    {"GatedRMSNorm", true, ""},
    {"GatedRelativePositionBias", false, "for GPUs only"},
    {"GatherBlockQuantized", true, ""},
    {"GatherND", true, ""},
    {"GatherPacked", true, "weights in packed formats of ONNX Runtime's own"},
    {"Gelu", true, ""},
    {"GemmFastGelu", false, ""},
    {"GemmFloat8", false, "for GPUs only"},
    {"GemmaRotaryEmbedding", false, "for GPUs only"},
    {"GreedySearch", true, "a generator does this: export the decoder by itself"},
    {"GridSample", true, ""},
    {"GroupNorm", false, ""},
    {"GroupQueryAttention", true, ""},
    {"HyperConnectionLowRankMix", false, "of experimental decoders"},
    {"HyperConnectionPostMix", true, "of experimental decoders"},
    {"HyperConnectionPreMix", true, "of experimental decoders"},
    {"Inverse", true, "no exporter writes it by now"},
    {"Irfft", false, "for GPUs only"},
    {"IsAllFinite", false, "of training with its former add-on"},
    {"LinearAttention", true, ""},
    {"LinearAttentionGate", true, ""},
    {"LongformerAttention", false, "for GPUs only"},
    {"MRotaryEmbedding", true, ""},
    {"Mamba2Verify", false, "of speculative decoding on GPUs"},
    {"MatMulBlockQuantizedFp4Weight", false, "for GPUs only"},
    {"MatMulBlockQuantizedFp8Weight", false, "for GPUs only"},
    {"MatMulBnb4", true, ""},
    {"MatMulFpQ4", true, "replaced by MatMulNBits and MatMulBnb4"},
    {"MatMulInteger16", true, ""},
    {"MatMulIntegerToFloat", true, ""},
    {"MatMulNBits", true, ""},
    {"MatMulNBitsMlp", false, "for GPUs only"},
    {"MatMulNBitsQLoRA", false, "for GPUs only"},
    {"MatMulNBitsQkv", false, "for GPUs only"},
    {"MatMulPacked", false, "weights in packed formats of ONNX Runtime's own"},
    {"MaxpoolWithMask", true, "no exporter writes it"},
    {"MoE", true, ""},
    {"MoEGroupRouter", true, "new in 1.32: no exporter writes it yet"},
    {"MoEPacked", false, "weights in packed formats of ONNX Runtime's own"},
    {"MulInteger", false, ""},
    {"MultiHeadAttention", true, ""},
    {"MurmurHash3", true, "of feature pipelines, not of models"},
    {"NGramHashMapping", true, "of experimental decoders"},
    {"NGramRepeatBlock", true, ""},
    {"NhwcConv", false, ""},
    {"NhwcFusedConv", false, ""},
    {"NhwcMaxPool", true, ""},
    {"PackedAttention", false, "for GPUs only"},
    {"PackedMultiHeadAttention", false, "for GPUs only"},
    {"PackedSparseAttentionIndexer", false, "for GPUs only"},
    {"PackedSparseAttentionIndexerMerge", false, "for GPUs only"},
    {"Pad", true, ""},
    {"PagedAttention", false, "for GPUs only"},
    {"QAttention", true, ""},
    {"QEmbedLayerNormalization", true, ""},
    {"QGemm", true, ""},
    {"QLinearAdd", true, ""},
    {"QLinearAveragePool", true, ""},
    {"QLinearConcat", true, ""},
    {"QLinearConv", true, ""},
    {"QLinearGlobalAveragePool", true, ""},
    {"QLinearLeakyRelu", true, ""},
    {"QLinearMul", true, ""},
    {"QLinearReduceMean", false, ""},
    {"QLinearSigmoid", true, ""},
    {"QLinearSoftmax", true, ""},
    {"QLinearWhere", true, ""},
    {"QMoE", true, ""},
    {"QOrderedAttention", false, "for GPUs only"},
    {"QOrderedGelu", false, "for GPUs only"},
    {"QOrderedLayerNormalization", false, "for GPUs only"},
    {"QOrderedLongformerAttention", false, "for GPUs only"},
    {"QOrderedMatMul", false, "for GPUs only"},
    {"QuantizeBFP", false, "of one vendor's backend"},
    {"QuantizeLinear", true, ""},
    {"QuantizeWithOrder", false, "for GPUs only"},
    {"QuickGelu", true, ""},
    {"RMSNormRotary", false, "for GPUs only"},
    {"Range", true, ""},
    {"ReduceSumInteger", false, ""},
    {"RelativePositionBias", false, "for GPUs only"},
    {"RemovePadding", false, "for GPUs only"},
    {"RestorePadding", false, "for GPUs only"},
    {"Rfft", false, "for GPUs only"},
    {"RotaryEmbedding", true, ""},
    {"RouterGateUpProj", false, ""},
    {"SampleOp", true, "an example"},
    {"Sampling", true, "a generator does this: export the decoder by itself"},
    {"ScaledSiLU", true, ""},
    {"SkipGroupNorm", false, ""},
    {"SkipLayerNormalization", true, ""},
    {"SkipSimplifiedLayerNormalization", true, ""},
    {"Snpe", false, "of one vendor's backend"},
    {"SparseAttention", true, "of one model (Phi-3 small)"},
    {"SparseAttentionIndexer", false, "for GPUs only"},
    {"SparsePagedAttention", false, "for GPUs only"},
    {"SparseToDenseMatMul", true, "sparse tensors are not supported"},
    {"SpeculativePrefixCommit", false, "of speculative decoding on GPUs"},
    {"SwiGLU", false, ""},
    {"Tokenizer", true, "of text pipelines: tokenizers are files next to the model"},
    {"TorchEmbedding", false, "Gather by another name, which no exporter writes"},
    {"TransposeMatMul", true, ""},
    {"Trilu", true, ""},
    {"UnfoldTensor", true, ""},
    {"Unique", true, ""},
    {"VarlenCausalConvWithState", true, "read is CausalConvWithState"},
    {"VarlenNGramHashMapping", true, "of experimental decoders"},
    {"WhisperBeamSearch", true, "a generator does this: export the decoder by itself"},
    {"WordConvEmbedding", true, "no exporter writes it"},
};

const OpSchema* row_of(const OpSet& ops, std::string_view name) {
  const auto found = ops.all().find(cat("com.microsoft.", name));
  return found == ops.all().end() ? nullptr : &found->second;
}

}  // namespace

std::string microsoft_table(const OpSet& ops) {
  std::string out(microsoft_head);
  for (const RegisteredOp& one : registered_ops) {
    const OpSchema* row = row_of(ops, one.name);
    const std::string doc = !row                      ? cat("not there: ", one.missing)
                            : row->written_as.empty() ? row->doc
                                                      : cat(row->doc, "; read as ", row->written_as);
    out += cat("| ", one.name, " | ", one.on_cpu ? "yes" : "", " | ", doc, " |\n");
  }
  return out;
}

std::vector<std::string> faults_of_microsoft_table(const OpSet& ops) {
  std::vector<std::string> out;
  for (const RegisteredOp& one : registered_ops)
    if ((row_of(ops, one.name) == nullptr) == one.missing.empty())
      out.push_back(cat(one.name, one.missing.empty() ? " is missing without a reason"
                                                      : " is there, and has a reason for being missing"));
  return out;
}

}  // namespace plait::test
