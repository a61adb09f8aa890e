#include "serving/draws.h"

#include <limits>

#include "core/base/thread_pool.h"
#include "core/comm/report.h"

namespace plait {
namespace {

void make_draw(Draw& draw) {
  const RequestOptions& options = draw.job->options;
  try {
    std::vector<float> own;
    if (draw.shared) own.assign(draw.logits.begin(), draw.logits.end());
    const std::span<float> logits = draw.shared ? std::span<float>(own) : draw.logits;
    draw.token =
        sample(logits, options.sampling, draw.job->prompt, draw.sample->output, banned_tokens(options, *draw.sample),
               draw.job->index_of(*draw.sample), draw.mask ? &*draw.mask : nullptr);
  } catch (...) {
    draw.error = current_error();
  }
}

}  // namespace

std::vector<int32_t> banned_tokens(const RequestOptions& options, const Sample& sample) {
  std::vector<int32_t> out = options.suppressed;
  const auto add = [&](const std::vector<int32_t>& more) { out.insert(out.end(), more.begin(), more.end()); };
  if (sample.output.empty()) add(options.suppressed_first);
  if (static_cast<int64_t>(sample.output.size()) < options.min_tokens) add(options.stop_tokens);
  return out;
}

std::vector<SampledToken> scored_tokens(std::span<const int32_t> ids, std::span<const float> rows, size_t vocabulary,
                                        int32_t top, ThreadPool* pool) {
  std::vector<SampledToken> out(ids.size());
  const auto score = [&](int64_t item, int) {
    const auto i = static_cast<size_t>(item);
    out[i].id = ids[i];
    out[i].logprob = std::numeric_limits<float>::quiet_NaN();
    if (ids[i] >= 0) add_logprobs(rows.subspan(i * vocabulary, vocabulary), top, out[i]);
  };
  const auto count = static_cast<int64_t>(ids.size());
  if (pool) pool->for_each(count, score);
  for (int64_t i = 0; i < count && !pool; ++i) score(i, 0);
  return out;
}

void make_draws(std::vector<Draw>& draws, ThreadPool* pool) {
  if (!pool || draws.size() < 2) {
    for (Draw& draw : draws) make_draw(draw);
    return;
  }
  pool->for_each(static_cast<int64_t>(draws.size()),
                 [&](int64_t item, int) { make_draw(draws[static_cast<size_t>(item)]); });
}

}  // namespace plait
