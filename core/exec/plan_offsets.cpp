#include <algorithm>
#include <numeric>

#include "core/exec/program.h"

namespace plait {

int64_t plan_offsets(std::span<const int64_t> sizes, std::span<const int32_t> born, std::span<const int32_t> dies,
                     std::span<int64_t> offsets) {
  constexpr int64_t alignment = 64;
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  auto padded = [&](size_t i) { return (sizes[i] + alignment - 1) / alignment * alignment; };

  std::vector<size_t> placed;  // by ascending offset
  int64_t total = 0;
  for (size_t i : order) {
    int64_t best = -1, best_gap = 0, front = 0;
    for (size_t other : placed) {
      if (dies[other] < born[i] || dies[i] < born[other]) continue;
      int64_t gap = offsets[other] - front;
      if (gap >= padded(i) && (best < 0 || gap < best_gap)) best = front, best_gap = gap;
      front = std::max(front, offsets[other] + padded(other));
    }
    offsets[i] = best >= 0 ? best : front;
    total = std::max(total, offsets[i] + padded(i));
    auto place = std::upper_bound(placed.begin(), placed.end(), i,
                                  [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    placed.insert(place, i);
  }
  return total;
}

int64_t planned_slot_bytes(const Program& program, SlotPool pool) {
  std::vector<int64_t> bounds;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) bounds.push_back(program.symbols[id].bound);
  int64_t sum = 0;
  for (const Slot& slot : program.slots) {
    if (slot.pool != pool) continue;
    std::vector<int64_t> dims;
    for (const Dim& dim : slot.dims) {
      for (SymbolId id : dim.symbols())
        if (bounds[static_cast<size_t>(id)] <= 0) return 0;
      dims.push_back(dim.evaluate(bounds));
    }
    const int bits = dtype_bits(slot.dtype);
    sum += (packed_bytes(checked_elements(dims, bits), bits) + 63) / 64 * 64;
  }
  return sum;
}

}  // namespace plait
