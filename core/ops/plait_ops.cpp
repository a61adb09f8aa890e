// Plait's own ops: what `raise` and `fuse` make of exporters' patterns.
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

/// A bias is added once: with one, k may not be cut.
std::string linear_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  bool bias = in.size() > 2 && in[2].dims;
  return bias ? "... [k], n [k], n -> ... n" : "*... k, *n k -> ... n";
}

void infer_linears(InferContext& context) {
  if (context.outputs() != context.inputs() - 1)
    InferContext::fail(cat("there are ", context.inputs() - 1, " weights, but ", context.outputs(), " outputs"));
  for (int k = 0; k < context.outputs(); ++k) context.set_type(k, context.dtype(0));
}

/// Linear in x; in no weight, since each makes one of the results only.
std::string linears_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::vector<std::string> operands{"*... k"}, results;
  for (size_t i = 1; i < in.size(); ++i) {
    operands.push_back(cat("n", i, " k"));
    results.push_back(cat("... n", i));
  }
  return rule_text(operands, results);
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

void infer_open(InferContext&) {}  // what the value's type says stands

void register_linear(OpSet& ops) {
  ops.add({.name = "plait.Linear",
           .inputs = "x w bias?",
           .outputs = "y",
           .attributes = {{"round_x", "int", "0"}},
           .dims = "*... k, *n k -> ... n",
           .dims_of = linear_dims,
           .doc = "x w^T + bias, summed in f32; w [n, k] may be bf16 or f16"});
  ops.add({.name = "plait.Linears",
           .inputs = "x weights...",
           .outputs = "ys...",
           .attributes = {{"round_x", "int", "0"}},
           .dims = "*... k, n k, m k -> ... n, ... m",
           .dims_of = linears_dims,
           .infer = infer_linears,
           .doc = "several Linears of one input"});
  ops.add({.name = "plait.GatedLinear",
           .inputs = "x gate up",
           .outputs = "y",
           .attributes = {{"activation", "string", "silu"}, {"round_x", "int", "0"}},
           .dims = "... [k], f [k], *f [k] -> ... f",
           .doc = "activation(x gate^T) (x up^T); silu, gelu, gelu_tanh, relu or identity (Shazeer 2020)"});
  ops.add({.name = "plait.Embedding",
           .inputs = "table ids",
           .outputs = "y",
           .attributes = {{"to", "int", "1"}},
           .dims = "*@v h, ... -> ... h",
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
           .inputs = "x cos sin",
           .outputs = "y",
           .attributes = {{"interleaved", "int", "0"}},
           .dims = "*b t g [d], b t [z], b t [z] -> b t g [d]",
           .infer = infer_same,
           .doc = "pairs of the first 2 z elements turned by their token's angle (Su et al. 2021)"});
  ops.add({.name = "plait.KvWrite",
           .inputs = "k_pages v_pages k v slots",
           .outputs = "k_pages v_pages",
           .dims = "[p] g d [c], [p] g [c] e, [b] [t] g d, [b] [t] g e, [b] [t] -> [p] g d [c], [p] g [c] e",
           .infer = infer_kv_write,
           .doc = "keys and values written to their pages, in place; slot -1 writes nothing"});
  ops.add({.name = "plait.PagedAttention",
           .inputs = "q k_pages v_pages positions segments page_table sinks? slopes?",
           .outputs = "y",
           .attributes = {{"scale", "float", "required"}, {"window", "int", "0"}, {"softcap", "float", "0"}},
           .dims = "b t (g r) [d], [p] g [d] [c], *[p] g [c] [e], b t, b t, [n] [m], (g r), (g r) -> b t (g r) [e]",
           .doc = "causal attention of each token to the pages of its segment (Kwon et al. 2023)"});
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
  ops.add({.name = "plait.State",
           .inputs = "",
           .outputs = "value",
           .attributes = {{"key", "string", "required"}},
           .infer = infer_open,
           .doc = "a persistent value of the Store, by its key"});
}

}  // namespace plait
