#pragma once
// A scheduler's options and counters.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>

#include "core/generate/engine.h"
#include "core/text/tokenizer.h"
#include "serving/histogram.h"
#include "serving/masks.h"

namespace plait {

struct SchedulerOptions {
  int64_t queue = 256;                      ///< max waiting requests, then Error(overloaded)
  int64_t running = 64;                     ///< max samples per step
  int64_t queue_tokens = 0;                 ///< max prompt tokens of waiting requests, likewise; 0: no limit
  std::chrono::milliseconds queue_wait{0};  ///< longest expected wait of a request, likewise; 0: no limit
  /// How many later requests may start before a waiting one, because of their priority or because it does not fit yet; then it is next.
  int64_t overtakes = 32;
  std::chrono::milliseconds step_goal{
      0};  ///< of a step in which samples decode: bounds its tokens of prompts; 0: none
};

struct SchedulerStats {
  int64_t running = 0, waiting = 0, finished = 0, preempted = 0, steps = 0;
  int64_t waiting_tokens = 0;         ///< of the prompts that wait
  double expected_wait_s = 0;         ///< of a request that is submitted now
  double step_s = 0, sampling_s = 0;  ///< of all steps, to their logits; choosing tokens from these on the host
  EngineStats engine;
  MaskStats masks;
  SchedulerHistograms histograms;
};

/// A tokenizer that may still be loading; not valid(): no tokenizer.
using TokenizerFuture = std::shared_future<std::shared_ptr<const Tokenizer>>;

}  // namespace plait
