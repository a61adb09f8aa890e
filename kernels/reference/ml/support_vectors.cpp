// SVMRegressor and SVMClassifier (Cortes and Vapnik 1995), in f32 as the standard's coefficients. What the standard leaves open is as in
// ONNX Runtime.
#include <algorithm>
#include <numeric>

#include "kernels/reference/base/multiply.h"
#include "kernels/reference/ml/lists.h"
#include "kernels/reference/ml/post_transform.h"
#include "kernels/reference/ml/register.h"

namespace plait::reference {
namespace {

/// What x and a support vector have in common.
struct Likeness {
  explicit Likeness(const NodeInfo& node) : kind(node.attributes.string("kernel_type", "LINEAR")) {
    const std::vector<float> parameters = narrowed(reals_of(node.attributes, "kernel_params"));
    if (parameters.size() > 0) gamma = parameters[0];
    if (parameters.size() > 1) offset = parameters[1];
    if (parameters.size() > 2) degree = parameters[2];
    if (kind != "LINEAR" && kind != "POLY" && kind != "RBF" && kind != "SIGMOID")
      throw Error(Code::bad_model,
                  cat("attribute \"kernel_type\" is ", quote(kind), ", expected LINEAR, POLY, RBF or SIGMOID"));
  }
  float of(const float* x, const float* vector, int64_t features) const {
    if (kind == "RBF") {
      float sum = 0;
      for (int64_t i = 0; i < features; ++i) sum += (x[i] - vector[i]) * (x[i] - vector[i]);
      return std::exp(-gamma * sum);
    }
    const float product = dot(x, vector, features);
    if (kind == "POLY") return std::pow(gamma * product + offset, degree);
    return kind == "SIGMOID" ? std::tanh(gamma * product + offset) : product;
  }
  std::string kind;
  float gamma = 0, offset = 0, degree = 0;
};

struct Machine {
  Machine(const NodeInfo& node, int64_t vectors, int64_t rows_without)
      : likeness(node),
        coefficients(narrowed(reals_of(node.attributes, "coefficients"))),
        rho(narrowed(reals_of(node.attributes, "rho"))),
        vectors(narrowed(reals_of(node.attributes, "support_vectors"))),
        count(vectors) {
    const std::vector<float>& rows = count ? this->vectors : coefficients;
    const int64_t number = count ? count : rows_without;
    if (number < 1 || rows.empty() || std::ssize(rows) % number || rho.empty())
      throw Error(Code::bad_model, "the numbers of coefficients, rho and support vectors do not fit");
    features = std::ssize(rows) / number;
    if (!count) likeness.kind = "LINEAR";
  }
  bool fits(const TensorView& x) const { return Table(x).columns == features; }

