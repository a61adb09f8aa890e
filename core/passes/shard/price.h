#pragma once
// What a plan costs a rank: bytes that it holds, bytes that it sends, and an estimate in seconds.
#include "core/passes/shard/shard.h"

namespace plait {

/// In all, and by each rank (all hold as much).
struct HeldBytes {
  int64_t weights = 0,
          rank_weights = 0;  ///< what is one tensor and one recipe is counted once, as far as it is cut alike
  int64_t token_cache = 0, rank_token_cache = 0;          ///< pages, for each token
  int64_t sequence_states = 0, rank_sequence_states = 0;  ///< for each sequence
};
/// `graph` is the global one.
HeldBytes held_bytes(const Graph& graph, const ShardPlan& plan, const Mesh& mesh);

/// Constants with equal keys share memory; "": not shared.
std::string memory_key(const Constant& constant);
/// At one token of one sequence.
int64_t token_bytes(const Type& type);

/// What the machine can do. The defaults are of ranks that share a machine of today: only their ratios matter.
struct LinkPrices {
  double memory = 20e9;    ///< bytes a second that a rank reads
  double link = 5e9;       ///< bytes a second that a rank sends
  double latency = 10e-6;  ///< seconds of a collective with nothing in it
  int64_t context = 1024;  ///< tokens that a sequence has in the cache
};

/// Of a step that decodes one token. It reads every weight that the rank holds, and the cache, once; and it waits
/// once for each collective. So a weight that is held whole costs its bytes on every rank; that tables
/// are not read in full is left out: for these the price stands for the memory that they take. Arithmetic has no price: with
/// few tokens it hides behind the reading.
struct PlanPrice {
  double reading = 0, moving = 0, waiting = 0;  ///< seconds
  double seconds() const { return reading + moving + waiting; }
};
PlanPrice price_of(const Graph& graph, const ShardPlan& plan, const Mesh& mesh, const LinkPrices& prices = {});

}  // namespace plait
