// Ops that ONNX defines by other ops, some of ai.onnx.ml, and the optimizers of its training preview.
#include <cstdint>
#include <numbers>

#include "importers/onnx/compose.h"

namespace plait::onnx_import {
namespace {

ValueId f32(OldNode& old, double number) {
  const auto value = static_cast<float>(number);
  return old.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&value, 1}));
}
ValueId i64(OldNode& old, int64_t number) {
  return old.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{number}).reshaped({}));
}
ValueId as(OldNode& old, ValueId id, DType dtype) {
  return old.emit("Cast", {id}, OldNode::with("to", static_cast<int64_t>(dtype)));
}

/// a0 - a1 cos(t) + a2 cos(2 t), where t turns once over the window, or over one element less if it is symmetric.
void spell_window(OldNode& old, double a0, double a1, double a2) {
  const int64_t to = old.node.attributes.integer("output_datatype", static_cast<int64_t>(DType::f32));
  const ValueId size = as(old, old.required(0), DType::i64);
  const bool periodic = old.node.attributes.integer("periodic", 1) != 0;
  const ValueId steps = periodic ? size : old.emit("Sub", {size, i64(old, 1)});
  const ValueId places = as(old, old.emit("Range", {i64(old, 0), size, i64(old, 1)}), DType::f32);
  const ValueId turn = old.emit("Div", {f32(old, 2 * std::numbers::pi), as(old, steps, DType::f32)});
  const ValueId angle = old.emit("Mul", {places, turn});
  auto wave = [&](double factor, ValueId t) { return old.emit("Mul", {f32(old, factor), old.emit("Cos", {t})}); };
  ValueId out = old.emit("Sub", {f32(old, a0), wave(a1, angle)});
  if (a2 != 0) out = old.emit("Add", {out, wave(a2, old.emit("Mul", {angle, f32(old, 2)}))});
  old.become("Cast", {out}, OldNode::with("to", to));
}

// ---- Optimizers ----

/// The operands of an optimizer: R, T, then of each kind (weights, gradients, states) as many as there are weights.
struct OptimizerStep {
  OptimizerStep(OldNode& old, size_t kinds)
      : old(old), count((old.node.inputs.size() - 2) / kinds), rate(old.required(0)), step(old.required(1)) {
    if (old.node.inputs.size() < 2 + kinds || (old.node.inputs.size() - 2) % kinds)
      throw Error(Code::bad_model, cat("there are ", old.node.inputs.size(), " inputs"));
    if (old.node.outputs.size() != count * (kinds - 1))
      throw Error(Code::bad_model,
                  cat("there are ", old.node.outputs.size(), " outputs, expected ", count * (kinds - 1)));
  }
  ValueId operand(size_t kind, size_t k) const { return old.required(2 + kind * count + k); }
  double attribute(const char* name, double fallback) const { return old.node.attributes.real(name, fallback); }
  ValueId scaled(ValueId a, double factor) const { return old.emit("Mul", {a, old.scalar_like(factor, rate)}); }
  ValueId sum(ValueId a, ValueId b) const { return old.emit("Add", {a, b}); }
  ValueId minus(ValueId a, ValueId b) const { return old.emit("Sub", {a, b}); }
  ValueId product(ValueId a, ValueId b) const { return old.emit("Mul", {a, b}); }
  ValueId quotient(ValueId a, ValueId b) const { return old.emit("Div", {a, b}); }
  ValueId number(double value) const { return old.scalar_like(value, rate); }
  ValueId steps() const { return old.emit("CastLike", {step, rate}); }
  /// Whether this is not the first step.
  ValueId later() const { return old.emit("Greater", {step, i64(old, 0)}); }
  /// The gradient with that of the penalty on weights.
  ValueId regularized(size_t k) const {
    return sum(scaled(operand(0, k), attribute("norm_coefficient", 0)), operand(1, k));
  }
  /// Output `kind` of weight k.
  void give(size_t kind, size_t k, ValueId value) { results.emplace_back(old.output(kind * count + k), value); }
  /// The node becomes the copy of its first output.
  void finish() {
    for (size_t i = 1; i < results.size(); ++i)
      if (results[i].first != no_value) old.emit("Identity", {results[i].second}, {}, results[i].first);
    const ValueId first = results.at(0).second;
    old.become("Identity", {first});
  }

  OldNode& old;
  size_t count;
  ValueId rate, step;
  std::vector<std::pair<ValueId, ValueId>> results = {};
};

}  // namespace

