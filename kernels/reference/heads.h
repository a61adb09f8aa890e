#pragma once
// Attention heads inside arrays of several layouts, and the softmax of one query's scores.
#include <algorithm>
#include <cmath>
#include <span>

#include "core/base/shape.h"

namespace plait::reference {

/// b batches of h heads of s tokens of d contiguous elements, in any layout.
struct Heads {
  int64_t b, h, s, d;
  int64_t batch_step, head_step, token_step;
  int64_t at(int64_t batch, int64_t head, int64_t token) const {
    return batch * batch_step + head * head_step + token * token_step;
  }
};

/// [b, h, s, d].
inline Heads heads_first(const Shape& shape) {
  int64_t s = shape[2], d = shape[3];
  return {shape[0], shape[1], s, d, shape[1] * s * d, s * d, d};
}

/// [b, s, h d] or [b, s, h, d].
inline Heads heads_last(const Shape& shape, int64_t h) {
  int64_t width = shape.elements(2, shape.rank()), d = h > 0 ? width / h : width;
  return {shape[0], std::max<int64_t>(h, 1), shape[1], d, shape[1] * width, d, width};
}

/// c tanh(score / c), or the score itself if c is 0 (Gemma 2's soft cap).
inline double soft_capped(double score, double cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

/// Converts scores to probabilities; -infinity is masked. `sink` (-infinity: none) takes part in the sum but gets no
/// probability. A row with only masked scores becomes zeros, a row with a NaN becomes NaN.
inline void softmax_scores(std::span<double> scores, double sink = -INFINITY) {
  double top = sink, sum = 0;
  for (double x : scores)
    if (x > top || std::isnan(x)) top = x;  // no score is above NaN
  if (top == -INFINITY) {
    std::fill(scores.begin(), scores.end(), 0.0);
    return;
  }
  for (double& x : scores) sum += x = std::exp(x - top);
  sum += std::exp(sink - top);
  for (double& x : scores) x /= sum;
}

}  // namespace plait::reference
