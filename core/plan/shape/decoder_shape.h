#pragma once
// A decoder by its sizes: for plans of models that are not at hand.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/schema.h"

namespace plait {

struct DecoderShape {
  enum class Family {
    llama,  ///< RMSNorm, rotary positions, gated MLP, a head of its own
    gpt,    ///< LayerNorm, learned positions, biases, GELU, the table is also the head
  };
  Family family = Family::llama;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0, feed_forward = 0, vocabulary = 0;
  int64_t experts = 0, experts_used = 0;  ///< 0: a layer has one MLP
  int64_t experts_every = 1;              ///< of so many layers the first has experts, the others one MLP
  int64_t sequence = 0;                   ///< tokens of a sample
  bool tied = false;                      ///< the embedding table is also the head

  /// All weights, embeddings included.
  int64_t parameters() const;
  /// After so many layers their kinds repeat.
  int64_t period() const { return experts ? experts_every : 1; }
};

/// "family=llama,layers=80,hidden=8192,heads=64,kv_heads=8,feed_forward=28672,vocabulary=128256,sequence=4096", in any order.
/// Left out: kv_heads are the heads, head_size hidden / heads, feed_forward 4 hidden, experts none, experts_every 1, tied of the
/// family.
/// Throws Error(invalid_argument) for a name that is unknown, missing or given twice, and for sizes that contradict each other, with
/// the numbers.
DecoderShape parse_decoder_shape(std::string_view text);

/// The graph of so many of its layers, as an import has it: that of importers/decoder. Its weights have sizes and names, and are zeros
/// but for their first element, without memory of their own. Throws Error(out_of_memory) if the system refuses the address space.
Graph decoder_graph(const DecoderShape& shape, int64_t layers, const OpSet& ops);

}  // namespace plait
