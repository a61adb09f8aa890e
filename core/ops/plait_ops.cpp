// Plait's own ops, into which `raise` and `fuse` rewrite exporters' patterns.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/linear_operands.h"
#include "core/base/text.h"
#include "core/base/token_weight.h"
#include "core/ops/base/rows.h"
#include "core/ops/families.h"

namespace plait {

namespace {

/// Whether the weight is [n, c, l], quantised in blocks, rather than [n, k].
bool is_packed_of_blocks(const Type& weight) { return weight.dims && weight.dims->size() == 3; }
/// Whether the blocks of the weight exactly cover x's last dimension: then k may be sharded between blocks. If the
/// last block is only partly used, k must be whole.
bool fills_blocks(const Type& x, const Type& weight) {
  const Dims& w = *weight.dims;
  return !x.dims->empty() && x.dims->back() == w[1] * w[2];
}

/// The dims of x, and of weight `n` with its scales and zero points.
struct BlockedDims {
  std::string x, w, of_block;
  BlockedDims(const std::vector<Type>& in, size_t weight, std::string_view n, bool cut) {
    const bool fills = fills_blocks(in[0], in[weight]);
    const bool free = fills && cut;
    const std::string_view c = free ? "c" : "[c]", l = free ? "l" : "[l]";
    x = fills ? cat("... (", c, " ", l, ")") : "... [k]";
    w = cat(n, " ", c, " ", l);
    of_block = cat(n, " ", c);
  }
};

/// A bias is added once: with one, k must be whole.
std::string linear_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  const bool bias = !is_absent(in, linear_bias);
  if (!is_packed_of_blocks(in[linear_w])) return bias ? "... [k], n [k], n -> ... n" : "*... k, *n k -> ... n";
  BlockedDims dims(in, linear_w, "n", !bias);
  const std::string_view star = bias ? "" : "*";
  std::vector<std::string> operands{cat(star, dims.x), dims.w, bias ? "n" : "", cat(star, dims.of_block),
                                    is_absent(in, linear_zeros) ? "" : dims.of_block};
  operands.resize(in.size());
  return rule_text(operands, {"... n"});
}

/// Like the Linear's, whose sharding the adapters follow: their results are partial along the same axes.
std::string adapted_linear_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  const bool bias = !is_absent(in, linear_bias);
  std::string k = bias ? "[k]" : "k", x = cat("... ", k), w = cat("n ", k), of_block, inner = k;
  if (is_packed_of_blocks(in[linear_w])) {
    const BlockedDims dims(in, linear_w, "n", !bias);
    x = dims.x, w = dims.w, of_block = dims.of_block;
    inner = x.substr(4);
  }
  return rule_text({bias ? x : cat("*", x), w, bias ? "n" : "", is_absent(in, linear_scales) ? "" : of_block,
                    is_absent(in, linear_zeros) ? "" : of_block, cat("[s] [r] ", inner), "[s] n [r]", "..."},
                   {"... n"});
}

/// Number of operands of one weight of Linears.
size_t parts_of(const Attributes& attributes) {
  return static_cast<size_t>(std::clamp<int64_t>(attributes.integer("parts", 1), 1, 3));
}

void infer_linears(InferContext& context) {
  const auto parts = static_cast<int>(parts_of(context.attributes()));
  if (context.inputs() - 1 != parts * context.outputs())
    InferContext::fail(cat("there are ", context.inputs() - 1, " operands of weights, ", parts, " each, but ",
                           context.outputs(), " outputs"));
  for (int k = 0; k < context.outputs(); ++k) context.set_type(k, context.dtype(0));
}

/// Linear in x, but in no weight, since each makes only one of the results.
std::string linears_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  std::vector<std::string> operands{"*... k"}, results;
  const size_t parts = parts_of(node.attributes);
  for (size_t i = 1; i < in.size(); i += parts) {
    std::string n = cat("n", 1 + (i - 1) / parts);
    results.push_back(cat("... ", n));
    if (!is_packed_of_blocks(in[i])) {
      operands.push_back(cat(n, " k"));
      continue;
    }
    BlockedDims dims(in, i, n, true);
    operands[0] = cat("*", dims.x);
    operands.push_back(dims.w);
    for (size_t part = 1; part < parts; ++part) operands.push_back(dims.of_block);
  }
  return rule_text(operands, results);
}

