#pragma once
// Keys of Store arrays that several components use: one function per kind.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"

namespace plait::store_keys {

// ---- generation ----

enum class CacheHalf : uint8_t { keys, values };
constexpr CacheHalf cache_halves[] = {CacheHalf::keys, CacheHalf::values};

/// The common prefix of the pages of all layers of a pool.
inline std::string cache_pool(CacheHalf half, int64_t pool) {
  return cat(half == CacheHalf::keys ? "cache.k." : "cache.v.", pool, ".");
}
/// Pages of one layer; `layer` counts within the pool.
inline std::string cache_pages(CacheHalf half, int64_t pool, int64_t layer) {
  return cat(cache_pool(half, pool), layer);
}
/// State slots of a recurrent layer.
inline std::string cache_states(int64_t index) { return cat("cache.s.", index); }
/// Of pages and of states.
inline bool is_cache(std::string_view key) { return key.starts_with("cache."); }
inline bool is_cache_states(std::string_view key) { return key.starts_with("cache.s."); }

enum class AdapterHalf : uint8_t { a, b };
/// Adapter slots of an adaptable Linear.
inline std::string adapter_slots(AdapterHalf half, int64_t linear) {
  return cat(half == AdapterHalf::a ? "adapter.a." : "adapter.b.", linear);
}
inline bool is_adapter_slots(std::string_view key) { return key.starts_with("adapter."); }

// ---- training ----

/// A trained weight, by tensor name; prefix of the other keys.
inline std::string parameter(std::string_view name) { return cat("train.", name); }
/// The sum of its gradients; on several ranks, of this rank's summands.
inline std::string gradient(std::string_view parameter) { return cat(parameter, ".gradient"); }
/// The sum over all ranks, if a separate array.
inline std::string reduced_gradient(std::string_view parameter) { return cat(parameter, ".reduced"); }
/// Both of them.
inline std::vector<std::string> gradient_keys(std::string_view parameter) {
  return {gradient(parameter), reduced_gradient(parameter)};
}
inline bool is_reduced_gradient(std::string_view key) { return key.ends_with(".reduced"); }
/// The parameter of a gradient key; "" for other keys.
inline std::string_view parameter_of_gradient(std::string_view key) {
  constexpr std::string_view suffix = ".gradient";
  return key.ends_with(suffix) ? key.substr(0, key.size() - suffix.size()) : std::string_view();
}

// ---- constants that were computed while compiling ----

/// The label (`lower`) of a program's computed constants; programs that share a Store with different constants need
/// different labels. `part`: set of ranks with the same constants; `stage`: of a pipeline.
inline std::string constants_label(std::string_view program, int64_t part, int64_t stage = 0) {
  return cat(program, ".", stage, ".", part);
}

}  // namespace plait::store_keys
