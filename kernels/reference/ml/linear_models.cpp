// LinearRegressor and LinearClassifier, in f32 as the standard's coefficients.
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/ml/lists.h"
#include "kernels/reference/ml/post_transform.h"
#include "kernels/reference/ml/register.h"

namespace plait::reference {
namespace {

struct LinearScores {
  LinearScores(const NodeInfo& node, int64_t targets)
      : coefficients(narrowed(reals_of(node.attributes, "coefficients"))),
        intercepts(narrowed(reals_of(node.attributes, "intercepts"))),
        targets(targets),
        transform(post_transform_of(node.attributes.string("post_transform", "NONE"))) {
    const auto count = std::ssize(intercepts);
    if (targets < 1 || coefficients.empty() || std::ssize(coefficients) % targets || (count && count != targets))
      throw Error(Code::bad_model, "the numbers of coefficients, intercepts and targets do not fit");
  }
  bool fits(const TensorView& x) const { return Table(x).columns == std::ssize(coefficients) / targets; }
  /// Of x [n, f]: [n, targets].
  std::vector<float> of(const TensorView& x, ThreadPool& pool) const {
    const Table table(x);
    const std::vector<float> rows = load_all<float>(x);
    std::vector<float> out(static_cast<size_t>(table.rows * targets));
    share(pool, table.rows, table.rows * targets * table.columns, [&](int64_t row) {
      for (int64_t target = 0; target < targets; ++target)
        out[static_cast<size_t>(row * targets + target)] =
            dot(rows.data() + row * table.columns, coefficients.data() + target * table.columns, table.columns) +
            (intercepts.empty() ? 0 : intercepts[static_cast<size_t>(target)]);
    });
    return out;
  }

  std::vector<float> coefficients, intercepts;  ///< [targets, f]; [targets] or empty
  int64_t targets;
  PostTransform transform;
};

struct LinearRegression : LinearScores {
  explicit LinearRegression(const NodeInfo& node) : LinearScores(node, node.attributes.integer("targets", 1)) {}
};

KernelStatus regress(const KernelCall& call, const LinearRegression& model) {
  const TensorView& x = call.inputs[0];
  if (!model.fits(x)) return {KernelCode::bad_value, 0, x.shape.back(1)};
  std::vector<float> scores = model.of(x, call.pool);
  const auto wide = static_cast<size_t>(model.targets);
  for (size_t at = 0; at < scores.size(); at += wide)
    transform_scores(std::span(scores).subspan(at, wide), model.transform);
  store_all(call.outputs[0], scores);
  return {};
}

struct LinearClasses : LinearScores {
  explicit LinearClasses(const NodeInfo& node)
      : LinearScores(node, std::ssize(reals_of(node.attributes, "intercepts"))),
        labels(node.attributes, "classlabels_ints") {
    if (targets == 1 && transform == PostTransform::probit)
      throw Error(Code::unsupported,
                  "post_transform PROBIT of one score for two labels has no meaning that engines share",
                  "write the model with post_transform NONE or LOGISTIC, or with coefficients for both labels");
    if (std::ssize(labels.ints) != (targets == 1 ? 2 : targets))
      throw Error(Code::bad_model, cat("there are ", labels.ints.size(), " labels and ", targets, " intercepts"));
  }
  LabelList labels;
};

/// One score of two labels chooses the second where it is positive, and is the second's; the first's is the rest to 1.
KernelStatus classify(const KernelCall& call, const LinearClasses& model) {
  const TensorView& x = call.inputs[0];
  if (!model.fits(x)) return {KernelCode::bad_value, 0, x.shape.back(1)};
  std::vector<float> scores = model.of(x, call.pool), all;
  std::vector<int64_t> labels;
  const auto wide = static_cast<size_t>(model.targets);
  for (size_t at = 0; at < scores.size(); at += wide) {
    const std::span<float> row = std::span(scores).subspan(at, wide);
    size_t best = wide == 1 && row[0] > 0 ? 1 : 0;
    for (size_t i = 1; i < wide; ++i) best = row[i] > row[best] ? i : best;
    labels.push_back(model.labels.ints[best]);
    if (wide == 1) {
      const float second = model.transform == PostTransform::logistic ? logistic(row[0]) : row[0];
      all.insert(all.end(), {1 - second, second});
    } else {
      transform_scores(row, model.transform);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  const TensorView y = output(call, 0);
  const std::vector<uint64_t> numbers = y.dtype == DType::string ? model.labels.numbers(call) : std::vector<uint64_t>();
  for (size_t i = 0; i < labels.size() && y.present(); ++i) {
    if (numbers.empty()) store_one(y, static_cast<int64_t>(i), labels[i]);
    else put_bits(y, static_cast<int64_t>(i), numbers[static_cast<size_t>(labels[i])]);
  }
  if (output(call, 1).dtype != DType::none) store_all(call.outputs[1], all);
  return {};
}

}  // namespace

void add_linear_models(KernelTable& table) {
  add<regress>(table, "ai.onnx.ml.LinearRegressor", four_types);
  add<classify>(table, "ai.onnx.ml.LinearClassifier", four_types);
}

}  // namespace plait::reference
