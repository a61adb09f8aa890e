#define eigen_assert(condition) \
  static_cast<void>(condition)  // sizes are ours; an assertion would end the host's process
#include <Eigen/Cholesky>
#include <algorithm>
#include <numeric>

#include "core/base/load_progress.h"
#include "core/base/thread_pool.h"
#include "core/quantize/block_quantizer.h"

namespace plait {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic>;

/// Columns with the largest inputs first: they have the most others to make up for them.
std::vector<int64_t> order_of(std::span<const float> hessian, int64_t k) {
  std::vector<int64_t> out(static_cast<size_t>(k));
  std::iota(out.begin(), out.end(), 0);
  const auto diagonal = [&](int64_t i) { return hessian[static_cast<size_t>(i * k + i)]; };
  std::stable_sort(out.begin(), out.end(), [&](int64_t a, int64_t b) { return diagonal(a) > diagonal(b); });
  return out;
}

/// U upper with U^T U = H^-1, rows one after the other, of the ordered hessian with a hundredth of its mean diagonal added (more if it
/// is still not positive). With H = R R^T, R upper, U is R^-1: the Cholesky factor of H in reverse order.
std::vector<float> factor_of(std::span<const float> hessian, const std::vector<int64_t>& order) {
  const auto k = static_cast<Eigen::Index>(order.size());
  const auto column = [&](Eigen::Index i) { return order[static_cast<size_t>(k - 1 - i)]; };
  Matrix reversed(k, k);
  double mean = 0;
  for (Eigen::Index i = 0; i < k; ++i) {
    for (Eigen::Index j = 0; j < k; ++j) reversed(i, j) = hessian[static_cast<size_t>(column(i) * k + column(j))];
    mean += reversed(i, i) / static_cast<double>(k);
  }
  Eigen::LLT<Matrix> lower;
  for (double damping = 0.01; damping < 1e6; damping *= 10) {
    Matrix damped = reversed;
    damped.diagonal().array() += damping * mean;
    lower.compute(damped);
    if (lower.info() == Eigen::Success) break;
  }
  const Matrix inverse = lower.matrixL().solve(Matrix::Identity(k, k));
  std::vector<float> out(static_cast<size_t>(k * k));
  for (Eigen::Index i = 0; i < k; ++i)
    for (Eigen::Index j = i; j < k; ++j)
      out[static_cast<size_t>(i * k + j)] = static_cast<float>(inverse(k - 1 - i, k - 1 - j));
  return out;
}

/// Rounds some rows. Columns of `weight` [rows, k] are in order.
void round_rows(const BlockQuantizer& quantizer, const std::vector<int64_t>& order, std::span<const float> factor,
                int64_t first, int64_t rows, float* weight, uint8_t* codes) {
  const auto k = static_cast<int64_t>(order.size());
  for (int64_t i = 0; i < k; ++i) {
    const float* row_of_factor = factor.data() + i * k;
    const float inverse = 1 / row_of_factor[i];
    for (int64_t row = 0; row < rows; ++row) {
      float* left = weight + row * k;
      const int64_t column = order[static_cast<size_t>(i)];
      const uint8_t code = quantizer.code(first + row, column, left[i]);
      codes[(first + row) * k + column] = code;
      const float error = (left[i] - quantizer.value(first + row, column, code)) * inverse;
      for (int64_t j = i + 1; j < k; ++j) left[j] -= error * row_of_factor[j];
    }
  }
}

}  // namespace

std::vector<uint8_t> gptq(const BlockQuantizer& quantizer, std::span<const float> hessian, ThreadPool& pool,
                          LoadProgress* progress) {
  const int64_t n = quantizer.n(), k = quantizer.k();
  const bool seen = std::any_of(hessian.begin(), hessian.end(), [](float value) { return value != 0; });
  if (!seen) return quantizer.round_to_nearest(pool);
  const std::vector<int64_t> order = order_of(hessian, k);
  const std::vector<float> factor = factor_of(hessian, order);
  std::vector<uint8_t> codes(static_cast<size_t>(n * k));
  constexpr int64_t together = 16;  // rows that share a pass over the factor; they stay in the cache
  pool.for_each((n + together - 1) / together, [&](int64_t item, int) {
    if (progress) progress->check();
    const int64_t first = item * together, rows = std::min(together, n - first);
    std::vector<float> weight(static_cast<size_t>(rows * k));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < k; ++i)
        weight[static_cast<size_t>(row * k + i)] =
            quantizer.weight()[static_cast<size_t>((first + row) * k + order[static_cast<size_t>(i)])];
    round_rows(quantizer, order, factor, first, rows, weight.data(), codes.data());
  });
  return codes;
}

}  // namespace plait
