// Elements and runs at indices, and arrays of repeated elements.
#include "kernels/cuda/kernels/indexing.h"

#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/offsets.h"

namespace plait::cuda {
namespace {

/// The index as one from 0 on; -1 if there is no such, which is reported.
PLAIT_DEVICE int64_t checked_index(const Indices& indices, int64_t i, int64_t size, const FaultReport& report) {
  const int64_t named = load_index(indices, i), index = named < 0 ? named + size : named;
  if (index >= 0 && index < size) return index;
  report_index(report, 1, named);
  return -1;
}

template <class Word, bool scatters>
PLAIT_DEVICE void elements(const ElementsOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const int64_t index = checked_index(o.indices, i, o.size, o.report);
  if (index < 0) return;
  const int64_t at = offsets(o.nest, i).of[0] + index * o.pitch;
  static_cast<Word*>(o.y)[scatters ? at : i] = static_cast<const Word*>(o.x)[scatters ? i : at];
}

template <class Word, bool scatters>
PLAIT_DEVICE void tuples(const TuplesOperands& o) {
  const int64_t i = element_of_thread(), tuple = i / o.inner;
  if (tuple >= o.batches * o.tuples) return;
  int64_t at = 0;
  for (int k = 0; k < o.depth; ++k) {
    const int64_t index = checked_index(o.indices, tuple * o.depth + k, o.sizes[k], o.report);
    if (index < 0) return;
    at = at * o.sizes[k] + index;
  }
  at = tuple / o.tuples * o.pitch + at * o.inner + i % o.inner;
  static_cast<Word*>(o.y)[scatters ? at : i] = static_cast<const Word*>(o.x)[scatters ? i : at];
}

template <class Word>
PLAIT_DEVICE void tile(const TileOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.count) return;
  int64_t rest = i, at = 0, step = 1;
  for (int dim = static_cast<int>(o.rank) - 1; dim >= 0; --dim) {
    at += rest % o.sizes[dim] % o.sizes_of_x[dim] * step;
    rest /= o.sizes[dim], step *= o.sizes_of_x[dim];
  }
  static_cast<Word*>(o.y)[i] = static_cast<const Word*>(o.x)[at];
}

template <class Word>
PLAIT_DEVICE void fill(const FillOperands& o) {
  const int64_t i = element_of_thread();
  if (i < o.count) static_cast<Word*>(o.y)[i] = static_cast<Word>(o.bits);
}

}  // namespace

PLAIT_KERNEL(gather_elements_1, map_threads, 4, (ElementsOperands o)) { elements<uint8_t, false>(o); }
PLAIT_KERNEL(gather_elements_2, map_threads, 4, (ElementsOperands o)) { elements<uint16_t, false>(o); }
PLAIT_KERNEL(gather_elements_4, map_threads, 4, (ElementsOperands o)) { elements<uint32_t, false>(o); }
PLAIT_KERNEL(gather_elements_8, map_threads, 4, (ElementsOperands o)) { elements<uint64_t, false>(o); }
PLAIT_KERNEL(scatter_elements_1, map_threads, 4, (ElementsOperands o)) { elements<uint8_t, true>(o); }
PLAIT_KERNEL(scatter_elements_2, map_threads, 4, (ElementsOperands o)) { elements<uint16_t, true>(o); }
PLAIT_KERNEL(scatter_elements_4, map_threads, 4, (ElementsOperands o)) { elements<uint32_t, true>(o); }
PLAIT_KERNEL(scatter_elements_8, map_threads, 4, (ElementsOperands o)) { elements<uint64_t, true>(o); }

PLAIT_KERNEL(gather_tuples_1, map_threads, 4, (TuplesOperands o)) { tuples<uint8_t, false>(o); }
PLAIT_KERNEL(gather_tuples_2, map_threads, 4, (TuplesOperands o)) { tuples<uint16_t, false>(o); }
PLAIT_KERNEL(gather_tuples_4, map_threads, 4, (TuplesOperands o)) { tuples<uint32_t, false>(o); }
PLAIT_KERNEL(gather_tuples_8, map_threads, 4, (TuplesOperands o)) { tuples<uint64_t, false>(o); }
PLAIT_KERNEL(scatter_tuples_1, map_threads, 4, (TuplesOperands o)) { tuples<uint8_t, true>(o); }
PLAIT_KERNEL(scatter_tuples_2, map_threads, 4, (TuplesOperands o)) { tuples<uint16_t, true>(o); }
PLAIT_KERNEL(scatter_tuples_4, map_threads, 4, (TuplesOperands o)) { tuples<uint32_t, true>(o); }
PLAIT_KERNEL(scatter_tuples_8, map_threads, 4, (TuplesOperands o)) { tuples<uint64_t, true>(o); }

PLAIT_KERNEL(tile_1, map_threads, 4, (TileOperands o)) { tile<uint8_t>(o); }
PLAIT_KERNEL(tile_2, map_threads, 4, (TileOperands o)) { tile<uint16_t>(o); }
PLAIT_KERNEL(tile_4, map_threads, 4, (TileOperands o)) { tile<uint32_t>(o); }
PLAIT_KERNEL(tile_8, map_threads, 4, (TileOperands o)) { tile<uint64_t>(o); }

PLAIT_KERNEL(fill_1, map_threads, 4, (FillOperands o)) { fill<uint8_t>(o); }
PLAIT_KERNEL(fill_2, map_threads, 4, (FillOperands o)) { fill<uint16_t>(o); }
PLAIT_KERNEL(fill_4, map_threads, 4, (FillOperands o)) { fill<uint32_t>(o); }
PLAIT_KERNEL(fill_8, map_threads, 4, (FillOperands o)) { fill<uint64_t>(o); }

}  // namespace plait::cuda