void spell_hann(OldNode& old) { spell_window(old, 0.5, 0.5, 0); }
void spell_hamming(OldNode& old) { spell_window(old, 25.0 / 46, 21.0 / 46, 0); }
void spell_blackman(OldNode& old) { spell_window(old, 0.42, 0.5, 0.08); }

/// (x - mean) / (deviation + 1e-9) over the axes.
void spell_mean_variance(OldNode& old) {
  std::vector<int64_t> axes = old.node.attributes.integers("axes");
  if (!old.node.attributes.has("axes")) axes = {0, 2, 3};
  const ValueId x = old.required(0), over = old.ints(axes);
  const ValueId centred = old.emit("Sub", {x, old.emit("ReduceMean", {x, over})});
  const ValueId variance = old.emit("ReduceMean", {old.emit("Mul", {centred, centred}), over});
  old.become("Div", {centred, old.emit("Add", {old.emit("Sqrt", {variance}), old.scalar_like(1e-9, x)})});
}

/// Swish of the gate, times the value.
void spell_swiglu(OldNode& old) {
  const ValueId gate = old.emit("Swish", {old.required(0)}, old.node.attributes);
  old.become("Mul", {gate, old.required(1)});
}

/// How many strings are left, and these.
void spell_string_normalizer(OldNode& old) {
  const ValueId x = old.required(0), count = old.emit("plait.StringsKept", {x}, old.node.attributes);
  const Attributes attributes = old.node.attributes;
  old.become("plait.StringNormalizer", {x, count}, attributes);
}

/// How many pieces each string has, and the pieces, as many as the most.
void spell_string_split(OldNode& old) {
  const ValueId x = old.required(0), counts = old.output(1), most = old.graph.add_value({});
  Node& pieces = old.graph.add_node("plait.StringPieces", {x}, 0, old.node.attributes);
  pieces.name = old.node.name;
  pieces.outputs = {counts == no_value ? old.graph.add_value({}) : counts, most};
  const Attributes attributes = old.node.attributes;
  old.become("plait.StringSplit", {x, most}, attributes);
}

/// A node without a seed gets one of its own: a run gives the same numbers as the last.
void seed_random(OldNode& old) {
  if (!old.node.attributes.has("seed")) old.node.attributes.set("seed", static_cast<double>(old.output(0)) + 0.5);
}

/// While training_mode is true, elements whose uniform number is below the ratio become zero, and others grow by 1 / (1 - ratio).
void spell_training_dropout(OldNode& old) {
  seed_random(old);
  const ValueId x = old.required(0), training = old.required(2), zero = old.scalar_like(0, x);
  Attributes seed;
  seed.set("seed", old.node.attributes.real("seed", 0));
  const ValueId given = old.input(1) != no_value ? old.emit("CastLike", {old.input(1), x}) : old.scalar_like(0.5, x);
  const ValueId ratio = old.emit("Where", {training, given, zero});
  const ValueId kept =
      old.emit("GreaterOrEqual", {old.emit("RandomUniformLike", {x}, std::move(seed)), ratio}, {}, old.output(1));
  const ValueId grown = old.emit("Div", {x, old.emit("Sub", {old.scalar_like(1, x), ratio})});
  old.become("Where", {kept, grown, zero});
}

/// 1 above the threshold, otherwise 0, in x's type.
void spell_binarizer(OldNode& old) {
  const ValueId x = old.required(0), threshold = old.scalar_like(old.node.attributes.real("threshold", 0), x);
  old.become("CastLike", {old.emit("Greater", {x, threshold}), x});
}

/// Elements of the last axis by number; a list counts as one row.
void spell_feature_extractor(OldNode& old) {
  const ValueId x = old.required(0), numbers = old.emit("Reshape", {old.required(1), old.ints({-1})});
  const ValueId columns = old.emit("Gather", {x, numbers}, OldNode::with("axis", -1));
  // The sizes before the last, or 1 where there are none: of [1, ...sizes] all but the first, if others follow.
  const ValueId sizes =
      old.emit("Concat", {old.ints({1}), old.emit("Shape", {x}, OldNode::with("end", -1))}, OldNode::with("axis", 0));
  const ValueId last = old.emit("Sub", {old.emit("Shape", {sizes}), old.ints({1})});
  const ValueId rows = old.emit("Slice", {sizes, old.emit("Min", {last, old.ints({1})}), old.ints({INT64_MAX})});
  const ValueId shape = old.emit("Concat", {rows, old.emit("Shape", {numbers})}, OldNode::with("axis", 0));
  old.become("Reshape", {columns, shape}, OldNode::with("allowzero", 1));
}

