// Tokens that a step chooses: its settings and edits.
#include <algorithm>
#include <array>
#include <bit>

#include "core/generate/ragged_rank.h"

namespace plait {

void add_choice(RaggedStep& step, const Feed& feed, bool chooses) {
  const int64_t rows = std::min(feed.rows, static_cast<int64_t>(feed.tokens.size()));
  const bool chosen = chooses && feed.choice && rows > 0;
  if (!chosen && rows > 0) step.logits = true;
  if (!chooses) return;
  ChoiceSettings none;
  none.top_k = no_choice;
  for (int64_t i = 0; i < rows; ++i) {
    const ChoiceSettings& of_row = chosen && i == rows - 1 ? feed.choice->settings : none;
    const auto words = std::bit_cast<std::array<int64_t, choice_words>>(of_row);
    step.settings.insert(step.settings.end(), words.begin(), words.end());
  }
  if (!chosen) return;
  ++step.chosen;
  for (const LogitEdit& edit : feed.choice->edits) {
    const auto words = std::bit_cast<std::array<int32_t, edit_words - 1>>(edit);
    step.edits.push_back(static_cast<int32_t>(step.rows.size()) - 1);
    step.edits.insert(step.edits.end(), words.begin(), words.end());
  }
}

void pad_choices(RaggedStep& step) {
  const size_t edits = step.edits.size() / edit_words;
  step.edits.resize(std::bit_ceil(std::max<size_t>(edits, 1)) * edit_words, -1);
}

}  // namespace plait
