#include "core/plan/generate/generation_plans.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

std::vector<GenerationPlan> generation_plans(const PlannedDecoder& decoder, const GenerationLoad& load,
                                             const PriceTerms& terms) {
  const DecoderShape& shape = decoder.shape;
  const int64_t within = terms.machine.levels.empty() ? 1 : terms.machine.levels.front().ranks;
  std::vector<GenerationPlan> out;
  double least = std::numeric_limits<double>::infinity();
  bool any = false;
  for (int64_t tensor = 1; tensor <= load.ranks; ++tensor) {
    if (load.ranks % tensor || shape.kv_heads % tensor || shape.feed_forward % tensor || (within && tensor > within))
      continue;
    any = true;
    GenerationPlan one{.data = load.ranks / tensor, .tensor = tensor};
    one.sequences = (load.batch + one.data - 1) / one.data;
    one.price = price_generation(
        decoder, {.tensor = tensor, .sequences = one.sequences, .prompt = load.prompt, .context = load.context},
        terms);
    least = std::min(least, one.bytes());
    if (one.bytes() <= load.memory_bytes) out.push_back(one);
  }
  if (!any)
    throw Error(Code::invalid_argument, cat("no mesh of ", load.ranks, " ranks shares ", shape.kv_heads,
                                            " kv heads and a feed-forward size of ", shape.feed_forward));
  if (out.empty())
    throw Error(
        Code::out_of_memory,
        cat("no mesh of ", load.ranks, " ranks fits: the least takes ", human_bytes(static_cast<int64_t>(least)),
            " on a rank, which has ", human_bytes(static_cast<int64_t>(load.memory_bytes))),
        "more ranks, fewer sequences, or a shorter context");
  std::stable_sort(out.begin(), out.end(), [](const GenerationPlan& a, const GenerationPlan& b) {
    return a.price.token_s < b.price.token_s;
  });
  return out;
}

}  // namespace plait
