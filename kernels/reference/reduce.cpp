// Reductions over any set of axes: the Reduce* family, ArgMax and ArgMin.
#include <algorithm>
#include <limits>
#include <span>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct ReduceAttributes {
  explicit ReduceAttributes(const NodeInfo& node)
      : noop(node.attributes.integer("noop_with_empty_axes", 0) != 0), shards(node.attributes.integer("shards", 1)) {}
  bool noop;       ///< without axes reduces none instead of all; `keepdims` shows only in the output's shape
  int64_t shards;  ///< number of parts of a mean
};

/// Calls f(values, i) with the elements that output element i gathers, in row-major order.
template <class N, class F>
KernelStatus reduce_with(const KernelCall& call, const ReduceAttributes& attributes, F f) {
  const TensorView &in = call.inputs[0], axes_operand = input(call, 1);
  std::vector<int64_t> axes;
  if (axes_operand.present()) axes = to_ints(axes_operand);
  int rank = in.shape.rank();
  std::vector<bool> reduced(static_cast<size_t>(rank), axes.empty() && !attributes.noop);
  for (int64_t axis : axes) {
    if (axis < -rank || axis >= rank) return {KernelCode::index_out_of_range, 1, axis};
    reduced[static_cast<size_t>(positive_axis(axis, rank))] = true;
  }
  Shape own = strides_of(in.shape), kept_sizes, kept_strides, sizes, strides;
  for (int i = 0; i < rank; ++i) {
    (reduced[static_cast<size_t>(i)] ? sizes : kept_sizes).push_back(in.shape[i]);
    (reduced[static_cast<size_t>(i)] ? strides : kept_strides).push_back(own[i]);
  }
  std::vector<int64_t> starts = offsets_of(kept_sizes, kept_strides), offsets = offsets_of(sizes, strides);
  Loaded<N> data(in);
  std::vector<N> values(offsets.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    for (size_t j = 0; j < offsets.size(); ++j) values[j] = data[starts[i] + offsets[j]];
    f(std::span<const N>(values), static_cast<int64_t>(i));
  }
  return {};
}

/// Op::apply(span) -> the element; Op may be for reals only (means, logarithms, roots), and is then also used for
/// integers, with a truncated result.
template <class Op>
KernelStatus reduce_reals(const KernelCall& call, const ReduceAttributes& attributes) {
  const TensorView& out = call.outputs[0];
  return reduce_with<double>(
      call, attributes, [&](std::span<const double> values, int64_t i) { store_one(out, i, Op::apply(values)); });
}

KernelStatus reduce_mean(const KernelCall& call, const ReduceAttributes& attributes) {
  const TensorView& out = call.outputs[0];
  return reduce_with<double>(call, attributes, [&](std::span<const double> values, int64_t i) {
    double sum = 0;
    for (double x : values) sum += x;
    store_one(out, i, sum / static_cast<double>(values.size()) / static_cast<double>(attributes.shards));
  });
}

template <class Op>
KernelStatus reduce_numbers(const KernelCall& call, const ReduceAttributes& attributes) {
  const TensorView& out = call.outputs[0];
  return with_number(out.dtype, [&]<class N>(N) {
    return reduce_with<N>(call, attributes, [&](std::span<const N> values, int64_t i) {
      store_one(out, i, Op::apply(values, out.dtype));
    });
  });
}

/// Integer sums and products wrap, on unsigned words.
template <class N>
using Wrapping = std::conditional_t<std::is_same_v<N, double>, double, uint64_t>;

struct Sum {
  template <class N>
  static N apply(std::span<const N> values, DType) {
    Wrapping<N> sum = 0;
    for (N x : values) sum += static_cast<Wrapping<N>>(x);
    return static_cast<N>(sum);
  }
};
struct Prod {
  template <class N>
  static N apply(std::span<const N> values, DType) {
    Wrapping<N> product = 1;
    for (N x : values) product *= static_cast<Wrapping<N>>(x);
    return static_cast<N>(product);
  }
};
struct SumSquare {
  template <class N>
  static N apply(std::span<const N> values, DType) {
    Wrapping<N> sum = 0;
    for (N x : values) sum += static_cast<Wrapping<N>>(x) * static_cast<Wrapping<N>>(x);
    return static_cast<N>(sum);
  }
};

