// Scaler, Normalizer and Imputer.
#include <cmath>
#include <limits>

#include "kernels/reference/ml/lists.h"
#include "kernels/reference/ml/register.h"

namespace plait::reference {
namespace {

struct ScalerLists {
  explicit ScalerLists(const NodeInfo& node)
      : offset(reals_of(node.attributes, "offset")), scale(reals_of(node.attributes, "scale")) {}
  std::vector<double> offset, scale;  ///< of one size
};

KernelStatus scaler(const KernelCall& call, const ScalerLists& lists) {
  const TensorView& x = call.inputs[0];
  const size_t size = lists.scale.size();
  if (lists.offset.size() != size || !fits_features(size, x)) return {KernelCode::bad_value, 0, x.shape.back(1)};
  std::vector<double> values = load_all<double>(x);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (values[i] - lists.offset[i % size]) * lists.scale[i % size];
  store_all(call.outputs[0], values);
  return {};
}

struct Norm {
  explicit Norm(const NodeInfo& node) : name(node.attributes.string("norm", "MAX")) {}
  /// The greatest is with its sign, and of elements that are numbers, as ONNX Runtime computes it.
  double of(std::span<const double> row) const {
    double out = name == "MAX" ? std::numeric_limits<double>::lowest() : 0;
    for (double element : row) {
      if (name == "MAX") out = element > out ? element : out;
      else out += name == "L1" ? std::fabs(element) : element * element;
    }
    return name == "L2" ? std::sqrt(out) : out;
  }
  std::string name;
};

KernelStatus normalizer(const KernelCall& call, const Norm& norm) {
  const TensorView& x = call.inputs[0];
  const Table table(x);
  std::vector<double> values = load_all<double>(x);
  for (int64_t row = 0; row < table.rows; ++row) {
    const std::span<double> elements(values.data() + row * table.columns, static_cast<size_t>(table.columns));
    const double by = norm.of(elements);
    for (double& element : elements) element = by == 0 ? element : element / by;
  }
  store_all(call.outputs[0], values);
  return {};
}

struct Imputed {
  explicit Imputed(const NodeInfo& node)
      : reals(reals_of(node.attributes, "imputed_value_floats")),
        ints(node.attributes.integers("imputed_value_int64s")),
        real(node.attributes.real("replaced_value_float", 0)),
        integer(node.attributes.integer("replaced_value_int64", 0)) {}
  std::vector<double> reals;
  std::vector<int64_t> ints;
  double real;
  int64_t integer;
};

template <class N>
KernelStatus impute(const TensorView& x, const TensorView& y, const std::vector<N>& by, N replaced) {
  if (!fits_features(by.size(), x)) return {KernelCode::bad_value, 0, x.shape.back(1)};
  std::vector<N> values = load_all<N>(x);
  for (size_t i = 0; i < values.size(); ++i) {
    bool found = values[i] == replaced;
    if constexpr (std::is_same_v<N, double>) found = found || (std::isnan(replaced) && std::isnan(values[i]));
    if (found) values[i] = by[i % by.size()];
  }
  store_all(y, values);
  return {};
}

KernelStatus imputer(const KernelCall& call, const Imputed& imputed) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  return is_float(x.dtype) ? impute<double>(x, y, imputed.reals, imputed.real)
                           : impute<int64_t>(x, y, imputed.ints, imputed.integer);
}

}  // namespace

void add_features(KernelTable& table) {
  add<scaler>(table, "ai.onnx.ml.Scaler", four_types);
  add<normalizer>(table, "ai.onnx.ml.Normalizer", four_types);
  add<imputer>(table, "ai.onnx.ml.Imputer", four_types);
}

}  // namespace plait::reference
