#include "core/generate/device_needs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/planned_memory.h"
#include "core/exec/store_keys.h"
#include "core/generate/cache_capacity.h"

namespace plait {
namespace {

Shape shape_of(const StoreEntry& entry, std::span<const int64_t> sizes) {
  Shape out;
  for (const Dim& dim : entry.dims) out.push_back(dim.evaluate(sizes));
  return out;
}

int64_t entry_bytes(const Device& device, const StoreEntry& entry, const Shape& shape) {
  return device.array_bytes(entry.layout ? entry.layout->name : std::string_view(), entry.dtype, shape);
}

/// Calls visit(entry) for each array: a table that is also a head has two entries.
void each_array(const Program& program, FunctionRef<void(const StoreEntry&)> visit) {
  std::set<std::string_view> seen;
  for (const StoreEntry& entry : program.entries)
    if (seen.insert(entry.key).second) visit(entry);
}

bool is_of_pool(std::string_view key, int64_t pool) {
  return std::any_of(std::begin(store_keys::cache_halves), std::end(store_keys::cache_halves),
                     [&](auto half) { return key.starts_with(store_keys::cache_pool(half, pool)); });
}

/// Of a matrix of floats in blocks of 32 numbers: the codes, and a scale that the device keeps in 32 bits.
int64_t int4_bytes(const StoreEntry& entry, const Shape& shape, int64_t bytes) {
  constexpr int64_t block = 32, block_bytes = block / 2 + 4;
  const bool floats = entry.dtype == DType::f32 || entry.dtype == DType::f16 || entry.dtype == DType::bf16;
  if (!floats || shape.rank() != 2 || shape[0] < block || shape[1] < block) return bytes;
  return std::min(bytes, shape.elements() / block * block_bytes);
}

}  // namespace

std::vector<int64_t> sizes_of(const Program& program, const CacheCapacity& capacity) {
  std::vector<int64_t> out = bounds_of(program);
  const auto set = [&](std::string_view name, int64_t value) {
    if (const auto id = program.symbols.find(name)) out[static_cast<size_t>(*id)] = value;
  };
  for (size_t pool = 0; pool < capacity.pages.size(); ++pool) set(cat("p.", pool), capacity.pages[pool]);
  if (capacity.states()) set("u", capacity.states());
  return out;
}

RankBytes bytes_of(const Device& device, const Program& program, std::span<const int64_t> sizes) {
  RankBytes out{.arena = program.arena_bytes};
  each_array(program, [&](const StoreEntry& entry) {
    int64_t& sum = entry.source ? out.weights : store_keys::is_adapter_slots(entry.key) ? out.adapters : out.cache;
    sum += entry_bytes(device, entry, shape_of(entry, sizes));
  });
  return out;
}

int64_t RankNeeds::cache_bytes(const CacheCapacity& capacity) const {
  int64_t out = capacity.states() * state_bytes;
  for (size_t pool = 0; pool < page_bytes.size(); ++pool) out += capacity.pages[pool] * page_bytes[pool];
  return out;
}

int64_t RankNeeds::workspace_bytes(int64_t pages) const {
  size_t at = 0;
  while (at + 1 < workspace.size() && int64_t{1} << at < pages) ++at;
  return workspace.empty() ? 0 : workspace[at];
}

namespace {

/// By the width of page tables, as RankNeeds has it. `sizes`: of the program's other symbols.
std::vector<int64_t> workspace_by_width(const RaggedModel& model, int64_t widest, std::vector<int64_t> sizes,
                                        int threads) {
  const Program& program = *model.program;
  const int64_t messages = model.stages.count() > 1 ? planned_slot_bytes(program, SlotPool::action) : 0;
  const auto width = program.symbols.find("m");
  std::vector<int64_t> out;
  for (int64_t pages = 1;; pages *= 2) {
    if (width) sizes[static_cast<size_t>(*width)] = std::min(pages, widest);
    out.push_back(planned_memory(program, sizes, threads).all() + messages);
    if (!width || pages >= widest) return out;
  }
}

}  // namespace

RankNeeds needs_of(Device& device, const RaggedModel& model, const EngineOptions& options, int threads) {
  const std::optional<DeviceMemoryInfo> memory = device.memory();
  if (!memory) return {};
  const Program& program = *model.program;
  RankNeeds out{
      .known = true, .free = memory->free, .total = memory->total, .device = memory->id, .name = memory->name};
  // One page and one slot of each: what a row of the arrays takes.
  std::vector<int64_t> sizes = sizes_of(program, {std::vector<int64_t>(model.decoder.pools.size(), 1), 1, 0});
  out.page_bytes.resize(model.decoder.pools.size());
  each_array(program, [&](const StoreEntry& entry) {
    const Shape shape = shape_of(entry, sizes);
    const int64_t bytes = entry_bytes(device, entry, shape);
    if (entry.source) {
      out.weights += bytes;
      out.int4_weights += int4_bytes(entry, shape, bytes);
    } else if (store_keys::is_adapter_slots(entry.key)) {
      out.adapters += bytes;
    } else if (store_keys::is_cache_states(entry.key)) {
      out.state_bytes += bytes;
    } else {
      for (size_t pool = 0; pool < out.page_bytes.size(); ++pool)
        if (is_of_pool(entry.key, static_cast<int64_t>(pool))) out.page_bytes[pool] += bytes;
    }
  });
  out.workspace = workspace_by_width(model, most_pages(model.decoder, options), std::move(sizes), threads);
  return out;
}

namespace {

/// The search for a cache that fits, and what is told where none does.
class DeviceFit {
 public:
  DeviceFit(const Decoder& decoder, const Mesh& mesh, const EngineOptions& options, std::span<const RankNeeds> ranks)
      : decoder_(decoder), mesh_(mesh), options_(options), usable_(usable_capacity(decoder, options)) {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].known) devices_[ranks[rank].device].push_back({static_cast<int64_t>(rank), &ranks[rank]});
  }

