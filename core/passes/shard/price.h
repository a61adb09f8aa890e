#pragma once
// Costs of a plan per rank: bytes held, bytes sent, and an estimate in seconds.
#include "core/passes/shard/shard.h"

namespace plait {

/// In total, and by each rank (all hold equally much).
struct HeldBytes {
  int64_t weights = 0,
          rank_weights = 0;  ///< equal shards of one tensor and recipe count once
  int64_t token_cache = 0, rank_token_cache = 0;          ///< pages, per token
  int64_t sequence_states = 0, rank_sequence_states = 0;  ///< per sequence
};
/// `graph` is the global one.
HeldBytes held_bytes(const Graph& graph, const ShardPlan& plan, const Mesh& mesh);

/// Constants with equal keys share memory; "": not shared.
std::string memory_key(const Constant& constant);
/// At one token of one sequence.
int64_t token_bytes(const Type& type);

/// Speeds of the machine. The defaults are of ranks that share a current machine: only their ratios matter.
struct LinkPrices {
  double memory = 20e9;    ///< bytes per second that a rank reads
  double link = 5e9;       ///< bytes per second that a rank sends
  double latency = 10e-6;  ///< seconds of an empty collective
  int64_t context = 1024;  ///< cached tokens per sequence
};

/// Price of a step that decodes one token: it reads all weights of the rank, and the cache, once, and waits once per
/// collective. So a replicated weight costs its bytes on every rank. Tables count in full though few rows are read:
/// the price stands for their memory. Arithmetic is free: with few tokens it is hidden by memory reads.
struct PlanPrice {
  double reading = 0, moving = 0, waiting = 0;  ///< seconds
  double seconds() const { return reading + moving + waiting; }
};
PlanPrice price_of(const Graph& graph, const ShardPlan& plan, const Mesh& mesh, const LinkPrices& prices = {});

}  // namespace plait
