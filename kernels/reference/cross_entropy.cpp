// A head and the softmax cross-entropy after it, a row and a chunk of the vocabulary at a time; all in double.
#include <algorithm>
#include <cmath>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/weights.h"

namespace plait::reference {
namespace {

struct HeadAttributes {
  explicit HeadAttributes(const NodeInfo& node)
      : chunks(node.attributes.integer("chunks", 1)),
        zero(node.attributes.integer("zero", 0)),
        scale(node.attributes.real("scale", 1)),
        softcap(node.attributes.real("softcap", 0)),
        shard(ShardedAxis::of(node.attributes)) {}
  int64_t chunks, zero;
  double scale, softcap;
  ShardedAxis shard;  ///< of chunks
};

/// The logits of one token.
class HeadRows {
 public:
  /// `bias`: the operand's number; scales and zero points follow it.
  HeadRows(const KernelCall& call, const HeadAttributes& attributes, size_t bias)
      : attributes_(attributes),
        weights_{call.inputs[1], input(call, bias + 1), input(call, bias + 2), attributes.zero},
        k_(call.inputs[0].shape.back(1)),
        bias_(static_cast<size_t>(vocabulary())) {
    if (const TensorView given = input(call, bias); given.present()) bias_ = load_all<double>(given);
  }

  int64_t k() const { return k_; }
  int64_t vocabulary() const { return weights_.tensor.shape[0]; }
  bool fits() const {
    return weights_.fits(k_) && attributes_.chunks > 0 && vocabulary() % attributes_.chunks == 0 &&
           static_cast<int64_t>(bias_.size()) == vocabulary();
  }
  int64_t chunk_size() const { return vocabulary() / attributes_.chunks; }
  /// Index of the label among the local rows; -1 if it is elsewhere.
  int64_t place(int64_t label) const {
    const int64_t at = label - attributes_.shard.offset * chunk_size();
    return at >= 0 && at < vocabulary() ? at : -1;
  }
  bool is_label(int64_t label) const {
    const int64_t whole = attributes_.shard.whole ? attributes_.shard.whole : attributes_.chunks;
    return label >= 0 && label < whole * chunk_size();
  }

  const std::vector<double>& weight(int64_t row) {
    of_row_ = bias_[static_cast<size_t>(row)];
    row_.resize(static_cast<size_t>(k_));
    if (!weights_.blocked()) {
      load(weights_.tensor, row * k_, k_, row_.data());
    } else {
      const float* values = weights_.row(row, k_, buffer_);
      std::copy(values, values + k_, row_.begin());
    }
    return row_;
  }
  /// For the last requested row of w.
  double logit(const double* x) const {
    double sum = of_row_;
    for (size_t j = 0; j < row_.size(); ++j) sum += x[j] * row_[j];
    sum *= attributes_.scale;
    return attributes_.softcap ? attributes_.softcap * std::tanh(sum / attributes_.softcap) : sum;
  }
  /// d logit / d (x w^T + bias), where the logit is `value`.
  double slope(double value) const {
    const double part = attributes_.softcap ? value / attributes_.softcap : 0;
    return attributes_.scale * (1 - part * part);
  }