  bool known() const { return !devices_.empty(); }

  bool holds(const CacheCapacity& capacity, double share, bool int4 = false) const {
    return std::all_of(devices_.begin(), devices_.end(), [&](const auto& one) {
      return sum(one.second, capacity, int4).all() <= limit(one.second, share);
    });
  }

  /// The largest that fits. `usable`: no more than can be used. `bytes`: becomes the size of the cache that has it.
  std::optional<CacheCapacity> largest(double share, bool usable, int64_t* bytes = nullptr) const {
    std::optional<CacheCapacity> best;
    int64_t low = 0, high = most_bytes;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      const std::optional<CacheCapacity> one = capacity_of(middle, usable);
      if (one && !holds(*one, share)) {
        high = middle;
        continue;
      }
      low = middle;
      if (one) best = one;
    }
    if (bytes) *bytes = low;
    return best;
  }

  /// The smallest cache that there can be.
  CacheCapacity smallest() const {
    int64_t low = 0, high = most_bytes;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (capacity_of(middle, false) ? high : low) = middle;
    }
    return capacity_for(decoder_, mesh_, with_cache(high));
  }

  [[noreturn]] void refuse(const CacheCapacity& capacity, double share) const {
    const auto lack = [&](const Ranks& ranks) { return sum(ranks, capacity).all() - limit(ranks, share); };
    const Ranks& ranks = std::max_element(devices_.begin(), devices_.end(), [&](const auto& a, const auto& b) {
                           return lack(a.second) < lack(b.second);
                         })->second;
    const RankNeeds& first = *ranks[0].needs;
    const Sum need = sum(ranks, capacity);
    std::vector<std::string> parts{cat(human_bytes(need.weights), " of weights")};
    if (need.adapters) parts.push_back(cat(human_bytes(need.adapters), " of adapters"));
    parts.push_back(cat(human_bytes(need.cache), " of keys and values"));
    throw Error(
        Code::out_of_memory,
        cat(first.name, " has ", told(free_of(ranks)), " free of ", human_bytes(first.total),
            share < 1 ? cat(", of which gpu_memory_utilization leaves ", human_bytes(limit(ranks, share))) : "", "; ",
            who(ranks), " ", told(need.all()), ": ", join(parts, ", "), " and ", human_bytes(need.workspace),
            " of workspace"),
        hint(ranks, capacity, share));
  }

 private:
  static constexpr int64_t most_bytes = int64_t{1} << 53;  // exact as double
  struct Rank {
    int64_t rank;
    const RankNeeds* needs;
  };
  using Ranks = std::vector<Rank>;  ///< of a device
  struct Sum {
    int64_t weights = 0, adapters = 0, cache = 0, workspace = 0;
    int64_t all() const { return weights + adapters + cache + workspace; }
  };

  Sum sum(const Ranks& ranks, const CacheCapacity& capacity, bool int4 = false) const {
    Sum out;
    for (const auto& [rank, needs] : ranks) {
      out.weights += int4 ? needs->int4_weights : needs->weights;
      out.adapters += needs->adapters;
      out.cache += needs->cache_bytes(capacity);
      out.workspace += needs->workspace_bytes(width(capacity));
    }
    return out;
  }
  /// Pages of the longest sequence that the cache holds: each takes one of every group without a window. Where nothing limits sequences,
  /// as long as the cache is.
  int64_t width(const CacheCapacity& capacity) const {
    int64_t out = most_pages(decoder_, options_);
    std::vector<int64_t> whole(capacity.pages.size());
    for (const PageGroup& group : decoder_.groups) whole[static_cast<size_t>(group.pool)] += group.window == 0;
    const bool limited = decoder_.context || options_.context ||
                         std::any_of(whole.begin(), whole.end(), [](int64_t one) { return one > 0; });
    for (size_t pool = 0; pool < whole.size(); ++pool)
      if (whole[pool] || !limited) out = std::min(out, capacity.pages[pool] / std::max<int64_t>(whole[pool], 1));
    return out;
  }
  /// As the rank saw it that measured last.
  static int64_t free_of(const Ranks& ranks) {
    return std::min_element(ranks.begin(), ranks.end(),
                            [](const Rank& a, const Rank& b) { return a.needs->free < b.needs->free; })
        ->needs->free;
  }
  static int64_t limit(const Ranks& ranks, double share) {
    return static_cast<int64_t>(share * static_cast<double>(free_of(ranks)));
  }

  EngineOptions with_cache(int64_t bytes) const {
    EngineOptions out = options_;
    out.cache_bytes = bytes;
    return out;
  }
  /// None if the bytes are too few.
  std::optional<CacheCapacity> capacity_of(int64_t bytes, bool usable) const {
    try {
      CacheCapacity out = capacity_for(decoder_, mesh_, with_cache(bytes));
      if (!usable) return out;
      for (size_t pool = 0; pool < out.pages.size(); ++pool)
        out.pages[pool] = std::min(out.pages[pool], usable_.pages[pool]);
      out.held_states = std::min(out.held_states, usable_.held_states);
      out.spare_states = std::min(out.spare_states, usable_.spare_states);
      return out;
    } catch (const Error& error) {
      if (error.code() != Code::out_of_memory) throw;
      return std::nullopt;
    }
  }

  static std::string told(int64_t bytes) { return cat(human_bytes(bytes), " (", bytes, " bytes)"); }
  std::string who(const Ranks& ranks) const {
    if (mesh_.ranks() == 1) return "the model needs";
    if (ranks.size() == 1) return cat("rank ", ranks[0].rank, " of the model needs");
    std::vector<std::string> names;
    for (const Rank& one : ranks) names.push_back(cat(one.rank));
    return cat("its ranks ", join(names, ", "), " need");
  }

  /// What would fit.
  std::string hint(const Ranks& ranks, const CacheCapacity& capacity, double share) const {
    std::vector<std::string> out;
    constexpr int64_t mega = 1 << 20;
    if (int64_t bytes = 0; largest(1, false, &bytes))
      out.push_back(bytes < 16 * mega ? cat("cache_bytes=", bytes, " fits")
                                      : cat("cache_bytes=", bytes / mega, "M fits"));
    if (holds(capacity, share, true))
      out.push_back(cat("weights of 4 bits fit (plait quantize): ", human_bytes(sum(ranks, capacity, true).weights)));
    const Sum need = sum(ranks, capacity);
    for (int64_t times = 2; times <= 8; times *= 2) {
      const int64_t cut = (need.all() - need.workspace) / times + need.workspace;
      if (cut > limit(ranks, share)) continue;
      out.push_back(cat("tensor=", times * mesh_.blocks(mesh_.parts("tensor")), " fits, with about ",
                        human_bytes(cut), " on each device"));
      break;
    }
    if (ranks.size() > 1) out.emplace_back("a device for each rank has more");
    if (out.empty())
      out.emplace_back("shorter steps (step_tokens, running) need less, and more devices or larger ones have more");
    return join(out, "; ");
  }

  const Decoder& decoder_;
  const Mesh& mesh_;
  const EngineOptions& options_;
  const CacheCapacity usable_;
  std::map<std::string, Ranks> devices_;
};

}  // namespace

CacheCapacity fitting_capacity(const Decoder& decoder, const Mesh& mesh, const EngineOptions& options,
                               std::span<const RankNeeds> ranks) {
  const DeviceFit fit(decoder, mesh, options, ranks);
  const bool chosen = !options.cache_bytes && fit.known();
  if (chosen) {
    if (const auto found = fit.largest(options.device_share, true)) return *found;
    fit.refuse(fit.smallest(), options.device_share);
  }
  EngineOptions given = options;
  if (!given.cache_bytes) given.cache_bytes = EngineOptions::usual_cache_bytes;
  const CacheCapacity capacity = capacity_for(decoder, mesh, given);
  if (!fit.holds(capacity, 1)) fit.refuse(capacity, 1);
  return capacity;
}

}  // namespace plait
