#include "core/generate/cache_capacity.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

int64_t pages_of(int64_t tokens, const EngineOptions& options) {
  return (tokens + options.page_tokens - 1) / options.page_tokens;
}

/// Slots of tokens are i32.
int64_t most_slots(const EngineOptions& options) { return std::numeric_limits<int32_t>::max() / options.page_tokens; }

/// One replica's budget, and how many copies the ranks of a pipeline stage hold of data cut into `parts`.
struct Budget {
  Budget(const Mesh& mesh, const EngineOptions& options)
      : replicas(mesh.blocks(mesh.parts("data"))),
        ranks(mesh.ranks() / replicas / mesh.blocks(mesh.parts("pipeline"))),
        bytes(options.cache_bytes / replicas) {}
  int64_t held(int64_t size, int64_t parts) const { return size * ranks / parts; }

  int64_t replicas, ranks, bytes;
};

int64_t state_bytes(const Decoder& decoder, const Budget& budget) {
  int64_t out = 0;
  for (const StateShape& state : decoder.states) out += budget.held(state.bytes(), state.parts);
  return out;
}

/// State slots within the budget: one for each sequence of 256 tokens that fits, using at most half of the budget if
/// there are pages too; some of them are for what a step writes.
void reserve_states(const Decoder& decoder, const Budget& budget, const EngineOptions& options, int64_t page_set,
                    CacheCapacity& capacity) {
  const int64_t bytes = state_bytes(decoder, budget);
  if (bytes == 0) return;
  constexpr int64_t usual_length = 256;
  const int64_t pages = pages_of(usual_length, options);
  const int64_t most = (page_set ? budget.bytes / 2 : budget.bytes) / bytes;
  const int64_t slots = std::min<int64_t>(most, std::numeric_limits<int32_t>::max());
  if (slots < 2)
    throw Error(
        Code::out_of_memory,
        cat("a cache of ", human_bytes(budget.bytes), " does not hold the states of one sequence, which need ",
            human_bytes(bytes), ", twice in a step", page_set ? ", in half of it" : ""),
        "raise cache_bytes");
  const int64_t held = std::max<int64_t>(1, budget.bytes / (bytes + pages * page_set));
  capacity.held_states = std::min(held, std::max(slots / 2, slots - options.step_sequences));
  capacity.spare_states = std::min(capacity.held_states, options.step_sequences);
}

}  // namespace

/// Divides the budget among pools in proportion to their bytes per token.
CacheCapacity capacity_for(const Decoder& decoder, const Mesh& mesh, const EngineOptions& options) {
  const Budget budget(mesh, options);
  std::vector<int64_t> page_bytes, groups(decoder.pools.size());
  int64_t all = 0;
  for (const PageGroup& group : decoder.groups) ++groups[static_cast<size_t>(group.pool)];
  for (size_t pool = 0; pool < decoder.pools.size(); ++pool) {
    const PagePoolShape& shape = decoder.pools[pool];
    page_bytes.push_back(budget.held(shape.page_bytes(options.page_tokens, decoder.cache_dtype), shape.parts));
    all += page_bytes[pool] * groups[pool];
  }
  CacheCapacity capacity;
  reserve_states(decoder, budget, options, all, capacity);
  const int64_t left = budget.bytes - (capacity.held_states + capacity.spare_states) * state_bytes(decoder, budget);
  for (size_t pool = 0; pool < decoder.pools.size(); ++pool) {
    auto share = static_cast<int64_t>(
        static_cast<double>(left) * static_cast<double>(page_bytes[pool] * groups[pool]) / static_cast<double>(all));
    capacity.pages.push_back(share / page_bytes[pool]);
    if (capacity.pages.back() < groups[pool])
      throw Error(Code::out_of_memory,
                  cat("a cache of ", human_bytes(budget.bytes), budget.replicas > 1 ? ", of each replica," : "",
                      " does not hold one page of ", options.page_tokens, " tokens, which needs ", human_bytes(all)),
                  "raise cache_bytes");
    capacity.pages.back() = std::min(capacity.pages.back(), most_slots(options));
  }
  return capacity;
}

int64_t most_pages(const Decoder& decoder, const EngineOptions& options) {
  int64_t out = most_slots(options);
  for (const int64_t longest : {decoder.context, options.context})
    if (longest) out = std::min(out, pages_of(longest, options));
  return out;
}

/// Of a layer with a window a sequence uses the pages of the window and of what a step adds.
CacheCapacity usable_capacity(const Decoder& decoder, const EngineOptions& options) {
  const int64_t sequences = options.step_sequences, longest = most_pages(decoder, options),
                most = most_slots(options);
  CacheCapacity out;
  out.pages.resize(decoder.pools.size());
  for (const PageGroup& group : decoder.groups) {
    const int64_t seen = group.window ? pages_of(group.window + options.step_tokens, options) + 1 : longest;
    const int64_t own = std::min(seen, longest);
    int64_t& pages = out.pages[static_cast<size_t>(group.pool)];
    pages = own > most / sequences ? most : std::min(most, pages + own * sequences);
  }
  if (!decoder.states.empty()) out.held_states = out.spare_states = sequences;
  return out;
}

RaggedBounds bounds_for(const CacheCapacity& capacity, const EngineOptions& options) {
  RaggedBounds bounds;
  bounds.tokens = options.step_tokens;
  bounds.segments = options.step_sequences;
  bounds.rows = options.step_rows;
  bounds.page_tokens = options.page_tokens;
  bounds.pages = capacity.pages;
  bounds.states = capacity.states();
  return bounds;
}

}  // namespace plait