/// Rows [n, f], or one row [f], of each operand as f32, cut to its number of columns or filled up with zeros.
void spell_feature_vectorizer(OldNode& old) {
  const std::vector<int64_t> columns = old.node.attributes.integers("inputdimensions");
  if (columns.size() < old.node.inputs.size())
    throw Error(Code::bad_model, cat("attribute \"inputdimensions\" has ", columns.size(), " numbers for ", old.node.inputs.size(),
                                     " inputs"));
  std::vector<ValueId> parts;
  for (size_t k = 0; k < old.node.inputs.size(); ++k) {
    const ValueId x = as_type(old, old.required(k), DType::f32);
    const ValueId last = old.emit("Shape", {x}, OldNode::with("start", -1));
    const ValueId rows = old.emit("Reshape", {x, joined(old, {old.ints({-1}), last})});
    const ValueId cut = old.emit("Slice", {rows, old.ints({0}), old.ints({columns[k]}), old.ints({1})});
    const ValueId lacks = old.emit("Max", {old.emit("Sub", {old.ints({columns[k]}), last}), old.ints({0})});
    parts.push_back(old.emit("Pad", {cut, joined(old, {old.ints({0, 0, 0}), lacks})}));
  }
  old.become("Concat", std::move(parts), OldNode::with("axis", 1));
}

void spell_adagrad(OldNode& old) {
  OptimizerStep s(old, 3);
  const ValueId rate = s.quotient(s.rate, s.sum(s.number(1), s.scaled(s.steps(), s.attribute("decay_factor", 0))));
  for (size_t k = 0; k < s.count; ++k) {
    const ValueId g = s.regularized(k), squares = s.sum(s.operand(2, k), s.product(g, g));
    const ValueId adapted = s.sum(old.emit("Sqrt", {squares}), s.number(s.attribute("epsilon", 1e-6)));
    s.give(0, k, s.minus(s.operand(0, k), s.quotient(s.product(rate, g), adapted)));
    s.give(1, k, squares);
  }
  s.finish();
}

void spell_adam(OldNode& old) {
  OptimizerStep s(old, 4);
  const double alpha = s.attribute("alpha", 0.9), beta = s.attribute("beta", 0.999);
  auto remaining = [&](double base) { return s.minus(s.number(1), old.emit("Pow", {s.number(base), s.steps()})); };
  const ValueId corrected = s.quotient(s.product(s.rate, old.emit("Sqrt", {remaining(beta)})), remaining(alpha));
  const ValueId rate = old.emit("Where", {s.later(), corrected, s.rate});
  for (size_t k = 0; k < s.count; ++k) {
    const ValueId g = s.regularized(k);
    const ValueId mean = s.sum(s.scaled(s.operand(2, k), alpha), s.scaled(g, 1 - alpha));
    const ValueId squares = s.sum(s.scaled(s.operand(3, k), beta), s.scaled(s.product(g, g), 1 - beta));
    const ValueId root = s.sum(old.emit("Sqrt", {squares}), s.number(s.attribute("epsilon", 1e-6)));
    const ValueId moved = s.minus(s.operand(0, k), s.quotient(s.product(rate, mean), root));
    s.give(0, k, s.scaled(moved, 1 - s.attribute("norm_coefficient_post", 0)));
    s.give(1, k, mean);
    s.give(2, k, squares);
  }
  s.finish();
}

void spell_momentum(OldNode& old) {
  OptimizerStep s(old, 3);
  const double alpha = s.attribute("alpha", 0), beta = s.attribute("beta", 1);
  const bool nesterov = old.node.attributes.string("mode", "standard") == "nesterov";
  const ValueId factor = old.emit("Where", {s.later(), s.number(beta), s.number(1)});
  for (size_t k = 0; k < s.count; ++k) {
    const ValueId g = s.regularized(k), momentum = s.sum(s.scaled(s.operand(2, k), alpha), s.product(factor, g));
    const ValueId direction = nesterov ? s.sum(g, s.scaled(momentum, alpha)) : momentum;
    s.give(0, k, s.minus(s.operand(0, k), s.product(s.rate, direction)));
    s.give(1, k, momentum);
  }
  s.finish();
}

}  // namespace plait::onnx_import