/// The maximum of no elements: the smallest value of the dtype.
template <class N>
N lowest(DType dtype) {
  if constexpr (std::is_same_v<N, double>) return -INFINITY;
  else if (dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64)
    return static_cast<N>(-(int64_t{1} << (dtype_bits(dtype) - 2)) * 2);
  else return 0;
}
template <class N>
N highest(DType dtype) {
  if constexpr (std::is_same_v<N, double>) return INFINITY;
  else
    return dtype == DType::boolean ? N{1}
                                   : static_cast<N>(~lowest<N>(dtype) & (~uint64_t{0} >> (64 - dtype_bits(dtype))));
}

struct MaxOf {
  template <class N>
  static N apply(std::span<const N> values, DType dtype) {
    N best = lowest<N>(dtype);
    for (N x : values) best = best != best || x <= best ? best : x;  // a NaN stays, and a NaN is taken
    return best;
  }
};
struct MinOf {
  template <class N>
  static N apply(std::span<const N> values, DType dtype) {
    N best = highest<N>(dtype);
    for (N x : values) best = best != best || x >= best ? best : x;
    return best;
  }
};

double sum(std::span<const double> values) { return Sum::apply(values, DType::f64); }

struct L1 {
  static double apply(std::span<const double> values) {
    double total = 0;
    for (double x : values) total += std::fabs(x);
    return total;
  }
};
struct L2 {
  static double apply(std::span<const double> values) { return std::sqrt(SumSquare::apply(values, DType::f64)); }
};
struct LogSum {
  static double apply(std::span<const double> values) { return std::log(sum(values)); }
};
struct LogSumExp {
  static double apply(std::span<const double> values) {
    double top = MaxOf::apply(values, DType::f64), total = 0;
    if (std::isinf(top)) return top;  // also of nothing: log 0
    for (double x : values) total += std::exp(x - top);
    return top + std::log(total);
  }
};

struct ArgAttributes {
  explicit ArgAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", 0)), last(node.attributes.integer("select_last_index", 0) != 0) {}
  int64_t axis;
  bool last;  ///< of equal elements, the last one's index instead of the first one's
};

template <bool largest>
KernelStatus arg_best(const KernelCall& call, const ArgAttributes& attributes) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  int axis = positive_axis(attributes.axis, in.shape.rank());
  int64_t size = in.shape[axis], inner = in.shape.elements(axis + 1, in.shape.rank());
  with_number(in.dtype, [&]<class N>(N) {
    Loaded<N> data(in);
    for (int64_t i = 0; i < out.elements(); ++i) {
      const N* line = data.data() + i / inner * size * inner + i % inner;
      int64_t best = 0;
      for (int64_t j = 1; j < size; ++j) {
        N x = line[j * inner], y = line[best * inner];
        if ((largest ? x > y : x < y) || (x != x && y == y) || (attributes.last && x == y)) best = j;
      }
      store_one(out, i, best);
    }
  });
  return {};
}

}  // namespace

void add_reduce(KernelTable& table) {
  add<reduce_numbers<Sum>>(table, "ReduceSum", numbers);
  add<reduce_numbers<Prod>>(table, "ReduceProd", numbers);
  add<reduce_numbers<SumSquare>>(table, "ReduceSumSquare", numbers);
  add<reduce_numbers<MaxOf>>(table, "ReduceMax", numbers_and_bool);
  add<reduce_numbers<MinOf>>(table, "ReduceMin", numbers_and_bool);
  add<reduce_mean>(table, "ReduceMean", numbers);
  add<reduce_reals<L1>>(table, "ReduceL1", numbers);
  add<reduce_reals<L2>>(table, "ReduceL2", numbers);
  add<reduce_reals<LogSum>>(table, "ReduceLogSum", numbers);
  add<reduce_reals<LogSumExp>>(table, "ReduceLogSumExp", numbers);
  add<arg_best<true>>(table, "ArgMax", numbers);
  add<arg_best<false>>(table, "ArgMin", numbers);
}

}  // namespace plait::reference
