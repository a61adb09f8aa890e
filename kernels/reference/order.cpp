// Ops along one axis whose result depends on order: TopK, CumSum, CumProd, Unique.
#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

struct TopKAttributes {
  explicit TopKAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", -1)), largest(node.attributes.integer("largest", 1) != 0) {}
  int64_t axis;
  bool largest;  ///< `sorted` = 0 leaves the order open; this one always sorts
};

/// TopK: x, k -> values, indices i64. Of equal elements the lower index comes first; a NaN counts as the largest.
KernelStatus top_k(const KernelCall& call, const TopKAttributes& attributes) {
  const TensorView &in = call.inputs[0], &values = call.outputs[0], indices = output(call, 1);
  int axis = positive_axis(attributes.axis, in.shape.rank());
  const Shape& shape = values.present() ? values.shape : indices.shape;
  int64_t size = in.shape[axis], k = shape[axis], inner = in.shape.elements(axis + 1, in.shape.rank());
  int64_t lines = in.shape.elements(0, axis) * inner;
  if (k > size) return {KernelCode::index_out_of_range, 1, k};
  with_number(in.dtype, [&]<class N>(N) {
    Loaded<N> data(in);
    std::vector<int64_t> order(static_cast<size_t>(size));
    StopCheck stop;
    for (int64_t i = 0; i < lines; ++i) {
      const N* line = data.data() + i / inner * size * inner + i % inner;
      std::iota(order.begin(), order.end(), 0);
      auto before = [&](int64_t a, int64_t b) {
        stop.count();
        N x = line[a * inner], y = line[b * inner];
        bool x_nan = x != x, y_nan = y != y;
        if (x_nan || y_nan) {
          if (x_nan != y_nan) return x_nan == attributes.largest;
        } else if (x != y) {
          return attributes.largest ? x > y : x < y;
        }
        return a < b;
      };
      std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
      for (int64_t j = 0; j < k; ++j) {
        int64_t to = (i / inner * k + j) * inner + i % inner, from = order[static_cast<size_t>(j)];
        if (values.present()) store_one(values, to, line[from * inner]);
        if (indices.present()) store_one(indices, to, from);
      }
    }
  });
  return {};
}

struct RunningAttributes {
  explicit RunningAttributes(const NodeInfo& node)
      : exclusive(node.attributes.integer("exclusive", 0) != 0),
        reverse(node.attributes.integer("reverse", 0) != 0) {}
  bool exclusive, reverse;
};

/// CumSum and CumProd: x, axis -> running sums or products; integers wrap.
template <bool product>
KernelStatus running(const KernelCall& call, const RunningAttributes& attributes) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  int64_t wanted = load_one<int64_t>(call.inputs[1], 0);
  if (wanted < -in.shape.rank() || wanted >= in.shape.rank()) return {KernelCode::index_out_of_range, 1, wanted};
  int axis = positive_axis(wanted, in.shape.rank());
  int64_t size = in.shape[axis], inner = in.shape.elements(axis + 1, in.shape.rank());
  with_number(in.dtype, [&]<class N>(N) {
    std::vector<N> data = load_all<N>(in);
    StopCheck stop;
    for (int64_t i = 0; i < in.shape.elements(0, axis) * inner; ++i) {
      N* line = data.data() + i / inner * size * inner + i % inner;
      using Total = std::conditional_t<std::is_same_v<N, double>, double, uint64_t>;
      Total total = product ? 1 : 0;
      for (int64_t j = 0; j < size; ++j) {
        stop.count();
        N& element = line[(attributes.reverse ? size - 1 - j : j) * inner];
        auto value = static_cast<Total>(element);
        Total next = product ? total * value : total + value;
        element = static_cast<N>(attributes.exclusive ? total : next);
        total = next;
      }
    }
    store_all(out, data);
  });
  return {};
}

struct RunningBackAttributes : RunningAttributes {
  explicit RunningBackAttributes(const NodeInfo& node) : RunningAttributes(node), axis(node.attributes.integer("axis", -1)) {}
  int64_t axis;
};

/// plait.CumProdBack: x, dy -> dx. dx_j = p_j s_j, where p_j is the product of the elements before j and s_j, from the end on, what
/// the results from j on lose per unit of p_j x_j: s_j = dy_j + x_(j+1) s_(j+1).
KernelStatus running_product_back(const KernelCall& call, const RunningBackAttributes& attributes) {
  const TensorView &x = call.inputs[0], &dy = call.inputs[1], &dx = call.outputs[0];
  const int rank = x.shape.rank(), axis = positive_axis(attributes.axis, rank);
  if (axis < 0 || axis >= rank || dy.elements() != x.elements()) return {KernelCode::bad_value, 1, dy.elements()};
  const int64_t size = x.shape[axis], inner = x.shape.elements(axis + 1, rank);
  const std::vector<double> data = load_all<double>(x), gradient = load_all<double>(dy);
  std::vector<double> result(data.size());
  for (int64_t i = 0; size > 0 && i < x.elements() / size; ++i) {
    const int64_t first = i / inner * size * inner + i % inner;
    auto at = [&](int64_t j) { return static_cast<size_t>(first + (attributes.reverse ? size - 1 - j : j) * inner); };
    // An exclusive product is that of the elements before: result j + 1 takes the place of result j.
    const int64_t shift = attributes.exclusive ? 1 : 0;
    double after = 0, before = 1;
    for (int64_t j = size; j-- > 0;) {
      after = (j + shift < size ? gradient[at(j + shift)] : 0) + (j + 1 < size ? data[at(j + 1)] * after : 0);
      result[at(j)] = after;
    }
    for (int64_t j = 0; j < size; ++j) {
      result[at(j)] *= before;
      before *= data[at(j)];
    }
  }
  store_all(dx, result);
  return {};
}

