#pragma once
// Random adapters of fixtures, and engines with room for them.
#include <cmath>
#include <random>

#include "core/generate/engine.h"
#include "tests/unit/support/models.h"

namespace plait::test {

inline AdapterCapacity capacity_of(int64_t slots, int64_t rank) {
  return {.slots = slots, .rank = rank, .all = true};
}

inline std::unique_ptr<Engine> engine_with_capacity(const Graph& graph, const AdapterCapacity& capacity,
                                                    CompileOptions compile,
                                                    const EngineOptions& options = small_engine()) {
  compile.adapters = capacity;
  return make_engine(graph, compile, options);
}

/// Of about `share` of the Linears that the decoder adapts, one at least, large enough to change every token.
inline AdapterWeights random_adapter(const Decoder& decoder, int64_t rank, uint32_t seed, double share = 1) {
  std::mt19937 random(seed);
  auto matrix = [&](int64_t rows, int64_t columns, double deviation) {
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    Tensor out(DType::f32, {rows, columns});
    for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = normal(random);
    return out;
  };
  AdapterWeights out{.rank = rank, .alpha = 1.5 * static_cast<double>(rank)};
  for (const AdaptedLinear& one : decoder.adapted) {
    const bool taken = out.modules.empty() || std::uniform_real_distribution(0.0, 1.0)(random) < share;
    if (!taken) continue;
    out.modules[one.module] = {matrix(rank, one.k, 1 / std::sqrt(static_cast<double>(one.k))),
                               matrix(one.n, rank, 0.3 / std::sqrt(static_cast<double>(rank)))};
  }
  return out;
}

/// A prefix, large enough to change every token.
inline AdapterWeights random_prefix(const Decoder& decoder, int64_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  AdapterWeights out;
  out.prefix_shape = prefix_shape(decoder);
  out.prefix = Tensor(DType::f32, out.prefix_shape.dims(tokens));
  for (int64_t i = 0; i < out.prefix.elements(); ++i) out.prefix.as<float>()[i] = normal(random);
  return out;
}

/// Room for these modules and no others.
inline AdapterCapacity capacity_for_one(const AdapterWeights& adapter) {
  if (adapter.prefix_tokens()) return {};  // it is in the cache
  AdapterCapacity out{.slots = 1, .rank = adapter.rank};
  for (const auto& [module, pair] : adapter.modules) out.modules.push_back(module);
  return out;
}

}  // namespace plait::test