std::string gated_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  if (!is_packed_of_blocks(in[gated_gate])) return "... [k], f [k], *f [k] -> ... f";
  BlockedDims dims(in, gated_gate, "f", false);
  std::vector<std::string> operands{dims.x, dims.w, dims.w};
  for (size_t k = gated_gate_scales; k < in.size(); ++k)
    operands.push_back(is_absent(in, k) ? "" : cat(k == gated_up_scales ? "*" : "", dims.of_block));
  return rule_text(operands, {"... f"});
}

std::string embedding_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  if (!is_packed_of_blocks(in[0])) return "*@v h, ... -> ... h";
  std::vector<std::string> operands{"@v c l", "...", "*@v c", is_absent(in, 3) ? "" : "@v c"};
  operands.resize(in.size());
  return rule_text(operands, {"... (c l)"});
}

void infer_embedding(InferContext& context) {
  context.set_type(0, dtype_attribute(context.attributes(), "to", DType::f32));
}

void infer_kv_write(InferContext& context) {
  for (int k = 0; k < 2; ++k) {
    context.set_type(k, context.dtype(k));
    if (const Dims* dims = context.dims(k)) context.set_dims(k, *dims);
  }
}

void infer_sizes(InferContext& context) {
  const Attribute* sizes = context.attributes().find("sizes");
  const auto* texts = sizes ? std::get_if<std::vector<std::string>>(sizes) : nullptr;
  bool scalar = context.attributes().integer("scalar", 0) != 0;
  auto count = texts ? static_cast<int64_t>(texts->size()) : 0;
  if (scalar && count != 1) InferContext::fail(cat("a scalar of ", count, " sizes"));
  context.set(0, DType::i64, scalar ? Dims{} : Dims{Dim(count)});
}

/// A token for each row of logits.
void infer_sample(InferContext& context) {
  const int64_t last[] = {-1, choice_words, edit_words};
  for (int i = 0; i < 3; ++i) {
    const Dims* dims = context.dims(i);
    if (!dims) continue;
    if (dims->size() != 3) InferContext::fail(cat("operand ", i, " has rank ", dims->size(), ", expected 3"));
    const auto differ = [](const Dim& a, const Dim& b) { return a.is_constant() && b.is_constant() && a != b; };
    if (i > 0 && differ((*dims)[2], last[i]))
      InferContext::fail(cat("rows of operand ", i, " do not have ", last[i], " words"));
    const Dims* logits = context.dims(0);
    if (logits && (differ((*logits)[0], (*dims)[0]) || (i == 1 && differ((*logits)[1], (*dims)[1]))))
      InferContext::fail(cat("operand ", i, " has other rows than the logits"));
  }
  context.set_type(0, DType::i32);
  if (const Dims* logits = context.dims(0)) context.set_dims(0, Dims(logits->begin(), logits->end() - 1));
}

void infer_open(InferContext&) {}  // keeps the value's type

