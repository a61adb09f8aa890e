// Determinants of square matrices, and their gradients.
#include <cmath>
#include <utility>

#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

/// Gaussian elimination with the greatest element of each column as pivot; overwrites the matrix [n, n].
double determinant_of(double* matrix, int64_t n) {
  double out = 1;
  StopCheck stop;
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
      stop.count(n - column);
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

/// The determinant without row `row` and column `column`, with the sign of its place.
double cofactor(const double* matrix, int64_t n, int64_t row, int64_t column) {
  std::vector<double> minor;
  for (int64_t i = 0; i < n * n; ++i)
    if (i / n != row && i % n != column) minor.push_back(matrix[i]);
  return ((row + column) % 2 ? -1 : 1) * determinant_of(minor.data(), n - 1);
}

/// plait.DetBack: x [..., n, n], dy [...] -> dy times the cofactors of x, which a singular matrix has too.
KernelStatus det_back(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &dy = call.inputs[1], &dx = call.outputs[0];
  const int64_t n = x.shape.back(1);
  if (x.shape.back(2) != n || x.elements() != dy.elements() * n * n) return {KernelCode::bad_value, 0, n};
  const Loaded<double> data(x), gradient(dy);
  std::vector<double> result(static_cast<size_t>(dx.elements()));
  share(call.pool, dx.elements(), dx.elements() * n * n * n, [&](int64_t i) {
    const double* matrix = data.data() + i / (n * n) * n * n;
    result[static_cast<size_t>(i)] = gradient[i / (n * n)] * cofactor(matrix, n, i / n % n, i % n);
  });
  store_all(dx, result);
  return {};
}

}  // namespace

void add_determinant(KernelTable& table) {
  add<det>(table, "Det", floats);
  add<det_back>(table, "plait.DetBack", floats);
}

}  // namespace plait::reference
