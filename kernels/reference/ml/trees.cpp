// TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier. Trees are added in the file's order, in f32 unless x is f64. Where
// the standard leaves a choice, results are those of ONNX Runtime (1.31): its treatment of base values, and of two classes.
#include <algorithm>
#include <set>

#include "kernels/reference/base/multiply.h"
#include "kernels/reference/ml/forest.h"
#include "kernels/reference/ml/lists.h"
#include "kernels/reference/ml/register.h"

namespace plait::reference {
namespace {

/// The scores of one row: by target, and whether a leaf has set them.
template <class N>
struct RowScores {
  std::vector<N> score;
  std::vector<uint8_t> set;

  void gather(const Forest& forest, const N* row) {
    score.assign(static_cast<size_t>(forest.targets), 0);
    set.assign(static_cast<size_t>(forest.targets), 0);
    for (TreePlace root : forest.roots)
      for (const LeafWeight& leaf : forest.leaf_of(root, row)) add(forest.aggregate, leaf);
    if (forest.aggregate == Aggregate::average)
      for (N& one : score) one /= static_cast<N>(forest.roots.size());
  }
  void add(Aggregate aggregate, const LeafWeight& leaf) {
    N& to = score[static_cast<size_t>(leaf.target)];
    const N weight = static_cast<N>(leaf.weight);
    uint8_t& was_set = set[static_cast<size_t>(leaf.target)];
    if (aggregate == Aggregate::min) to = was_set ? std::min(to, weight) : weight;
    else if (aggregate == Aggregate::max) to = was_set ? std::max(to, weight) : weight;
    else to += weight;
    was_set = 1;
  }
  /// A target that no leaf has set is 0.
  void clear_unset() {
    for (size_t i = 0; i < score.size(); ++i)
      if (!set[i]) score[i] = 0;
  }
};

/// Calls finish(row, scores) for each row of x: over the pool, each row by one worker.
template <class N, class Finish>
KernelStatus each_row(const KernelCall& call, const Forest& forest, Finish finish) {
  const TensorView& x = call.inputs[0];
  const Table table(x);
  if (table.columns < forest.features) return {KernelCode::bad_value, 0, table.columns};
  const int64_t work = 16 * (std::ssize(forest.roots) + forest.targets) + table.columns;
  constexpr int64_t block = 64;
  share(call.pool, (table.rows + block - 1) / block, table.rows * work, [&](int64_t at) {
    RowScores<N> scores;
    std::vector<N> values(static_cast<size_t>(table.columns));
    for (int64_t row = at * block; row < std::min(table.rows, (at + 1) * block); ++row) {
      load(x, row * table.columns, table.columns, values.data());
      scores.gather(forest, values.data());
      finish(row, scores);
    }
  });
  return {};
}

struct Regression {
  explicit Regression(const NodeInfo& node)
      : forest(node.op == "ai.onnx.ml.TreeEnsemble"
                   ? read_forest(node.attributes)
                   : read_listed_forest(node.attributes, "target", node.attributes.integer("n_targets", 0))) {
    if (!forest.base.empty() && std::ssize(forest.base) != forest.targets)
      throw Error(Code::bad_model,
                  cat("there are ", forest.base.size(), " base values for ", forest.targets, " targets"));
  }
  Forest forest;
};

template <class N>
KernelStatus regress_rows(const KernelCall& call, const Forest& forest) {
  const TensorView& y = call.outputs[0];
  return each_row<N>(call, forest, [&](int64_t row, RowScores<N>& scores) {
    for (size_t i = 0; i < forest.base.size(); ++i) scores.score[i] += static_cast<N>(forest.base[i]);
    if (forest.targets > 1) scores.clear_unset();  // of several targets: also without their base value
    transform_scores(std::span(scores.score), forest.transform);
    store(y, row * forest.targets, forest.targets, scores.score.data());
  });
}

KernelStatus regress_trees(const KernelCall& call, const Regression& model) {
  return call.inputs[0].dtype == DType::f64 ? regress_rows<double>(call, model.forest)
                                            : regress_rows<float>(call, model.forest);
}

struct Classification {
  explicit Classification(const NodeInfo& node)
      : list(node.attributes, "classlabels_int64s"),
        labels(list.ints),
        forest(read_listed_forest(node.attributes, "class", std::ssize(labels))) {
    if (list.texts.size() == 1)
      throw Error(Code::unsupported, "one label that is a string has no meaning that engines share: scores choose 1 or 0",
                  "write the model with two labels, or with the label in classlabels_int64s");
    std::set<int32_t> classes;
    for (const auto& leaf : forest.leaves)
      for (const LeafWeight& one : leaf) {
        classes.insert(one.target);
        positive = positive && one.weight >= 0;
      }
    const size_t base = forest.base.size();
    binary = labels.size() == 2 && classes.size() <= 1;
    const bool one_for_two = labels.size() == 2 && base == 1;
    if (base != 0 && base != labels.size() && !one_for_two)
      throw Error(Code::bad_model, cat("there are ", base, " base values for ", labels.size(), " classes"));
    if (one_for_two && !binary)
      throw Error(Code::unsupported,
                  "one base value for two classes that both have weights has no meaning that engines share",
                  "write one base value for each class");
    if (labels.size() == 2 && base != 2 && forest.transform == PostTransform::probit)
      throw Error(Code::unsupported,
                  "post_transform PROBIT of one score for two classes has no meaning that engines share",
                  "write the model with post_transform NONE, or with base values for both classes");
  }
  LabelList list;
  std::vector<int64_t> labels;  ///< of strings their places
  Forest forest;
  bool binary = false;   ///< two classes, and weights of one of them only
  bool positive = true;  ///< no weight is negative
};

/// Two classes with weights of both have the labels 1 and 0, whatever the list of labels (of strings the second and the first one): so
/// does ONNX Runtime.
template <class N>
int64_t label_of_two(const Classification& model, const RowScores<N>& scores) {
  const N weight = scores.set[1] ? scores.score[1] : scores.score[0];
  if (!model.binary) return weight > 0 ? 1 : 0;
  return model.labels[weight > (model.positive ? N(0.5) : N(0)) ? 1 : 0];
}

/// Both scores from the only one, which is the second's: the rest to 1 where scores are probabilities, otherwise the negative.
template <class N>
void complete_two(const Classification& model, RowScores<N>& scores) {
  const N only = scores.score[0];
  if (model.forest.transform == PostTransform::logistic) {
    scores.score = {logistic(-only), logistic(only)};
    return;
  }
  scores.score = {model.binary && model.positive ? 1 - only : -only, only};
}

template <class N>
int64_t finish_two(const Classification& model, RowScores<N>& scores) {
  const std::vector<double>& base = model.forest.base;
  if (base.size() == 2 && scores.set[1]) {
    scores.score[1] = static_cast<N>(base[1]) + scores.score[0];
    scores.score[0] = -scores.score[1];
  } else if (!base.empty()) {
    scores.score[0] += static_cast<N>(base[0]);
  }
  const int64_t label = label_of_two(model, scores);
  if (base.size() < 2 && !scores.set[1]) {
    complete_two(model, scores);
    return label;
  }
  scores.clear_unset();
  transform_scores(std::span(scores.score), model.forest.transform);
  return label;
}

template <class N>
int64_t finish_many(const Classification& model, RowScores<N>& scores) {
  for (size_t i = 0; i < model.forest.base.size(); ++i) {
    scores.score[i] += static_cast<N>(model.forest.base[i]);
    scores.set[i] = 1;
  }
  if (model.labels.size() == 1) {
    const int64_t label = scores.score[0] > 0 ? 1 : 0;
    transform_scores(std::span(scores.score), model.forest.transform);
    return label;
  }
  size_t best = 0;
  for (size_t i = 1; i < scores.score.size(); ++i)
    if (scores.set[i] && (!scores.set[best] || scores.score[i] > scores.score[best])) best = i;
  transform_scores(std::span(scores.score), model.forest.transform);
  return model.labels[best];
}

template <class N>
KernelStatus classify_rows(const KernelCall& call, const Classification& model) {
  const TensorView y = output(call, 0), z = output(call, 1);
  const int64_t classes = model.forest.targets;
  const std::vector<uint64_t> numbers = y.dtype == DType::string ? model.list.numbers(call) : std::vector<uint64_t>();
  return each_row<N>(call, model.forest, [&](int64_t row, RowScores<N>& scores) {
    const int64_t label = classes == 2 ? finish_two(model, scores) : finish_many(model, scores);
    if (!numbers.empty()) put_bits(y, row, numbers[static_cast<size_t>(label)]);
    else if (y.dtype != DType::none) store_one(y, row, label);
    if (z.dtype != DType::none) store(z, row * classes, classes, scores.score.data());
  });
}

KernelStatus classify_trees(const KernelCall& call, const Classification& model) {
  return call.inputs[0].dtype == DType::f64 ? classify_rows<double>(call, model) : classify_rows<float>(call, model);
}

constexpr Domain tree_types{"f16, f32, f64", [](const NodeInfo& node) {
                              return first_is(node, [](DType dtype) {
                                return dtype == DType::f16 || dtype == DType::f32 || dtype == DType::f64;
                              });
                            }};

}  // namespace

void add_trees(KernelTable& table) {
  add<regress_trees>(table, "ai.onnx.ml.TreeEnsemble", tree_types);
  add<regress_trees>(table, "ai.onnx.ml.TreeEnsembleRegressor", four_types);
  add<classify_trees>(table, "ai.onnx.ml.TreeEnsembleClassifier", four_types);
}

}  // namespace plait::reference