 private:
  const HeadAttributes& attributes_;
  const Weights weights_;
  const int64_t k_;
  std::vector<double> bias_;  ///< zeros where there is none
  std::vector<double> row_;   ///< of w
  double of_row_ = 0;         ///< its bias
  std::vector<float> buffer_;
};

/// x [..., k], w [v, k], labels [...], bias? [v] -> maxima [..., c], sums [..., c], picked [...]; picked is 0 if the
/// label is on another rank, or -1.
KernelStatus head_statistics(const KernelCall& call, const HeadAttributes& attributes) {
  HeadRows rows(call, attributes, 3);
  if (!rows.fits()) return {KernelCode::bad_value, 1, rows.vocabulary()};
  const std::vector<double> x = load_all<double>(call.inputs[0]);
  const std::vector<int64_t> labels = load_all<int64_t>(call.inputs[2]);
  const auto chunks = static_cast<size_t>(attributes.chunks);
  std::vector<double> maxima(labels.size() * chunks, -HUGE_VAL), sums(maxima.size()), picked(labels.size());
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != -1 && !rows.is_label(labels[i])) return {KernelCode::index_out_of_range, 2, labels[i]};
  for (int64_t v = 0; v < rows.vocabulary(); ++v) {
    rows.weight(v);
    for (size_t i = 0; i < labels.size(); ++i) {
      const double logit = rows.logit(x.data() + static_cast<int64_t>(i) * rows.k());
      const size_t at = i * chunks + static_cast<size_t>(v / rows.chunk_size());
      const double most = std::max(maxima[at], logit);
      sums[at] = sums[at] * std::exp(maxima[at] - most) + std::exp(logit - most);
      maxima[at] = most;
      if (v == rows.place(labels[i])) picked[i] = logit;
    }
  }
  store_all(call.outputs[0], maxima);
  store_all(call.outputs[1], sums);
  store_all(call.outputs[2], picked);
  return {};
}

/// x, w, labels, logsumexp [...], dloss [...], bias? -> dx [..., k], dw? [v, k], dbias? [v].
KernelStatus head_back(const KernelCall& call, const HeadAttributes& attributes) {
  HeadRows rows(call, attributes, 5);
  if (!rows.fits()) return {KernelCode::bad_value, 1, rows.vocabulary()};
  const std::vector<double> x = load_all<double>(call.inputs[0]), sums = load_all<double>(call.inputs[3]),
                            dloss = load_all<double>(call.inputs[4]);
  const std::vector<int64_t> labels = load_all<int64_t>(call.inputs[2]);
  const auto k = static_cast<size_t>(rows.k());
  std::vector<double> dx(x.size()), dw(k), dbias(static_cast<size_t>(rows.vocabulary()));
  const TensorView of_w = output(call, 1), of_bias = output(call, 2);
  for (int64_t v = 0; v < rows.vocabulary(); ++v) {
    const std::vector<double>& w = rows.weight(v);
    std::fill(dw.begin(), dw.end(), 0.0);
    for (size_t i = 0; i < labels.size(); ++i) {
      const double logit = rows.logit(x.data() + i * k);
      const double change =
          dloss[i] * (std::exp(logit - sums[i]) - (v == rows.place(labels[i]) ? 1 : 0)) * rows.slope(logit);
      dbias[static_cast<size_t>(v)] += change;
      for (size_t j = 0; j < k; ++j) {
        dx[i * k + j] += change * w[j];
        dw[j] += change * x[i * k + j];
      }
    }
    if (of_w.present()) store(of_w, v * rows.k(), rows.k(), dw.data());
  }
  store_all(call.outputs[0], dx);
  if (of_bias.present()) store_all(of_bias, dbias);
  return {};
}

/// x, w, labels, dloss [...], bias? -> losses [...], dx [..., k], dw? [v, k], dbias? [v]: the loss is the log-sum-exp
/// less the label's logit.
KernelStatus head_loss(const KernelCall& call, const HeadAttributes& attributes) {
  HeadRows rows(call, attributes, 4);
  if (!rows.fits()) return {KernelCode::bad_value, 1, rows.vocabulary()};
  const std::vector<double> x = load_all<double>(call.inputs[0]), dloss = load_all<double>(call.inputs[3]);
  const std::vector<int64_t> labels = load_all<int64_t>(call.inputs[2]);
  const auto k = static_cast<size_t>(rows.k()), v = static_cast<size_t>(rows.vocabulary());
  std::vector<double> losses(labels.size()), dx(x.size()), dw(v * k), dbias(v), logits(v);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != -1 && !rows.is_label(labels[i])) return {KernelCode::index_out_of_range, 2, labels[i]};
    for (size_t j = 0; j < v; ++j) {
      rows.weight(static_cast<int64_t>(j));
      logits[j] = rows.logit(x.data() + i * k);
    }
    const double most = v ? *std::max_element(logits.begin(), logits.end()) : 0;
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - most);
    const double whole = most + std::log(sum);
    const int64_t place = rows.place(labels[i]);
    losses[i] = whole - (place >= 0 ? logits[static_cast<size_t>(place)] : 0);
    for (size_t j = 0; j < v; ++j) {
      const std::vector<double>& w = rows.weight(static_cast<int64_t>(j));
      const double chosen = static_cast<int64_t>(j) == place ? 1 : 0;
      const double change = dloss[i] * (std::exp(logits[j] - whole) - chosen) * rows.slope(logits[j]);
      dbias[j] += change;
      for (size_t c = 0; c < k; ++c) {
        dx[i * k + c] += change * w[c];
        dw[j * k + c] += change * x[i * k + c];
      }
    }
  }
  store_all(call.outputs[0], losses);
  store_all(call.outputs[1], dx);
  if (const TensorView of_w = output(call, 2); of_w.present()) store_all(of_w, dw);
  if (const TensorView of_bias = output(call, 3); of_bias.present()) store_all(of_bias, dbias);
  return {};
}

}  // namespace

void add_cross_entropy(KernelTable& table) {
  add<head_statistics>(table, "plait.HeadStatistics", floats);
  add<head_back>(table, "plait.HeadBack", floats);
  add<head_loss>(table, "plait.HeadLoss", floats);
}

}  // namespace plait::reference
