#pragma once
// Chooses a token from a row of logits: the definition of the op plait.Sample.
#include <span>

#include "core/base/token_weight.h"

namespace plait {

/// The chosen id, or a ChoiceFault. Order: edits, temperature, top-k, top-p, min-p, as Hugging Face's logits processors; candidates
/// by descending logit, then by id. `logits` get the edits; ids that are out of range have none. Thread-safe.
int32_t choose_token(std::span<float> logits, const ChoiceSettings& settings, std::span<const LogitEdit> edits);

/// The least logit of a candidate of top-k 0. The largest, which is finite, is one.
float least_candidate(float largest, const ChoiceSettings& settings);

}  // namespace plait
