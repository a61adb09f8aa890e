// ReduceSum, ReduceSumSquare and ReduceMean of f32 over any axes. The loops are in reduce_loops.cpp.
#include <cstring>

#include "kernels/cpu/rows/indices.h"
#include "kernels/cpu/rows/reduce_loops.h"
#include "kernels/cpu/rows/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct ReduceState : KernelState {
  bool noop = false;   ///< without axes reduces none instead of all
  int64_t shards = 1;  ///< number of parts of a mean
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<ReduceState>();
  state->noop = node.attributes.integer("noop_with_empty_axes", 0) != 0;
  state->shards = node.attributes.integer("shards", 1);
  return state;
}

bool accepts(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 &&
         (node.inputs.size() < 2 || node.inputs[1].dtype == DType::none || is_index(node.inputs[1].dtype));
}

constexpr int64_t chunk = 4096;     ///< elements summed in f32; sums of chunks are f64
constexpr int64_t most_parts = 64;  ///< of a sum, for several threads

/// Sizes and steps of some axes, the last one innermost.
struct Axes {
  Shape sizes, steps;

  int64_t count() const { return sizes.elements(); }
  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (int i = sizes.rank() - 1; i >= 0; --i) at += index % sizes[i] * steps[i], index /= sizes[i];
    return at;
  }
};

/// An array as lines of its innermost axes, which are all kept or all reduced: `kept` and `reduced` are the other
/// axes.
struct Lines {
  Axes kept, reduced;
  int64_t length = 1;
  bool inner_reduced = true;

  Lines(const Shape& shape, const bool* is_reduced) {
    int i = shape.rank() - 1;
    while (i >= 0 && shape[i] == 1) --i;
    if (i >= 0) inner_reduced = is_reduced[i];
    for (; i >= 0 && (shape[i] == 1 || is_reduced[i] == inner_reduced); --i) length *= shape[i];
    const int outer = i + 1;
    for (int axis = 0; axis < outer; ++axis) {
      Axes& of = is_reduced[axis] ? reduced : kept;
      of.sizes.push_back(shape[axis]);
      of.steps.push_back(shape.elements(axis + 1, shape.rank()));
    }
  }
};

int64_t scratch_bytes(const KernelState*, std::span<const TensorView>, std::span<const TensorView>, int) {
  return most_parts * static_cast<int64_t>(sizeof(double));
}

/// Lines whose elements belong to one result: chunks are summed in parts that depend only on the sizes.
template <Isa isa, bool squares>
void reduce_lines(const KernelCall& call, const Lines& of) {
  const float* x = call.inputs[0].as<float>();
  float* y = call.outputs[0].as<float>();
  const int64_t results = of.kept.count(), of_line = (of.length + chunk - 1) / chunk,
                chunks = of.reduced.count() * of_line, parts = std::clamp<int64_t>(chunks / 16, 1, most_parts);
  auto part_of = [&](int64_t result, int64_t part) {
    const float* from = x + of.kept.offset(result);
    double sum = 0;
    for (int64_t i = chunks * part / parts; i < chunks * (part + 1) / parts; ++i) {
      const int64_t begin = i % of_line * chunk;
      sum += reduce_loops(isa).total[squares](from + of.reduced.offset(i / of_line) + begin,
                                              std::min(chunk, of.length - begin));
    }
    return sum;
  };
  if (results >= call.pool.size() || parts == 1) {
    share_ranges(call.pool, results, 16, chunks * std::min(chunk, of.length), [&](int64_t begin, int64_t end, int) {
      for (int64_t result = begin; result < end; ++result) {
        double sum = 0;
        for (int64_t part = 0; part < parts; ++part) sum += part_of(result, part);
        y[result] = static_cast<float>(sum);
      }
    });
    return;
  }
  auto* sums = reinterpret_cast<double*>(call.scratch.data());
  for (int64_t result = 0; result < results; ++result) {
    share(call.pool, parts, chunks * chunk, [&](int64_t part, int) { sums[part] = part_of(result, part); });
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += sums[part];
    y[result] = static_cast<float>(sum);
  }
}

/// Lines that are added elementwise, in order; threads split the columns.
template <Isa isa, bool squares>
void add_lines(const KernelCall& call, const Lines& of) {
  const float* x = call.inputs[0].as<float>();
  float* y = call.outputs[0].as<float>();
  const int64_t lines = of.reduced.count();
  share_ranges(call.pool, call.outputs[0].elements(), 16, lines, [&](int64_t begin, int64_t end, int) {
    std::memset(y + begin, 0, static_cast<size_t>(4 * (end - begin)));
    for (int64_t at = begin; at < end;) {
      const int64_t column = at % of.length, n = std::min(of.length - column, end - at);
      const float* from = x + of.kept.offset(at / of.length) + column;
      for (int64_t i = 0; i < lines; ++i) reduce_loops(isa).add_to[squares](from + of.reduced.offset(i), y + at, n);
      at += n;
    }
  });
}

/// x, axes? -> the sums; their shape shows whether reduced axes are kept as 1.
template <Isa isa, bool squares, bool mean = false>
KernelStatus run_reduce(const KernelCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const int rank = shape.rank();
  const bool named = call.inputs.size() > 1 && call.inputs[1].present() && call.inputs[1].elements() > 0;
  bool is_reduced[Shape::max_rank] = {};
  if (!named) std::fill_n(is_reduced, rank, !static_cast<const ReduceState*>(call.state)->noop);
  for (int64_t i = 0; named && i < call.inputs[1].elements(); ++i) {
    const int64_t axis = read_index(call.inputs[1], i);
    if (axis < -rank || axis >= rank) return {KernelCode::index_out_of_range, 1, axis};
    is_reduced[axis < 0 ? axis + rank : axis] = true;
  }
  if (call.outputs[0].elements() == 0) return {};
  const Lines lines(shape, is_reduced);
  if (lines.inner_reduced) reduce_lines<isa, squares>(call, lines);
  else add_lines<isa, squares>(call, lines);
  if (mean) {
    const int64_t results = call.outputs[0].elements();
    const auto count = static_cast<float>(call.inputs[0].elements() / results *
                                          static_cast<const ReduceState*>(call.state)->shards);
    for (int64_t i = 0; i < results; ++i) call.outputs[0].as<float>()[i] /= count;
  }
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  auto add = [&](const char* op, KernelStatus (*run)(const KernelCall&)) {
    add_kernel(table, isa,
               {.op = op,
                .dtypes = "f32",
                .accepts = accepts,
                .prepare = prepare,
                .scratch_bytes = scratch_bytes,
                .run = run});
  };
  add("ReduceSum", run_reduce<isa, false>);
  add("ReduceSumSquare", run_reduce<isa, true>);
  add("ReduceMean", run_reduce<isa, false, true>);
}

}  // namespace

void add_reduce(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
