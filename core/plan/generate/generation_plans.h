#pragma once
// Meshes for generation, by what a token costs.
#include <optional>
#include <vector>

#include "core/plan/generate/generation_price.h"

namespace plait {

struct GenerationPlan {
  int64_t data = 1, pipeline = 1, tensor = 1;
  int64_t batch = 0;      ///< sequences of all replicas
  int64_t sequences = 0;  ///< of a replica, of those that have most
  int64_t groups = 1;     ///< of its sequences, whose steps are in flight at once: at most as many as pipeline stages
  /// Of a replica: `token_s` of a group, which passes all stages while the others do, too; `prompt_s` of all prompts; bytes of a rank.
  GenerationPrice price;
  double tokens_per_second() const { return static_cast<double>(batch) / price.token_s; }
  double bytes() const { return price.weight_bytes + price.cache_bytes; }  ///< of a rank
};

/// What is generated: `batch` sequences at once, over all ranks.
struct GenerationLoad {
  int64_t ranks = 1, batch = 1, prompt = 1, context = 0;
  double memory_bytes = 0;  ///< of a rank
  std::optional<int64_t> pipeline = {}, data = {}, tensor = {};  ///< if given, only such meshes
};

/// Every mesh of so many ranks that fits, the fastest tokens first: tensor ranks within the machine's first level, which share the heads
/// evenly; balanced pipeline stages; the others are replicas. Throws Error(invalid_argument) if there is no such mesh,
/// Error(out_of_memory) with the least bytes if none fits.
std::vector<GenerationPlan> generation_plans(const PlannedDecoder& decoder, const GenerationLoad& load,
                                             const PriceTerms& terms);

}  // namespace plait
