#pragma once
// Declarations that the files of pass raise share. Raise checks what a graph computes, not its form: a candidate
// region is evaluated on numbers by the reference kernels and compared with the canonical op.
#include <optional>
#include <string>
#include <vector>

#include "core/base/shape.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/base/pass.h"

namespace plait {

/// A hypothetical run: `tokens` new tokens after `past` cached ones, batch 1, nothing masked.
struct Probe {
  int64_t past = 0, tokens = 1;
};

/// An evaluator with the sizes, mask and position ids of a probe bound, but not ids and cache.
Evaluator evaluator_at(const Graph& graph, const PassContext& context, const Probe& probe);

/// By value: whether it depends on the contents of ids or cache (and not only on sizes, mask and positions).
std::vector<bool> data_values(const Graph& graph, const DecoderInterface& interface);

/// Sizes of a value at a probe; nullopt if a symbol is not one of the interface's.
std::optional<Shape> shape_at(const Graph& graph, const PassContext& context, ValueId id, const Probe& probe);

/// Queries, keys or values of the new tokens, of batch 1. `order`: the axes in memory order, h heads, s tokens, d
/// elements of a head; "hsd" is [b, heads, s, d], "shd" [b, s, heads * d].
struct HeadValue {
  ValueId value = no_value;
  std::string order = "hsd";
};

/// An operand of a product in attention: its layout of elements (head, token, d), and their number.
struct HeadOperand {
  ValueId value = no_value;
  int64_t heads = 0, size = 0;
  std::string order;  ///< as HeadValue::order, for the operand as the product reads it
};

/// The source of an operand, through any transposes, reshapes, repeated heads and scales: the new tokens' part, and
/// the cache before it.
struct HeadSource {
  HeadValue fresh;
  int cache = -1;     ///< number of the interface's cache; -1 if none
  int64_t heads = 0;  ///< before repetition of adjacent heads
  double factor = 1;  ///< product of all scales
};
/// Traces an operand back by evaluating the nodes between on elements that encode their index. nullopt with `why` if
/// it does not fit.
std::optional<HeadSource> trace_heads(const Graph& graph, const PassContext& context,
                                      const std::vector<int32_t>& producer, const std::vector<bool>& data,
                                      const HeadOperand& operand, std::string& why);
/// The cache input that `id` is, or is a part or permutation of; -1 if none.
int cache_of(const Graph& graph, const DecoderInterface& interface, const std::vector<int32_t>& producer, ValueId id);

/// Caches what attention reads if the graph caches something else from which that is computed per token (e.g. a
/// latent of all heads' keys and values). Updates the interface. False if there was none.
bool keep_what_attention_reads(Graph& graph, PassContext& context);

/// An attention found in the graph, in canonical terms.
struct AttentionMatch {
  HeadValue query, key, value;
  ValueId output = no_value;             ///< heads, tokens, elements in memory, of any rank; or packed
  bool packed = false;                   ///< the output is [b, s, heads * e]
  bool packed_qkv = false;               ///< query, key and value are one [b, s, (q + 2 kv) * d]
  int cache_key = -1, cache_value = -1;  ///< numbers of the interface's caches; -1 if the graph has none
  AttentionLayer layer;
  struct Mask {
    ValueId value;
    bool keeps;         ///< a bool mask: true where the key is visible (false: where it is hidden)
    double factor = 1;  ///< scale of the sum of scores and mask
  };
  std::vector<Mask> masks;                     ///< a float mask is added; below -1e4 it hides
  bool causal = false;                         ///< by attribute
  bool told_length = false;                    ///< an operand gives the number of filled places of a buffer
  int64_t window = 0;                          ///< by attribute, as AttentionLayer::window
  ValueId sinks = no_value;                    ///< one number per head
  std::vector<float> slopes;                   ///< by query head, of ALiBi: added per position of a key; empty: none
  ValueId cosine = no_value, sine = no_value;  ///< tables [m, z] by which query and key are to be rotated
  bool interleaved = false;
};

/// Matches the attention whose probabilities (Softmax) or whole (Attention) node `index` makes. nullopt with `why` if
/// it does not fit; with an empty `why` if the node is not an attention.
std::optional<AttentionMatch> match_attention(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer,
                                              const std::vector<bool>& data, int32_t index, std::string& why);

/// A convolution or recurrence along the tokens, in canonical terms.
struct RecurrentMatch {
  std::string op;         ///< plait.CausalConv, or plait.LinearAttention
  Attributes attributes;  ///< of it
  /// x [b, c, s], weight [c, 1, k], bias; or query, key, value, decay, beta, as in LinearAttention. no_value: absent.
  std::vector<ValueId> operands;
  ValueId output = no_value;   ///< in the operands' layout: [b, c, s], or [b, s, n e]
  int cache = -1;              ///< number of the interface's cache that is its state; -1 if the graph has none
  std::vector<int64_t> sizes;  ///< of the canonical op's state
};

/// Matches the recurrence at node `index`: a recurrent op, or a causal depthwise Conv with the nodes around it that
/// prepend the state and take the next one. nullopt with `why` if it does not fit; with an empty `why` if the node is
/// not a recurrence.
std::optional<RecurrentMatch> match_recurrent(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer, int32_t index,
                                              std::string& why);
/// The `earlier` ones whose results it reads without a weight between: the convolutions before a recurrence.
std::vector<size_t> in_front_of(const Graph& graph, const std::vector<int32_t>& producer, const RecurrentMatch& match,
                                const std::vector<RecurrentMatch>& earlier);
/// Replaces it by the canonical op, with state number `index`; `segments` and `slots` are operands of the op.
void rewrite_recurrent(Graph& graph, const RecurrentMatch& match, size_t index, ValueId segments, ValueId slots);

/// Whether the op reads the segment table: then it may relate tokens to each other, and sees all of them.
bool reads_segments(std::string_view op);

/// Probes with long pasts (without a cache: many tokens), the longest first. Tables of fixed length in a graph limit
/// them: use the first probe that can be evaluated.
std::vector<Probe> long_probes(bool cached);

/// Finds the window of `match`'s masks by probing, and checks that they are causal. Sets match.layer.window; false
/// with `why` for other masks.
bool probe_masks(const Graph& graph, const PassContext& context, AttentionMatch& match, std::string& why);

/// Expands fused ops (mostly of com.microsoft) into ONNX's simple ones, so that one form has to be recognised. Types
/// must be inferred. False if there was none.
bool spell_out(Graph& graph);

/// Removes choices with the same outcome in all probes (e.g. for rows whose keys are all hidden), and gathers of rows
/// 0, 1, .. of a table with one row per token.
void settle(Graph& graph, const PassContext& context);
/// Rows picked from a table that was sliced to the current length are picked from the whole table.
void drop_table_slices(Graph& graph);

/// A choice that the graph makes once per run, by the number of past and new tokens.
struct LengthChoice {
  ValueId longer = no_value;  ///< a bool, made an input: there are more than `limit` tokens
  int64_t limit = 0;
};
/// Finds bools for whether a sequence is longer than a limit, by probing, and replaces them by inputs.
std::vector<LengthChoice> find_length_choices(Graph& graph, const PassContext& context);
/// Makes the choice per token by its own sequence's length, `lengths` (i32 [1, t]): dependent values are computed for
/// both answers from `positions` (i32 [1, t]), and selected where they meet token data. Values without a row per
/// token there stay unchanged.
void choose_by_token(Graph& graph, const PassContext& context, const LengthChoice& choice, ValueId lengths,
                     ValueId positions, SymbolId tokens);

/// Replaces every value that equals the tokens' positions by `positions` (i32 [1, t]), and the file's input of them by
/// `mrope_positions` (i32 [1, t, rows]; no_value: by `positions`, too).
void replace_positions(Graph& graph, const PassContext& context, ValueId positions, ValueId mrope_positions);

/// Removes rounding of activations: QuantizeLinear followed by DequantizeLinear with the same scale. False if there
/// there was none.
bool drop_rounding(Graph& graph);
/// Raises products with quantised weights, and quantised tables, to Linear and Embedding; products of dynamically
/// quantised activations only if `dynamic`.
void raise_quantised(Graph& graph, bool dynamic);
/// Storage form of a constant, optionally transposed: storage dtypes stay, a widening cast is dropped.
std::shared_ptr<Constant> storage_constant(const Constant& constant, bool transpose);

/// Raises regions to canonical ops in place, which get the names of the regions' last nodes: Linear, Embedding,
/// RMSNorm, LayerNorm, RoPE, activations.
void raise_layers(Graph& graph, PassContext& context);
/// Raises mixtures of experts, in any form, to plait.Experts; `tokens` counts the rows. False if there was none.
bool raise_experts(Graph& graph, PassContext& context, SymbolId tokens);
/// Gives the weights of a plait.Experts the storage form of Linears' weights.
void store_experts(Graph& graph, const PassContext& context, Node& node);
/// Splits Linears whose results are only sliced into a Linear per part. False if there was none.
bool split_linears(Graph& graph);
/// Removes Transposes that cancel, also across ops that work only on the last axis.
void cancel_transposes(Graph& graph);

/// A single-entry region: the nodes between `output` and one data value (`entry`), not counting constants and
/// data-independent values (`side`).
struct Region {
  ValueId output = no_value, entry = no_value;
  std::vector<ValueId> side;   ///< values that are neither constants nor data
  std::vector<int32_t> nodes;  ///< indices, ascending
};
/// Regions that end at `output`, smallest first, of at most `limit` nodes.
std::vector<Region> regions_of(const Graph& graph, const std::vector<int32_t>& producer,
                               const std::vector<bool>& data, ValueId output, size_t limit);

/// Gathers the rows whose logits are requested as early as possible, to skip the others. `rows` is i32 [1, r]; it
/// replaces the token axis of outputs.
void gather_rows(Graph& graph, PassContext& context, ValueId rows, SymbolId tokens, SymbolId asked);

/// Whether every node treats tokens independently, except ops that read the segment table: by the dims rules the
/// token factor must be free. False with `why` otherwise.
bool tokens_are_free(const Graph& graph, const PassContext& context, SymbolId tokens, std::string& why);

/// Lists the nodes of a raised graph in `decoder`: `found` and `plain`. Canonical nodes kept the names of the nodes
/// they replace.
void list_findings(const Graph& graph, Decoder& decoder);

}  // namespace plait
