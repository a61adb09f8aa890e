#pragma once
// What the files of pass raise share. Raise looks at what a graph computes, not at how an exporter spelled it: a
// candidate region is run on numbers by the reference kernels and compared with the canonical op.
#include <optional>
#include <string>
#include <vector>

#include "core/base/shape.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/base/pass.h"

namespace plait {

/// One run that a probe imagines: `tokens` new tokens behind `past` cached ones, batch 1, nothing masked out.
struct Probe {
  int64_t past = 0, tokens = 1;
};

/// An evaluator with the sizes, mask and position ids of a probe bound; ids and cache are not.
Evaluator evaluator_at(const Graph& graph, const PassContext& context, const Probe& probe);

/// For each value whether it depends on what the ids or the cache hold (rather than on sizes, mask and positions).
std::vector<bool> data_values(const Graph& graph, const DecoderInterface& interface);

/// Sizes of a value at a probe; nullopt where a symbol is not one of the interface's.
std::optional<Shape> shape_at(const Graph& graph, const PassContext& context, ValueId id, const Probe& probe);

/// Queries, keys or values of the new tokens, of batch 1. `order` says which axes lie in memory in which order: h
/// heads, s tokens, d elements of a head; "hsd" is [b, heads, s, d], "shd" [b, s, heads * d].
struct HeadValue {
  ValueId value = no_value;
  std::string order = "hsd";
};

/// An operand of a product in attention: where element (head, token, d) of it stands, and how many there are.
struct HeadOperand {
  ValueId value = no_value;
  int64_t heads = 0, size = 0;
  std::string order;  ///< as of HeadValue; of the operand as the product reads it
};

/// What an operand is made of, through any transpositions, reshapes, repeated heads and scales: the new tokens' part,
/// and the cache that stands before it.
struct HeadSource {
  HeadValue fresh;
  int cache = -1;     ///< number of the interface's cache; -1: none
  int64_t heads = 0;  ///< before they were repeated, each as often as the others, in neighbours
  double factor = 1;  ///< by which every element was multiplied
};
/// Follows an operand back, by running what lies between on elements that say where they come from. nullopt with
/// `why` when it is not what it should be.
std::optional<HeadSource> trace_heads(const Graph& graph, const PassContext& context,
                                      const std::vector<int32_t>& producer, const std::vector<bool>& data,
                                      const HeadOperand& operand, std::string& why);
/// The cache input that `id` is, or is a part or another order of; -1 for none.
int cache_of(const Graph& graph, const DecoderInterface& interface, const std::vector<int32_t>& producer, ValueId id);

/// Lets the graph cache what attention reads where it caches something else, of which that is computed for each token alone
/// (a latent of all heads' keys and values). Changes the interface with it. False when there was none.
bool keep_what_attention_reads(Graph& graph, PassContext& context);

/// An attention found in the graph, with what it is in canonical terms.
struct AttentionMatch {
  HeadValue query, key, value;
  ValueId output = no_value;             ///< heads, tokens, elements in memory, of any rank; or packed
  bool packed = false;                   ///< the output is [b, s, heads * e]
  bool packed_qkv = false;               ///< query, key and value are one [b, s, (q + 2 kv) * d]
  int cache_key = -1, cache_value = -1;  ///< numbers of the interface's caches; -1 when the graph keeps none
  AttentionLayer layer;
  struct Mask {
    ValueId value;
    bool keeps;         ///< a bool mask: true where the key is seen (false: where it is hidden)
    double factor = 1;  ///< by which the sum of scores and mask is multiplied afterwards
  };
  std::vector<Mask> masks;    ///< a float mask is added, hidden where it is below -1e4
  bool causal = false;        ///< by attribute
  bool told_length = false;   ///< how many places of a buffer are filled is an operand
  int64_t window = 0;         ///< by attribute, as AttentionLayer::window
  ValueId sinks = no_value;   ///< one number a head
  std::vector<float> slopes;  ///< by query head, of ALiBi: added for each place that a key stands later; empty: none
  ValueId cosine = no_value, sine = no_value;  ///< tables [m, z] by which query and key are still to turn
  bool interleaved = false;
};

/// The attention whose probabilities (Softmax) or whole (Attention) node `index` is. On failure `why` says what did not
/// fit; nullopt and an empty `why` when the node is nothing of the kind.
std::optional<AttentionMatch> match_attention(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer,
                                              const std::vector<bool>& data, int32_t index, std::string& why);

/// A convolution or recurrence along the tokens, with what it is in canonical terms.
struct RecurrentMatch {
  std::string op;         ///< plait.CausalConv, or plait.LinearAttention
  Attributes attributes;  ///< of it
  /// x [b, c, s], weight [c, 1, k], bias; or query, key, value, decay, beta, as LinearAttention has them. no_value: absent.
  std::vector<ValueId> operands;
  ValueId output = no_value;   ///< as the operands lie: [b, c, s], or [b, s, n e]
  int cache = -1;              ///< number of the interface's cache that is its state; -1 when the graph keeps none
  std::vector<int64_t> sizes;  ///< of the canonical op's state
};

/// The recurrence that node `index` is: an op that is one, or a depthwise Conv that is causal, whatever lies around it to
/// put the state in front and to take the next one. On failure `why` says what did not fit; nullopt and an empty `why`
/// when the node is nothing of the kind.
std::optional<RecurrentMatch> match_recurrent(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer, int32_t index,
                                              std::string& why);
/// Which of `earlier` ones hand their results to it with no weight between: the convolutions in front of a recurrence.
std::vector<size_t> in_front_of(const Graph& graph, const std::vector<int32_t>& producer, const RecurrentMatch& match,
                                const std::vector<RecurrentMatch>& earlier);
/// Replaces it by the canonical op, whose state is number `index`; `segments` and `slots` are as the op has them.
void rewrite_recurrent(Graph& graph, const RecurrentMatch& match, size_t index, ValueId segments, ValueId slots);

/// Whether the op reads the segment table itself: then it may relate tokens to each other, and sees all of them.
bool reads_segments(std::string_view op);

/// Long pasts (or, without a cache, many tokens), the longest first: for what shows only there. Tables of fixed length in
/// a graph allow less far: the first probe that can be evaluated says it.
std::vector<Probe> long_probes(bool cached);

/// Finds the window that the masks of `match` stand for, by probing them, and checks that they are causal. Sets
/// match.layer.window; false with `why` when the masks say something else.
bool probe_masks(const Graph& graph, const PassContext& context, AttentionMatch& match, std::string& why);

/// Writes ops that are several in one (of com.microsoft, mostly) as the simple ones that ONNX has, so that there is one
/// spelling to recognise. Types must be inferred. False when there was none.
bool spell_out(Graph& graph);

/// Takes away choices that all probes make alike (rows of which every key is hidden, say), and picks of rows 0, 1, ..
/// in a table that has one row a token.
void settle(Graph& graph, const PassContext& context);
/// Where rows are picked from a table that was cut to the length so far, they are picked from the whole table.
void drop_table_slices(Graph& graph);

/// A choice that the graph makes once a run, by how many tokens there are, past and new ones together.
struct LengthChoice {
  ValueId longer = no_value;  ///< a bool, as if it were an input: there are more than `limit` tokens
  int64_t limit = 0;
};
/// Finds the bools that say whether a sequence is longer than some limit, by probing them, and lets their readers read
/// inputs of that meaning instead.
std::vector<LengthChoice> find_length_choices(Graph& graph, const PassContext& context);
/// Lets each token choose by the length of its own sequence, `lengths` (i32 [1, t]): what `choice` decides about is
/// computed for both answers from `positions` (i32 [1, t]), and picked where tokens' own data meets it. What has no row a
/// token there stays as it is.
void choose_by_token(Graph& graph, const PassContext& context, const LengthChoice& choice, ValueId lengths,
                     ValueId positions, SymbolId tokens);

/// Replaces every value that equals the tokens' positions by `positions` (i32 [1, t]).
void replace_positions(Graph& graph, const PassContext& context, ValueId positions);

/// Takes away roundings of activations: what QuantizeLinear and DequantizeLinear do one after the other with the same
/// scale. False when there was none.
bool drop_rounding(Graph& graph);
/// Products with quantised weights, and tables that are quantised, become Linear and Embedding; those of activations that
/// are quantised as the graph runs only if `dynamic`.
void raise_quantised(Graph& graph, bool dynamic);
/// A constant as it is to be stored, transposed if wanted: storage types stay, a widening cast goes.
std::shared_ptr<Constant> storage_constant(const Constant& constant, bool transpose);

/// Lifts regions to canonical ops in place, which keep the names of the nodes where the regions end: Linear, Embedding,
/// RMSNorm, LayerNorm, RoPE, activations.
void raise_layers(Graph& graph, PassContext& context);
/// Mixtures of experts, of whatever form, become plait.Experts; `tokens` counts the rows. False when there was none.
bool raise_experts(Graph& graph, PassContext& context, SymbolId tokens);
/// The weights of a plait.Experts, stored as those of Linears are.
void store_experts(Graph& graph, const PassContext& context, Node& node);
/// Linears whose results are only cut into parts become a Linear a part. False when there was none.
bool split_linears(Graph& graph);
/// Transposes that only undo each other go, also through ops that work on the last axis alone.
void cancel_transposes(Graph& graph);

/// A single-entry region: what lies between `output` and one data value (`entry`), constants and values that depend on
/// no data (`side`) being free.
struct Region {
  ValueId output = no_value, entry = no_value;
  std::vector<ValueId> side;   ///< values that are neither constant nor data
  std::vector<int32_t> nodes;  ///< indices, ascending
};
/// Regions that end at `output`, smallest first, of at most `limit` nodes.
std::vector<Region> regions_of(const Graph& graph, const std::vector<int32_t>& producer,
                               const std::vector<bool>& data, ValueId output, size_t limit);

/// Gathers the rows whose logits are asked for as early as the graph allows, so that what nobody asked for is not
/// computed. `rows` is i32 [1, r]; outputs that have a token axis get r in its place.
void gather_rows(Graph& graph, PassContext& context, ValueId rows, SymbolId tokens, SymbolId asked);

/// Whether every node treats tokens independently, except the ops that read the segment table. By the dims rules: the
/// token factor must be free. False with `why` otherwise.
bool tokens_are_free(const Graph& graph, const PassContext& context, SymbolId tokens, std::string& why);

/// Says in `decoder` what the nodes of a raised graph are: `found` and `plain`. The canonical nodes have kept the names of
/// those whose place they took.
void list_findings(const Graph& graph, Decoder& decoder);

}  // namespace plait