  Likeness likeness;
  std::vector<float> coefficients, rho, vectors;
  int64_t count, features = 0;  ///< of support vectors; without any the coefficients are rows themselves
};

struct Regressor : Machine {
  explicit Regressor(const NodeInfo& node)
      : Machine(node, node.attributes.integer("n_supports", 0), 1),
        one_class(node.attributes.integer("one_class", 0) != 0) {
    if (std::ssize(coefficients) < count)
      throw Error(Code::bad_model, "there are fewer coefficients than support vectors");
  }
  bool one_class;  ///< whether x belongs to it: 1 or -1
};

KernelStatus svm_regress(const KernelCall& call, const Regressor& model) {
  const TensorView& x = call.inputs[0];
  if (!model.fits(x)) return {KernelCode::bad_value, 0, x.shape.back(1)};
  const Table table(x);
  const std::vector<float> rows = load_all<float>(x);
  std::vector<float> out(static_cast<size_t>(table.rows));
  share(call.pool, table.rows, table.rows * std::max<int64_t>(model.count, 1) * model.features, [&](int64_t row) {
    const float* const features = rows.data() + row * model.features;
    float sum = model.rho[0];
    if (!model.count) sum += dot(features, model.coefficients.data(), model.features);
    for (int64_t i = 0; i < model.count; ++i)
      sum += model.coefficients[static_cast<size_t>(i)] *
             model.likeness.of(features, model.vectors.data() + i * model.features, model.features);
    out[static_cast<size_t>(row)] = model.one_class ? (sum > 0 ? 1.0f : -1.0f) : sum;
  });
  store_all(call.outputs[0], out);
  return {};
}

struct Classifier : Machine {
  explicit Classifier(const NodeInfo& node)
      : Machine(node, total(node), std::ssize(LabelList(node.attributes, "classlabels_ints").ints)),
        labels(node.attributes, "classlabels_ints"),
        each(node.attributes.integers("vectors_per_class")),
        prob_a(narrowed(reals_of(node.attributes, "prob_a"))),
        prob_b(narrowed(reals_of(node.attributes, "prob_b"))),
        transform(post_transform_of(node.attributes.string("post_transform", "NONE"))) {
    const size_t classes = labels.ints.size(), pairs = classes * (classes - 1) / 2;
    if (classes < 2 || (count && (each.size() != classes || rho.size() < pairs ||
                                  coefficients.size() < (classes - 1) * static_cast<size_t>(count) ||
                                  prob_a.size() != prob_b.size() || (!prob_a.empty() && prob_a.size() < pairs))))
      throw Error(Code::bad_model, "the numbers of labels, coefficients, rho and probabilities do not fit");
    if (count && prob_a.empty() && classes == 2 && transform == PostTransform::probit)
      throw Error(Code::unsupported,
                  "post_transform PROBIT of one score for two labels has no meaning that engines share",
                  "write the model with post_transform NONE or LOGISTIC");
  }
  static int64_t total(const NodeInfo& node) {
    const std::vector<int64_t> all = node.attributes.integers("vectors_per_class");
    return std::accumulate(all.begin(), all.end(), int64_t{0});
  }
  bool has_shares() const { return count && !prob_a.empty(); }