struct UniqueAttributes {
  explicit UniqueAttributes(const NodeInfo& node)
      : flat(!node.attributes.has("axis")), axis(node.attributes.integer("axis", 0)),
        sorted(node.attributes.integer("sorted", 1) != 0) {}
  bool flat;  ///< of single elements; otherwise of the slices along `axis`
  int64_t axis;
  bool sorted;  ///< ascending; otherwise in the order of first occurrence
};

bool has_axis(const TensorView& x, const UniqueAttributes& attributes) {
  int axis = positive_axis(attributes.axis, x.shape.rank());
  return attributes.flat || (axis >= 0 && axis < x.shape.rank());
}

/// The distinct slices of x: for each its first occurrence, and for each slice the number of its group.
struct Groups {
  std::vector<int64_t> first, inverse;
};

Groups group(const TensorView& x, const UniqueAttributes& attributes) {
  int axis = attributes.flat ? 0 : positive_axis(attributes.axis, x.shape.rank());
  int64_t count = attributes.flat ? x.elements() : x.shape[axis];
  int64_t outer = attributes.flat ? 1 : x.shape.elements(0, axis);
  int64_t inner = attributes.flat ? 1 : x.shape.elements(axis + 1, x.shape.rank());
  Groups out;
  out.inverse.resize(static_cast<size_t>(count));
  with_number(x.dtype, [&]<class N>(N) {
    Loaded<N> data(x);
    StopCheck stop;
    auto compare = [&](int64_t a, int64_t b) {  // lexicographic: -1, 0, 1
      stop.count();
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          N left = data[(o * count + a) * inner + i], right = data[(o * count + b) * inner + i];
          if (left != right) return left < right ? -1 : 1;
        }
      return 0;
    };
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
    for (int64_t slice : order) {
      if (out.first.empty() || compare(out.first.back(), slice) != 0) out.first.push_back(slice);
      out.inverse[static_cast<size_t>(slice)] = static_cast<int64_t>(out.first.size()) - 1;
    }
  });
  if (attributes.sorted) return out;
  std::vector<int64_t> order(out.first.size()), place(out.first.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return out.first[static_cast<size_t>(a)] < out.first[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  std::sort(out.first.begin(), out.first.end());
  for (int64_t& number : out.inverse) number = place[static_cast<size_t>(number)];
  return out;
}

/// Of each string its place in the order of all texts, by bytes.
Tensor places_of(const StringTable& table, const TensorView& strings) {
  std::map<std::string_view, int64_t> places;
  const std::vector<uint64_t> numbers = load_all<uint64_t>(strings);
  for (const uint64_t number : numbers) places.emplace(table.text(number), 0);
  int64_t next = 0;
  for (auto& [text, place] : places) place = next++;
  const Tensor out(DType::i64, strings.shape);
  for (size_t i = 0; i < numbers.size(); ++i) out.as<int64_t>()[i] = places.at(table.text(numbers[i]));
  return out;
}

/// Unique: x -> values, indices? (first occurrences), inverse?, counts?.
KernelStatus unique(const KernelCall& call, const UniqueAttributes& attributes) {
  const TensorView &x = call.inputs[0], values = output(call, 0);
  if (!has_axis(x, attributes)) return {KernelCode::bad_value, 0, x.shape.rank()};
  const Tensor places = x.dtype == DType::string ? places_of(*call.strings, x) : Tensor();
  Groups groups = group(places.present() ? places.view() : x, attributes);
  auto found = static_cast<int64_t>(groups.first.size());
  int axis = attributes.flat ? 0 : positive_axis(attributes.axis, x.shape.rank());
  int64_t count = static_cast<int64_t>(groups.inverse.size());
  int64_t outer = attributes.flat ? 1 : x.shape.elements(0, axis);
  int64_t inner = attributes.flat ? 1 : x.shape.elements(axis + 1, x.shape.rank());
  std::vector<int64_t> counts(groups.first.size());
  for (int64_t number : groups.inverse) ++counts[static_cast<size_t>(number)];
  if (values.present()) {
    if (values.elements() != outer * found * inner) return {KernelCode::bad_value, 0, found};
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t j = 0; j < found; ++j)
        copy_elements(x, (o * count + groups.first[static_cast<size_t>(j)]) * inner, values, (o * found + j) * inner,
                      inner);
  }
  const std::vector<int64_t>* lists[] = {&groups.first, &groups.inverse, &counts};
  for (size_t k = 0; k < 3; ++k)
    if (output(call, k + 1).present()) store_all(output(call, k + 1), *lists[k]);
  return {};
}

Shape unique_shape(const KernelState* state, std::span<const TensorView> inputs, int which) {
  const auto& attributes = static_cast<const State<UniqueAttributes>*>(state)->value;
  if (!has_axis(inputs[0], attributes)) return {0};  // refused when it runs
  Groups groups = group(inputs[0], attributes);
  auto found = static_cast<int64_t>(groups.first.size());
  if (which == 2) return {static_cast<int64_t>(groups.inverse.size())};
  if (which != 0 || attributes.flat) return {found};
  Shape out = inputs[0].shape;
  out[positive_axis(attributes.axis, out.rank())] = found;
  return out;
}

}  // namespace

void add_order(KernelTable& table) {
  add<top_k>(table, "TopK", numbers);
  add<running<false>>(table, "CumSum", numbers);
  add<running_product_back>(table, "plait.CumProdBack", floats);
  add<running<true>>(table, "CumProd", numbers);
  Kernel kernel = kernel_of<unique>("Unique", comparable);
  kernel.output_shape = unique_shape;
  table.add(std::move(kernel));
}

}  // namespace plait::reference
