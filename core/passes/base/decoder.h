#pragma once
// What `raise` recognised in a language model's graph; read by core/generate and plait inspect.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/base/adapters.h"

namespace plait {

/// Names of the inputs of rows that stand for tokens, and of the number of these rows.
inline constexpr std::string_view given_rows_input = "plait.given", given_at_input = "plait.given_at";
inline constexpr std::string_view given_symbol = "given";
/// The name of the input of positions in several dimensions (M-RoPE) of a raised graph: i32 [b, t, rows].
inline constexpr std::string_view mrope_positions_input = "mrope_positions";

/// The roles of a decoder's inputs and outputs, found from names, ranks and dtypes.
struct DecoderInterface {
  struct Cache {
    ValueId past = no_value;
    int present = -1;  ///< number of the output that is its next value
    int layer = 0;
    int axis = 2;        ///< of the past length; -1: a state of fixed size, all zeros before the first token
    int64_t length = 0;  ///< of a buffer, if the file specifies it; otherwise 0
    bool ring = false;   ///< a ring buffer: it wraps around when full
    bool idle = false;   ///< unused: passed through unchanged
    /// Of the past; sizes that only its next value determines are filled in from there, and the batch is one symbol.
    Dims dims;
  };
  /// An integer that a run passes to the next: the number of tokens so far, or a constant.
  struct Counter {
    ValueId input = no_value;
    int output = -1;
  };
  ValueId ids = no_value, mask = no_value, positions = no_value;
  int64_t position_rows = 0;  ///< of positions [rows, b, s], equal for text (M-RoPE); 0: they are [b, s]
  /// Whether positions are time, height and width, and differ where rows of an image stand for tokens (GivenPlace).
  bool takes_places() const { return given_size > 0 && position_rows == 3; }
  int logits = -1;  ///< number of the output
  std::vector<Cache> caches;
  std::vector<Counter> counters;
  /// The past inputs are buffers of fixed length, into which the graph writes new tokens after those that a counter
  /// counts; the symbol `past` is then the length of buffers whose length the file leaves open.
  bool fixed_buffers = false;
  /// Rows f32 [given, h] and, of each token, the row [b, s] that stands for its embedding, or -1 (`give_rows`).
  ValueId given = no_value, given_at = no_value;
  int64_t given_size = 0;     ///< h; 0: the graph takes tokens only
  ValueId branch = no_value;  ///< a bool: whether there is a past (merged decoders)
  /// What an encoder makes of a request, the same in each of its runs: a hidden state [b, n, h], or keys or values of cross-attention
  /// [b, heads, n, d]; and the mask i64 [b, n] of it.
  std::vector<ValueId> encoded;
  ValueId encoded_mask = no_value;
  SymbolId batch = -1, sequence = -1, past = -1;
  bool complete = false;  ///< ids and logits exist, and each past has its present
  std::string why;        ///< what is missing if not complete
};

/// One attention layer of the raised graph.
struct AttentionLayer {
  int64_t query_heads = 0, kv_heads = 0, key_size = 0, value_size = 0;
  int64_t window = 0;  ///< tokens that a query sees, including itself; 0: all
  double scale = 0, softcap = 0;
  bool operator==(const AttentionLayer&) const = default;
};

/// A pool of pages of one shape; a page has the keys and values of some tokens in `layers` layers. Group `g` of a
/// pool keeps its k-th layer in the Store's arrays "cache.k.<pool>.<k>" and "cache.v.<pool>.<k>".
struct PagePoolShape {
  int64_t kv_heads = 0, key_size = 0, value_size = 0;
  int64_t layers = 0;
  int64_t parts = 1;  ///< shards of its arrays; the minimum if layers differ
  /// Bytes of one page of `tokens` tokens, all shards.
  int64_t page_bytes(int64_t tokens, DType dtype) const {
    return layers * tokens * kv_heads * (key_size + value_size) * dtype_bits(dtype) / 8;
  }
};

/// Layers that share one page table.
struct PageGroup {
  int64_t window = 0;
  int pool = 0;
  std::vector<int> layers;
  int32_t stage = 0;  ///< of a pipeline; groups and pools are those of one stage
};

/// A pattern, and the name of the file's node where it was found (empty if the file names none, or for nodes that
/// raise added).
struct Finding {
  std::string what, node;
};

/// The state of one convolution or recurrence: state k of all sequences is the Store's array "cache.s.<k>", f32
/// [slots, sizes...], with one slot per sequence. A step reads a sequence's states from one slot and writes them to
/// another, so a failed step changes nothing, and copies of a sequence share a slot until they diverge.
struct StateShape {
  std::string op;  ///< the op that carries it: "plait.CausalConv" [k - 1, c], "plait.LinearAttention" [g, d, e]
  int layer = 0;   ///< layer number in the file's names, or in order; states of one layer share it
  std::vector<int64_t> sizes;
  int64_t parts = 1;  ///< shards
  int32_t stage = 0;  ///< of a pipeline
  int64_t bytes() const {
    int64_t out = dtype_bits(DType::f32) / 8;
    for (int64_t size : sizes) out *= size;
    return out;
  }
};

/// The raised graph is one ragged program. Inputs: `ids` i64 [b, t], `positions` and `segments` i32 [b, t], `rows`
/// i32 [b, r] (tokens whose logits are computed); by page group `slots` i32 [b, t] and `pages` i32 [n, m]; with
/// states `states` i32 [n, 2] (slots that a segment reads and writes); with `interface.given` its two; with `interface.takes_places()`
/// `mrope_positions` i32 [b, t, 3]; with `length_limits` `lengths` i32
/// [b, t] (length of a token's sequence including its run: the whole prompt for a prompt's tokens); with adapters `adapters`
/// i32 [b, t] (a token's slot; -1: none). Outputs: logits f32 [b, r, v], then the hidden state before the head, f32
/// [b, r, h], then what pass `choose` adds.
struct Decoder {
  DecoderInterface interface;
  bool recognised = false;
  std::string why_not;                 ///< the first mismatch, with the node's name
  std::vector<std::string> obstacles;  ///< each place where matching stopped, with the node's name
  std::vector<AttentionLayer> layers;  ///< attention layers only
  std::vector<PageGroup> groups;
  std::vector<PagePoolShape> pools;
  std::vector<StateShape> states;
  /// Bytes of a slot: the states of one sequence.
  int64_t state_bytes() const {
    int64_t out = 0;
    for (const StateShape& state : states) out += state.bytes();
    return out;
  }
  /// Number of layers of each kind: "attention", "linear attention" (including convolutions before it) and
  /// "convolution".
  std::map<std::string, int> layer_kinds() const {
    std::map<int, std::string> recurrent;
    for (const StateShape& state : states) {
      std::string& kind = recurrent.try_emplace(state.layer, "convolution").first->second;
      if (state.op == "plait.LinearAttention") kind = "linear attention";
    }
    std::map<std::string, int> out;
    for (const auto& [layer, kind] : recurrent) ++out[kind];
    if (!layers.empty()) out["attention"] = static_cast<int>(layers.size());
    return out;
  }
  std::vector<AdaptedLinear> adapted;  ///< in the order of the graph
  int64_t adapter_slots = 0, adapter_rank = 0;
  DType cache_dtype = DType::f32;
  int64_t vocabulary = 0, hidden = 0;
  int64_t context = 0;      ///< the longest sequence that the graph's tables allow; 0: no limit found
  bool has_hidden = false;  ///< output 1 exists
  bool chooses = false;     ///< the last output is tokens (core/passes/choose.h)
  /// Tokens whose `lengths` is at most the limit are computed differently from those beyond (LongRoPE).
  std::vector<int64_t> length_limits;
  std::vector<Finding> found;  ///< recognised patterns, in graph order
  std::vector<Finding> plain;  ///< nodes of other ops, as in the file; `what` is the op
  /// Counts of recognised patterns: "RMSNorm" 37, "activation gelu_tanh" 18.
  std::map<std::string, int> features() const {
    std::map<std::string, int> counts;
    for (const Finding& one : found) ++counts[one.what];
    return counts;
  }
};

}  // namespace plait
