#pragma once
// Tokens chosen from a step's logits, row by row on the engine's threads.
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "serving/step_builder.h"

namespace plait {

/// One row's choice. Rows are independent, so the token does not depend on which thread makes it.
struct Draw {
  Job job;
  Sample* sample = nullptr;
  std::span<float> logits;  ///< [vocabulary]
  bool shared = false;      ///< of several draws, which each take a copy
  std::optional<TokenMask> mask;
  std::vector<uint32_t> only;  ///< what `mask` refers to if the grammar leaves one token
  SampledToken token;          ///< set by make_draws
  std::optional<Error> error;
};

/// Tokens that cannot be chosen: suppressed ones, and before its minimum length those that end the text.
std::vector<int32_t> banned_tokens(const RequestOptions& options, const Sample& sample);

/// Tokens with their log-probabilities in `rows` of logits, [ids, vocabulary]: each row is that before its token. NaN for a negative
/// id, which stands for a given row. `pool` null: by the caller.
std::vector<SampledToken> scored_tokens(std::span<const int32_t> ids, std::span<const float> rows, size_t vocabulary,
                                        int32_t top, ThreadPool* pool);

/// Chooses all of them. `pool` null: by the caller.
void make_draws(std::vector<Draw>& draws, ThreadPool* pool);

}  // namespace plait
