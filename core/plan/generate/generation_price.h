#pragma once
// What generation with a decoder costs on a machine: the engine's ragged programs, priced.
#include "core/plan/price/program_price.h"
#include "core/plan/shape/planned_decoder.h"

namespace plait {

/// Steps of `sequences` requests at once, over tensor and pipeline ranks; stages are balanced and work one after another.
struct GenerationCase {
  int64_t tensor = 1, pipeline = 1;
  int64_t sequences = 1;
  int64_t prompt = 0;   ///< tokens of each
  int64_t context = 0;  ///< tokens in the cache at a step that generates; 0: those of the prompt
};

struct GenerationPrice {
  double prompt_s = 0;          ///< all prompts, to their first token
  double token_s = 0;           ///< a step that generates one token of each sequence
  double slowest_s = 0;         ///< of its stages in such a step: the least time between steps of a full pipeline
  double slowest_prompt_s = 0;  ///< the same of the prompts
  double exposed_s = 0;         ///< of such a step, waiting for collectives and messages
  double weight_bytes = 0;      ///< of the rank that holds most
  double cache_bytes = 0;       ///< of that rank, at `context`

  double tokens_per_second(int64_t sequences) const { return static_cast<double>(sequences) / token_s; }
};

/// Compiles a model at hand as it is; of one that is known by its sizes programs of one and of two layers (or periods of them), which are
/// extended, as layers repeat; layers of a model at hand are taken as alike. `terms.work`: of weights, cache and activations. Throws
/// Error(invalid_argument) for ranks that the sizes or the machine do not allow; what compile_ragged throws.
GenerationPrice price_generation(const PlannedDecoder& decoder, const GenerationCase& how, const PriceTerms& terms);

}  // namespace plait
