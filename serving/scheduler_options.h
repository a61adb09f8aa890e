#pragma once
// A scheduler's options and counters.
#include <cstdint>
#include <future>
#include <memory>

#include "core/generate/engine.h"
#include "core/text/tokenizer.h"
#include "serving/masks.h"

namespace plait {

struct SchedulerOptions {
  int64_t queue = 256;   ///< max waiting requests, then Error(overloaded)
  int64_t running = 64;  ///< max samples per step
};

struct SchedulerStats {
  int64_t running = 0, waiting = 0, finished = 0, preempted = 0, steps = 0;
  EngineStats engine;
  MaskStats masks;
};

/// A tokenizer that may still be loading; not valid(): no tokenizer.
using TokenizerFuture = std::shared_future<std::shared_ptr<const Tokenizer>>;

}  // namespace plait
