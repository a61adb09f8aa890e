// Det: determinants of square matrices.
#include <cmath>
#include <utility>

#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

/// Gaussian elimination with the greatest element of each column as pivot; overwrites the matrix [n, n].
double determinant_of(double* matrix, int64_t n) {
  double out = 1;
  for (int64_t column = 0; column < n; ++column) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < n; ++row)
      if (std::fabs(matrix[row * n + column]) > std::fabs(matrix[pivot * n + column])) pivot = row;
    if (matrix[pivot * n + column] == 0) return 0;
    if (pivot != column) {
      for (int64_t k = 0; k < n; ++k) std::swap(matrix[pivot * n + k], matrix[column * n + k]);
      out = -out;
    }
    out *= matrix[column * n + column];
    for (int64_t row = column + 1; row < n; ++row) {
      const double factor = matrix[row * n + column] / matrix[column * n + column];
      for (int64_t k = column; k < n; ++k) matrix[row * n + k] -= factor * matrix[column * n + k];
    }
  }
  return out;
}

/// Det: x [..., n, n] -> [...].
KernelStatus det(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t n = x.shape.back(1);
  if (x.shape.back(2) != n) return {KernelCode::bad_value, 0, n};
  std::vector<double> matrix(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < y.elements(); ++i) {
    load(x, i * n * n, n * n, matrix.data());
    store_one(y, i, determinant_of(matrix.data(), n));
  }
  return {};
}

}  // namespace

void add_determinant(KernelTable& table) { add<det>(table, "Det", floats); }

}  // namespace plait::reference
