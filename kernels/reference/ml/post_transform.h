#pragma once
// What models of ai.onnx.ml make of their scores.
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::reference {

/// Numbered as TreeEnsemble's attribute.
enum class PostTransform : uint8_t { none, softmax, logistic, softmax_zero, probit };

/// Throws Error(bad_model) for another name.
inline PostTransform post_transform_of(std::string_view name) {
  constexpr std::string_view names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i]) return static_cast<PostTransform>(i);
  throw Error(Code::bad_model, cat("attribute \"post_transform\" is ", quote(name),
                                   ", expected NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT"));
}

template <class N>
N logistic(N x) {
  return 1 / (1 + std::exp(-x));
}

/// The quantile of the normal distribution, by Winitzki's approximation of the inverse error function with a = 0.147 (2008), which
/// ONNX Runtime uses: exact to 2e-3, so that an exact one would differ. In f64, since near 1/2 its terms cancel.
inline double probit(double p) {
  constexpr double a = 0.147, pi = 3.14159, root_of_two = 1.41421356;
  const double x = 2 * p - 1, logarithm = std::log((1 - x) * (1 + x));
  const double half = 2 / (pi * a) + logarithm / 2;
  const double root = std::sqrt(std::sqrt(half * half - logarithm / a) - half);
  return root_of_two * (x < 0 ? -root : root);
}

/// With `skip_zeros`, scores of 0 take no part and stay 0.
template <class N>
void softmax_scores(std::span<N> scores, bool skip_zeros) {
  constexpr N zero = N(1e-7);
  N most = std::numeric_limits<N>::lowest(), sum = 0;
  for (N score : scores) most = score > most ? score : most;
  for (N& score : scores) {
    if (skip_zeros && !(score > zero || score < -zero)) {
      score *= std::exp(-most);
      continue;
    }
    score = std::exp(score - most);
    sum += score;
  }
  for (N& score : scores) score /= sum;
}

/// In place. One score has no others to be compared with: only PROBIT changes it, as in ONNX Runtime.
template <class N>
void transform_scores(std::span<N> scores, PostTransform transform) {
  if (transform == PostTransform::probit)
    for (N& score : scores) score = static_cast<N>(probit(static_cast<double>(score)));
  if (scores.size() < 2) return;
  if (transform == PostTransform::logistic)
    for (N& score : scores) score = logistic(score);
  if (transform == PostTransform::softmax || transform == PostTransform::softmax_zero)
    softmax_scores(scores, transform == PostTransform::softmax_zero);
}

}  // namespace plait::reference
