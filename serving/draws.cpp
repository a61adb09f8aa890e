#include "serving/draws.h"

#include "core/base/thread_pool.h"

namespace plait {
namespace {

void make_draw(Draw& draw) {
  const RequestOptions& options = draw.job->options;
  std::vector<float> own;
  if (draw.shared) own.assign(draw.logits.begin(), draw.logits.end());
  const std::span<float> logits = draw.shared ? std::span<float>(own) : draw.logits;
  try {
    draw.token =
        sample(logits, options.sampling, draw.job->prompt, draw.sample->output, banned_tokens(options, *draw.sample),
               draw.job->index_of(*draw.sample), draw.mask ? &*draw.mask : nullptr);
  } catch (const Error& error) {
    draw.error = error;
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

void make_draws(std::vector<Draw>& draws, ThreadPool* pool) {
  if (!pool || draws.size() < 2) {
    for (Draw& draw : draws) make_draw(draw);
    return;
  }
  pool->for_each(static_cast<int64_t>(draws.size()),
                 [&](int64_t item, int) { make_draw(draws[static_cast<size_t>(item)]); });
}

}  // namespace plait
