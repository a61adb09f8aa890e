#pragma once
// When a request that is submitted now would begin: from what the running ones and those ahead of it still need.
#include <algorithm>
#include <cstdint>
#include <span>

namespace plait {

/// What a request still needs.
struct WorkLeft {
  int64_t samples = 1;       ///< places that it takes among those that run
  double prompt_tokens = 0;  ///< not computed yet
  double new_tokens = 0;     ///< expected, of its longest sample
};

/// Learns from requests how long answers are, what is found in the cache, and how long a token takes. Not thread-safe.
class Forecast {
 public:
  /// A request began: so many tokens of its prompt were cached.
  void began(int64_t prompt, int64_t cached);
  /// A request ended after so many new tokens of at most `most`, so many seconds after its first.
  void ended(int64_t tokens, int64_t most, double seconds);
  void set_prompt_token(double seconds) { prompt_token_s_ = seconds; }

  /// Tokens of a prompt that is not begun which will not be in the cache.
  double uncached(int64_t prompt) const { return static_cast<double>(prompt) * uncached_; }
  /// Seconds that a prompt which is not begun takes.
  double prompt_seconds(int64_t prompt) const { return uncached(prompt) * prompt_token_s_; }
  /// Tokens that a sample of at most `most` will still make after `made`: to its limit, as often as answers reach it, and otherwise to
  /// the length of those that ended earlier.
  double left(int64_t most, int64_t made) const;

  /// Seconds until the engine begins the prompt of a request of so many samples: it needs places among `places`, which come when
  /// earlier ones end, and prompts are computed one after another. 0 while nothing is known.
  double wait(std::span<const WorkLeft> running, std::span<const WorkLeft> ahead, int64_t samples,
              int64_t places) const;

 private:
  double prompt_token_s_ = 0,
         new_token_s_ = 0;               ///< 0: not known. A new token's includes prompts computed between tokens
  double uncached_ = 1;                  ///< share of a prompt
  double early_ = 0, early_tokens_ = 0;  ///< share of the answers that end before their limit, and their length
};

}  // namespace plait
