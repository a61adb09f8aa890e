#include "core/plan/generate/generation_plans.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

GenerationPlan plan_of(const PlannedDecoder& decoder, const GenerationLoad& load, GenerationPlan mesh,
                       const PriceTerms& terms) {
  mesh.batch = load.batch;
  mesh.sequences = (load.batch + mesh.data - 1) / mesh.data;
  mesh.groups = std::min(mesh.pipeline, mesh.sequences);
  const int64_t of_group = (mesh.sequences + mesh.groups - 1) / mesh.groups;
  mesh.price = price_generation(decoder,
                                {.tensor = mesh.tensor,
                                 .pipeline = mesh.pipeline,
                                 .sequences = of_group,
                                 .prompt = load.prompt,
                                 .context = load.context},
                                terms);
  // Each group follows the one before by the slowest stage, and comes again when that has served the others.
  mesh.price.prompt_s += static_cast<double>(mesh.groups - 1) * mesh.price.slowest_prompt_s;
  mesh.price.token_s = std::max(mesh.price.token_s, static_cast<double>(mesh.groups) * mesh.price.slowest_s);
  mesh.price.cache_bytes *= static_cast<double>(mesh.groups);
  return mesh;
}

}  // namespace

std::vector<GenerationPlan> generation_plans(const PlannedDecoder& decoder, const GenerationLoad& load,
                                             const PriceTerms& terms) {
  const DecoderShape& shape = decoder.shape;
  terms.machine.check_ranks(load.ranks);
  const int64_t within = terms.machine.levels.empty() ? 1 : terms.machine.levels.front().ranks;
  std::vector<GenerationPlan> out;
  double least = std::numeric_limits<double>::infinity();
  bool any = false;
  for (int64_t tensor = 1; tensor <= load.ranks; ++tensor) {
    if (load.ranks % tensor || shape.kv_heads % tensor || shape.feed_forward % tensor) continue;
    if (load.tensor ? tensor != *load.tensor : within && tensor > within) continue;
    const int64_t left = load.ranks / tensor;
    for (int64_t pipeline = 1; pipeline <= std::min(left, shape.layers); ++pipeline) {
      if (left % pipeline || (load.pipeline && pipeline != *load.pipeline) ||
          (load.data && left / pipeline != *load.data))
        continue;
      any = true;
      const GenerationPlan one =
          plan_of(decoder, load, {.data = left / pipeline, .pipeline = pipeline, .tensor = tensor}, terms);
      least = std::min(least, one.bytes());
      if (one.bytes() <= load.memory_bytes) out.push_back(one);
    }
  }
  if (!any)
    throw Error(Code::invalid_argument,
                cat("no mesh of ", load.ranks, " ranks", load.data || load.pipeline || load.tensor ? " as given" : "",
                    " shares ", shape.kv_heads, " kv heads, a feed-forward size of ", shape.feed_forward, " and ",
                    shape.layers, " layers"));
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