  LabelList labels;
  std::vector<int64_t> each;  ///< support vectors of each class
  std::vector<float> prob_a, prob_b;
  PostTransform transform;
};

/// Of two classes each, in order (0, 1), (0, 2) ...: above 0 for the first. `votes`: by class, how many pairs choose it.
std::vector<float> scores_of_pairs(const Classifier& model, const float* x, std::vector<int64_t>& votes) {
  std::vector<float> likeness(static_cast<size_t>(model.count)), out;
  for (int64_t i = 0; i < model.count; ++i)
    likeness[static_cast<size_t>(i)] =
        model.likeness.of(x, model.vectors.data() + i * model.features, model.features);
  std::vector<size_t> first{0};
  for (int64_t one : model.each) first.push_back(first.back() + static_cast<size_t>(one));
  const size_t classes = votes.size();
  auto part = [&](size_t of, size_t row) {
    double sum = 0;
    for (size_t i = first[of]; i < first[of + 1]; ++i)
      sum += model.coefficients[row * static_cast<size_t>(model.count) + i] * likeness[i];
    return sum;
  };
  for (size_t i = 0; i < classes; ++i)
    for (size_t j = i + 1; j < classes; ++j) {
      const double sum = part(i, j - 1) + part(j, i) + model.rho[out.size()];
      out.push_back(static_cast<float>(sum));
      ++votes[sum > 0 ? i : j];
    }
  return out;
}

/// Probabilities of classes by those of pairs (Wu, Lin and Weng 2004, algorithm 2); `pairs` [i * n + j]: of i, if it is i or j.
std::vector<float> coupled(const std::vector<float>& pairs, size_t n) {
  std::vector<float> q(n * n), p(n, 1.0f / static_cast<float>(n)), qp(n);
  for (size_t t = 0; t < n; ++t)
    for (size_t j = 0; j < n; ++j) {
      if (j == t) continue;
      q[t * n + t] += pairs[j * n + t] * pairs[j * n + t];
      q[t * n + j] = -pairs[j * n + t] * pairs[t * n + j];
    }
  const float enough = 0.005f / static_cast<float>(n);
  for (int round = 0; round < 100; ++round) {
    float pqp = 0, error = 0;
    for (size_t t = 0; t < n; ++t) {
      qp[t] = 0;
      for (size_t j = 0; j < n; ++j) qp[t] += q[t * n + j] * p[j];
      pqp += p[t] * qp[t];
    }
    for (size_t t = 0; t < n; ++t) error = std::max(error, std::fabs(qp[t] - pqp));
    if (error < enough) break;
    for (size_t t = 0; t < n; ++t) {
      const float step = (-qp[t] + pqp) / q[t * n + t];
      p[t] += step;
      pqp = (pqp + step * (step * q[t * n + t] + 2 * qp[t])) / (1 + step) / (1 + step);
      for (size_t j = 0; j < n; ++j) {
        qp[j] = (qp[j] + step * q[t * n + j]) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
  return p;
}

/// By Platt's sigmoids of the scores of pairs.
std::vector<float> shares_of(const Classifier& model, const std::vector<float>& scores, size_t n) {
  std::vector<float> pairs(n * n);
  size_t at = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j, ++at) {
      const float share =
          std::clamp(1 - logistic(scores[at] * model.prob_a[at] + model.prob_b[at]), 1e-7f, 1 - 1e-7f);
      pairs[i * n + j] = share;
      pairs[j * n + i] = 1 - share;
    }
  return coupled(pairs, n);
}

/// The place of the row's label, and its scores at the end of `all`.
size_t classify_row(const Classifier& model, const float* x, std::vector<float>& all) {
  const size_t classes = model.labels.ints.size();
  std::vector<float> scores;
  std::vector<int64_t> votes(classes);
  size_t label = 0;
  if (model.count) {
    scores = scores_of_pairs(model, x, votes);
    label = static_cast<size_t>(std::max_element(votes.begin(), votes.end()) - votes.begin());
    if (model.has_shares()) scores = shares_of(model, scores, classes);
  } else {
    for (size_t i = 0; i < classes; ++i)
      scores.push_back(dot(x, model.coefficients.data() + static_cast<int64_t>(i) * model.features, model.features) +
                       model.rho[0]);
    label = static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    const bool positive =
        std::all_of(model.coefficients.begin(), model.coefficients.end(), [](float one) { return one >= 0; });
    if (classes == 2 && (positive ? scores[label] >= 0.5f : scores[label] > 0)) label = 1;
  }
  if (scores.size() == 1) {  // of two classes: the first's is what the second's leaves
    const float score = scores[0];
    switch (model.transform) {
      case PostTransform::none: scores = {-score, score}; break;
      case PostTransform::logistic: scores = {logistic(-score), logistic(score)}; break;
      default: scores = {1 - score, score};
    }
  } else {
    transform_scores(std::span(scores), model.transform);
  }
  all.insert(all.end(), scores.begin(), scores.end());
  return label;
}

KernelStatus svm_classify(const KernelCall& call, const Classifier& model) {
  const TensorView& x = call.inputs[0];
  if (!model.fits(x)) return {KernelCode::bad_value, 0, x.shape.back(1)};
  const Table table(x);
  const std::vector<float> rows = load_all<float>(x);
  std::vector<float> all;
  const TensorView y = output(call, 0);
  const std::vector<uint64_t> numbers =
      y.dtype == DType::string ? model.labels.numbers(call) : std::vector<uint64_t>();
  for (int64_t row = 0; row < table.rows; ++row) {
    const size_t label = classify_row(model, rows.data() + row * table.columns, all);
    if (!y.present()) continue;
    if (numbers.empty()) store_one(y, row, model.labels.ints[label]);
    else put_bits(y, row, numbers[label]);
  }
  if (output(call, 1).dtype != DType::none) store_all(call.outputs[1], all);
  return {};
}

}  // namespace

void add_support_vectors(KernelTable& table) {
  add<svm_regress>(table, "ai.onnx.ml.SVMRegressor", four_types);
  add<svm_classify>(table, "ai.onnx.ml.SVMClassifier", four_types);
}

}  // namespace plait::reference