// A quantised weight is [n, c, l] in u2, u4, u8, i2, i4 or i8: c blocks of l, each with a scale in f32, f16 or bf16
// and a zero point, in scales [n, c] and zeros [n, c] (any number type of whole bytes; absent: attribute `zero` for
// all). Its value is scale (w - zero) in f32, rounded once after each of the two operations. If k < c l the rest is
// unused.
void register_linear(OpSet& ops) {
  ops.add({.name = "plait.Linear",
           .inputs = "x w bias? scales!? zeros!?",
           .outputs = "y",
           .attributes = {{"round_x", "int", "0"}, {"zero", "int", "0"}, {"many_rows", "int", "0"}},
           .dims = "*... k, *n k -> ... n",
           .dims_of = linear_dims,
           .doc = "x w^T + bias, summed in f32; w [n, k] may be bf16 or f16, or [n, c, l] in blocks of 2 to 8 bits; "
                  "many_rows 1: "
                  "tokens are never few"});
  ops.add({.name = "plait.Linears",
           .inputs = "x weights...",
           .outputs = "ys...",
           .attributes = {{"round_x", "int", "0"}, {"parts", "int", "1"}, {"zero", "int", "0"}},
           .dims = "*... k, n k, m k -> ... n, ... m",
           .dims_of = linears_dims,
           .infer = infer_linears,
           .doc = "several Linears of one input; parts 2: w scales, w scales, ...; parts 3: w scales zeros, ..."});
  ops.add({.name = "plait.GatedLinear",
           .inputs = "x gate up gate_scales? gate_zeros? up_scales? up_zeros?",
           .outputs = "y",
           .attributes = {{"activation", "string", "silu"}, {"round_x", "int", "0"}, {"zero", "int", "0"}},
           .dims = "... [k], f [k], *f [k] -> ... f",
           .dims_of = gated_dims,
           .doc = "activation(x gate^T) (x up^T); silu, gelu, gelu_tanh, relu or identity (Shazeer 2020)"});
  ops.add({.name = "plait.AdaptedLinear",
           .inputs = "x w bias? scales!? zeros!? a b adapters",
           .outputs = "y",
           .attributes = {{"round_x", "int", "0"}, {"zero", "int", "0"}},
           .dims = "*... k, n k, , , , [s] [r] k, [s] n [r], ... -> ... n",
           .dims_of = adapted_linear_dims,
           .doc = "a Linear and what the row's adapter adds, (x a^T) b^T (Hu et al. 2022); adapter -1: nothing"});
  ops.add({.name = "plait.AddAdapters",
           .inputs = "y x a b adapters",
           .outputs = "y",
           .dims = "+... n, +... [k], [s] [r] [k], [s] n [r], ... -> ... n",
           .updates = 1,
           .doc = "y + (x a^T) b^T with the a and b of the row's adapter, in place; adapter -1: y"});
  ops.add({.name = "plait.Embedding",
           .inputs = "table ids scales? zeros?",
           .outputs = "y",
           .attributes = {{"to", "int", "1"}, {"zero", "int", "0"}, {"offset", "int", "0"}, {"whole", "int", "0"}},
           .dims = "*@v h, ... -> ... h",
           .dims_of = embedding_dims,
           .infer = infer_embedding,
           .doc = "rows of the table; a row of another shard is 0"});
  ops.add({.name = "plait.GatherRows",
           .inputs = "x rows",
           .outputs = "y",
           .dims = "*b [s] ..., b n -> b n ...",
           .doc = "the rows of each sequence that are named"});
}

void register_ragged(OpSet& ops) {
  ops.add({.name = "plait.RoPE",
           .inputs = "x cos! sin!",
           .outputs = "y",
           .attributes = {{"interleaved", "int", "0"}},
           .dims = "*b t g [d], b t [z], b t [z] -> b t g [d]",
           .infer = infer_same,
           .doc = "pairs of the first 2 z elements rotated by their token's angle (Su et al. 2021)"});
  ops.add({.name = "plait.KvWrite",
           .inputs = "k_pages v_pages k v slots",
           .outputs = "k_pages v_pages",
           .dims = "[p] g d [c], [p] g [c] e, [b] [t] g d, [b] [t] g e, [b] [t] -> [p] g d [c], [p] g [c] e",
           .infer = infer_kv_write,
           .updates = 2,
           .doc = "keys and values written to their pages, in place; slot -1 writes nothing"});
  ops.add({.name = "plait.PagedAttention",
           .inputs = "q k_pages v_pages positions segments page_table sinks? slopes?",
           .outputs = "y",
           .attributes = {{"scale", "float", "required"}, {"window", "int", "0"}, {"softcap", "float", "0"}},
           .dims = "b t (g r) [d], [p] g [d] [c], *[p] g [c] [e], b t, b t, [n] [m], (g r), (g r) -> b t (g r) [e]",
           .doc = "causal attention of each token to the pages of its segment (Kwon et al. 2023)"});
  ops.add({.name = "plait.Sample",
           .inputs = "logits settings edits",
           .outputs = "tokens",
           .dims = "b [r] [v], b [r] [i], b [e] [j] -> b [r]",
           .infer = infer_sample,
           .doc = "a token for each row of logits; settings i64 [b, r, 6] are bits of ChoiceSettings, edits i32 "
                  "[b, e, 5] a row (-1: none) and bits of a LogitEdit; below 0: a ChoiceFault"});
}

}  // namespace

void register_plait(OpSet& ops) {
  register_linear(ops);
  register_ragged(ops);
  ops.add({.name = "plait.Sizes",
           .inputs = "",
           .outputs = "sizes",
           .attributes = {{"sizes", "strings", "required"}, {"scalar", "int", "0"}},
           .infer = infer_sizes,
           .doc = "symbolic sizes as numbers"});
  ops.add(
      {.name = "plait.State",
       .inputs = "initial?",
       .outputs = "value",
       .attributes = {{"key", "string", "required"}, {"sum", "int", "0"}},
       .infer = infer_open,
       .doc = "a persistent value of the Store, by its key; it begins as the constant, or as zeros; a sum may be one "
              "of the ranks' values"});
}

}  // namespace plait
