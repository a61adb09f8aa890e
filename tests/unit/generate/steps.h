#pragma once
// Steps of engines, of one sequence or of mixtures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/generate/engine.h"

namespace plait::test {

using AdapterHandle = std::shared_ptr<const Adapter>;

inline std::vector<int32_t> some_ids(size_t count, uint32_t seed = 31) {
  std::mt19937 random(seed);
  std::vector<int32_t> out(count);
  for (int32_t& id : out) id = static_cast<int32_t>(random() % 500) + 3;
  return out;
}

/// Appends ids to the sequence, `chunk` tokens a step; the logits of all of them.
inline std::vector<float> feed(Engine& engine, Sequence& sequence, std::span<const int32_t> ids, size_t chunk = 24) {
  std::vector<float> out;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const auto part = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    EXPECT_TRUE(engine.reserve(sequence, static_cast<int64_t>(part.size())));
    Feed one{&sequence, part, static_cast<int64_t>(part.size()), {}, {}};
    engine.step({&one, 1});
    out.insert(out.end(), one.logits.begin(), one.logits.end());
  }
  return out;
}
inline std::vector<float> logits(Engine& engine, std::span<const int32_t> ids, AdapterHandle adapter = nullptr,
                                 size_t chunk = 24) {
  auto sequence = engine.open({}, 0, std::move(adapter));
  return feed(engine, *sequence, ids, chunk);
}

inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 1e-30, error = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max<double>(largest, std::fabs(b[i]));
    error = std::max<double>(error, std::fabs(double{a[i]} - double{b[i]}));
  }
  return error / largest;
}

/// The prompts in steps of random mixtures, by sequence.
inline std::vector<std::vector<float>> together(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                                const std::vector<AdapterHandle>& adapters, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const AdapterHandle& adapter : adapters) sequences.push_back(engine.open({}, 0, adapter));
  std::vector<std::vector<float>> out(prompts.size());
  for (bool more = true; more;) {
    std::vector<Feed> feeds;
    std::vector<size_t> whose;
    auto left = engine.options().step_tokens;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto begin = static_cast<size_t>(sequences[i]->length());
      const auto most = std::min<int64_t>(left, static_cast<int64_t>(prompts[i].size() - begin));
      const int64_t count = most > 0 ? static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)) : 0;
      if (!count) continue;
      left -= count;
      EXPECT_TRUE(engine.reserve(*sequences[i], count));
      feeds.push_back(
          {sequences[i].get(), std::span(prompts[i]).subspan(begin, static_cast<size_t>(count)), count, {}, {}});
      whose.push_back(i);
    }
    if (!feeds.empty()) engine.step(feeds);
    for (size_t k = 0; k < feeds.size(); ++k)
      out[whose[k]].insert(out[whose[k]].end(), feeds[k].logits.begin(), feeds[k].logits.end());
    more = false;
    for (size_t i = 0; i < prompts.size(); ++i)
      more = more || static_cast<size_t>(sequences[i]->length()) < prompts[i].size();
  }
  return out;
}

}  // namespace plait::test
