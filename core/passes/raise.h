#pragma once
// What the files of pass raise share. Raise looks at what a graph computes, not at how an exporter spelled it: a
// candidate region is run on numbers by the reference kernels and compared with the canonical op.
#include <optional>
#include <string>
#include <vector>

#include "core/passes/evaluate.h"
#include "core/passes/pass.h"

namespace plait {

/// One run that a probe imagines: `tokens` new tokens behind `past` cached ones, batch 1, nothing masked out.
struct Probe {
  int64_t past = 0, tokens = 1;
};

/// An evaluator with the sizes, mask and position ids of a probe bound; ids and cache are not.
Evaluator evaluator_at(const Graph& graph, const PassContext& context, const Probe& probe);

/// For each value whether it depends on what the ids or the cache hold (rather than on sizes, mask and positions).
std::vector<bool> data_values(const Graph& graph, const DecoderInterface& interface);

/// An attention found in the graph, with what it is in canonical terms. `query`, `key` and `value` are those of the
/// new tokens, before the cache: [b, heads, s, d] or, packed, [b, s, heads * d].
struct AttentionMatch {
  ValueId query = no_value, key = no_value, value = no_value;
  ValueId output = no_value;  ///< [b, heads, s, e], or [b, s, heads * e] when packed
  bool packed = false;
  int cache_key = -1, cache_value = -1;  ///< numbers of the interface's caches; -1 when the graph keeps none
  AttentionLayer layer;
  struct Mask {
    ValueId value;
    bool keeps;  ///< a bool mask: true where the key is seen (false: where it is hidden)
  };
  std::vector<Mask> masks;  ///< a float mask is added, hidden where it is below -1e4
  bool causal = false;      ///< by attribute
};

/// The attention whose probabilities (Softmax) or whole (Attention) node `index` is. On failure `why` says what did not
/// fit; nullopt and an empty `why` when the node is nothing of the kind.
std::optional<AttentionMatch> match_attention(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer,
                                              const std::vector<bool>& data, int32_t index, std::string& why);

/// Finds the window that the masks of `match` stand for, by probing them, and checks that they are causal. Sets
/// match.layer.window; false with `why` when the masks say something else.
bool probe_masks(const Graph& graph, const PassContext& context, AttentionMatch& match, std::string& why);

/// Replaces every value that equals the tokens' positions by `positions` (i32 [1, t]).
void replace_positions(Graph& graph, const PassContext& context, ValueId positions);

/// Lifts regions to canonical ops in place, counting them in context.decoder.features: Linear, Embedding, RMSNorm,
/// LayerNorm, RoPE, activations.
void raise_layers(Graph& graph, PassContext& context);
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

}  // namespace plait
