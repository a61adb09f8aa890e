// Every op whose schema row has a gradient: what its nodes compute is held against central differences in f64, for
// the standard's own cases and for instances of Plait's own ops, with sizes that are numbers and sizes that are
// symbols. A new row is tested by being there; one without a case fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/passes/base/evaluate.h"
#include "tests/unit/gradients/attribute_cases.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/instances.h"
#include "tests/unit/support/golden.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

using Bound = std::map<ValueId, Tensor>;

/// One node and its operands, floats in f64 and a little away from where they were, so that no kink is hit.
struct Trial {
  std::string name;
  Node node;
  std::vector<Tensor> operands;
};

/// Each element `inwards` is nearer to 0 by some hundredths, others further from it.
Tensor in_f64(const Tensor& tensor, bool inwards, std::mt19937& random) {
  Tensor out(DType::f64, tensor.shape());
  std::uniform_real_distribution<double> distance(0.01, 0.05);
  for (int64_t i = 0; i < out.elements(); ++i) {
    const double given = element(tensor, i), value = std::isnan(given) ? 0 : given, away = distance(random);
    out.as<double>()[i] = std::isfinite(value) ? value + ((value < 0) == inwards ? away : -away) : value;
  }
  return out;
}

/// nullopt where no operand can be f64. Domains like [-1, 1] are not left inwards, those like [1, inf) outwards.
std::optional<Trial> trial_of(const std::string& name, const Node& node, const std::vector<Tensor>& operands,
                              bool inwards) {
  Trial out{name, node, operands};
  const OpSchema& schema = *World::get().ops.find(node.op);
  std::mt19937 random(5);
  // Integers, where there are no floats and these might be some.
  const bool floats =
      std::any_of(operands.begin(), operands.end(), [](const Tensor& one) { return is_float(one.dtype()); });
  bool any = false;
  for (size_t k = 0; k < operands.size(); ++k) {
    const TypeSet* types = TypeRule::of(schema.type_rule.operands, k);
    const DType dtype = operands[k].dtype();
    const bool may = floats ? is_float(dtype) : is_integer(dtype) && types;
    if (!may || (types && !types->has(DType::f64))) continue;
    out.operands[k] = in_f64(operands[k], inwards, random);
    any = true;
  }
  for (const char* name_of_type : {"to", "stash_type", "softmax_precision", "output_dtype"})
    if (is_float(static_cast<DType>(node.attributes.integer(name_of_type, 0))))
      out.node.attributes.set(name_of_type, static_cast<int64_t>(DType::f64));
  const bool has_stash = std::any_of(schema.attributes.begin(), schema.attributes.end(),
                                     [](const AttributeRow& row) { return row.name == "stash_type"; });
  if (has_stash) out.node.attributes.set("stash_type", static_cast<int64_t>(DType::f64));
  if (node.op == "plait.Embedding") out.node.attributes.set("to", static_cast<int64_t>(DType::f64));
  if (!any) return std::nullopt;
  return out;
}

/// The node in a graph: floats are inputs, others constants; after each output that is a float an input for what it
/// is multiplied by.
struct Setting {
  Graph graph;
  Bound bound;                                     ///< of the inputs
  std::vector<std::pair<size_t, ValueId>> inputs;  ///< operand, value
  std::vector<GradientSeed> seeds;                 ///< of the outputs that are floats
  std::map<SymbolId, int64_t> sizes;
  bool whole = true;  ///< no output is NaN

  /// Throws what inference does.
  Setting(const Trial& trial, bool symbolic) {
    std::vector<ValueId> operands;
    for (size_t k = 0; k < trial.operands.size(); ++k) {
      const Tensor& tensor = trial.operands[k];
      if (!tensor.present()) operands.push_back(no_value);
      else if (tensor.dtype() != DType::f64) operands.push_back(graph.add_constant(tensor));
      else operands.push_back(input(cat("x", k), tensor, dims_of(tensor.shape(), symbolic)));
      if (tensor.dtype() == DType::f64) inputs.emplace_back(k, operands.back());
    }
    Node& node =
        graph.add_node(trial.node.op, operands, static_cast<int>(trial.node.outputs.size()), trial.node.attributes);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (trial.node.outputs[k] == no_value) node.outputs[k] = no_value;
    Knowledge knowledge;
    infer_graph(World::get().ops, graph, knowledge);
    const std::vector<ValueId> outputs = node.outputs;
    std::mt19937 random(9);
    std::normal_distribution<double> normal;
    for (ValueId id : outputs) {
      if (id == no_value || !is_float(graph.value(id).type.dtype)) continue;
      const Tensor made = value(id);
      for (int64_t i = 0; i < made.elements(); ++i) whole = whole && !std::isnan(element(made, i));
      Tensor weights(made.dtype(), made.shape());
      for (int64_t i = 0; i < weights.elements(); ++i)  // what is not finite takes no part
        set_element(weights, i, std::isfinite(element(made, i)) ? normal(random) : 0);
      if (!graph.value(id).type.dims) throw Error(Code::unsupported, "the rank of an output is not known");
      seeds.push_back({id, input(cat("c", id), weights, *graph.value(id).type.dims)});
    }
  }

  Tensor value(ValueId id) const { return values({id})[0]; }
  std::vector<Tensor> values(const std::vector<ValueId>& ids) const {
    const PassContext context{reference_options()};
    Evaluator evaluator(context, graph);
    for (const auto& [at, tensor] : bound) evaluator.bind(at, tensor);
    for (const auto& [symbol, size] : sizes) evaluator.bind_symbol(symbol, size);
    std::vector<Tensor> out;
    for (ValueId id : ids) out.push_back(evaluator.value(id));
    return out;
  }

  /// A symbol is taken for the number that another operand has in its place.
  std::vector<int64_t> sizes_of(const Type& type) const {
    std::vector<int64_t> values(static_cast<size_t>(graph.symbols.size()), -1), out;
    for (const auto& [symbol, size] : sizes) values[static_cast<size_t>(symbol)] = size;
    for (const Dim& dim : type.dims.value_or(Dims{-1})) out.push_back(dim.evaluate(values));
    return out;
  }

 private:
  ValueId input(const std::string& name, const Tensor& tensor, Dims dims) {
    const ValueId id = graph.add_value(name, {tensor.dtype(), std::move(dims)});
    graph.inputs.push_back(id);
    bound[id] = tensor;
    return id;
  }
  /// Equal sizes are one symbol.
  Dims dims_of(const Shape& shape, bool symbolic) {
    Dims out;
    for (int64_t size : shape) {
      if (!symbolic || size < 2) {
        out.push_back(Dim(size));
        continue;
      }
      const SymbolId symbol = graph.symbols.intern(cat("n", size));
      sizes[symbol] = size;
      out.push_back(Dim::symbol(symbol));
    }
    return out;
  }
};

/// The scalar whose gradient is taken, and the size of its terms.
struct Scalar {
  double sum = 0, terms = 0;
};
Scalar scalar_of(const Setting& setting, const std::vector<GradientSeed>& seeds) {
  Scalar out;
  std::vector<ValueId> ids;
  for (const GradientSeed& seed : seeds) ids.push_back(seed.value);
  const std::vector<Tensor> all = setting.values(ids);
  for (size_t k = 0; k < seeds.size(); ++k) {
    const Tensor &made = all[k], &weights = setting.bound.at(seeds[k].gradient);
    for (int64_t i = 0; i < made.elements(); ++i) {
      if (element(weights, i) == 0) continue;
      const double term = element(made, i) * element(weights, i);
      out.sum += term;
      out.terms += std::fabs(term);
    }
  }
  return out;
}

/// The derivative along `direction` by five points, the error of which is h^4 f5 / 30.
double difference(Setting setting, const std::vector<GradientSeed>& seeds, ValueId id,
                  const std::vector<double>& direction) {
  constexpr double h = 1e-5;
  const Tensor at = setting.bound.at(id);
  auto moved = [&](double by) {
    Tensor x(DType::f64, at.shape());
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double step = direction[static_cast<size_t>(i)];
      x.as<double>()[i] = step == 0 ? element(at, i) : element(at, i) + by * step;
    }
    setting.bound[id] = x;
    return scalar_of(setting, seeds).sum;
  };
  return (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
}

/// Each element where there are few, otherwise random signs for all.
std::vector<std::vector<double>> directions(const Tensor& at) {
  std::vector<std::vector<double>> out;
  const auto count = static_cast<size_t>(at.elements());
  std::mt19937 random(3);
  const size_t tries = count <= 24 ? count : 8;
  for (size_t i = 0; i < tries; ++i) {
    std::vector<double> one(count);
    for (size_t j = 0; j < count; ++j)
      if (std::isfinite(element(at, static_cast<int64_t>(j))))
        one[j] = count <= 24 ? (i == j) : (random() & 1 ? 1 : -1) / std::sqrt(static_cast<double>(count));
    out.push_back(std::move(one));
  }
  return out;
}

/// Ops with bodies, and on lists, which are no tensors here: control_test.cpp tries them in graphs that run.
bool runs_in_graphs(std::string_view op) {
  return op == "If" || op == "Loop" || op.starts_with("Sequence") || op.ends_with("ToSequence") ||
         op.ends_with("FromSequence");
}

/// What was tried of all ops.
class Report {
 public:
  static const Report& get() {
    static const Report report;
    return report;
  }
  int checked(const std::string& op) const {
    auto found = checked_.find(op);
    return found == checked_.end() ? 0 : found->second;
  }
  int symbolic() const { return symbolic_; }
  const std::vector<std::string>& faults() const { return faults_; }
  /// "op | of input | why", a line each.
  std::string refused() const {
    std::string out;
    for (const std::string& line : refused_) out += line + "\n";
    return out;
  }

 private:
  Report() {
    auto each = [&](const std::string& name, const Node& node, const std::vector<Tensor>& operands) {
      if (!World::get().ops.find(node.op)->gradient || runs_in_graphs(node.op)) return;
      for (bool inwards : {true, false})
        if (std::optional<Trial> trial = trial_of(name, node, operands, inwards)) run(*trial);
    };
    for (const std::vector<Instance>& instances : {plait_instances(), attribute_cases()})
      for (const Instance& instance : instances) {
        const Made made = make(instance);
        each(instance.name, made.node, made.operands);
      }
    each_node(reference_options(), each);
  }

  void fault(const Trial& trial, const std::string& what) {
    faults_.push_back(cat(trial.name, " (", trial.node.op, "): ", what));
  }

  void run(const Trial& trial) {
    try {
      const Setting setting(trial, false);
      if (!setting.whole) return;
      std::optional<Setting> symbols;
      try {
        symbols.emplace(trial, true);
      } catch (const Error&) {  // a size that is a constant elsewhere
      }
      for (size_t i = 0; i < setting.inputs.size(); ++i) {
        std::vector<GradientSeed> seeds = setting.seeds;
        if (run_input(trial, setting, symbols, i, {}) || setting.seeds.size() < 2) continue;
        for (size_t one = 0; one < setting.seeds.size(); ++one) run_input(trial, setting, symbols, i, one);
      }
    } catch (const Error& error) {
      fault(trial, error.message());
    }
  }

  /// From all outputs, or from one. False where the row refuses.
  bool run_input(const Trial& trial, const Setting& setting, const std::optional<Setting>& symbols, size_t i,
                 std::optional<size_t> one) {
    const auto& [operand, id] = setting.inputs[i];
    auto chosen = [&](const Setting& from) { return one ? std::vector<GradientSeed>{from.seeds[*one]} : from.seeds; };
    if (setting.seeds.empty()) return true;
    Tensor gradient;
    try {
      gradient = gradient_of(trial, setting, chosen(setting), id);
    } catch (const Error& error) {
      if (error.code() != Code::unsupported) throw;
      const std::string why = error.message().substr(error.message().rfind(": ") + 2);
      refused_.insert(cat(trial.node.op, " | input ", operand, one ? cat(" from output ", *one) : "", " | ", why));
      return false;
    }
    const double scale = scalar_of(setting, chosen(setting)).terms;
    if (!std::isfinite(scale)) return true;
    ++checked_[trial.node.op];
    check(trial, setting, chosen(setting), operand, id, gradient, scale);
    if (symbols) check_symbols(trial, *symbols, chosen(*symbols), operand, symbols->inputs[i].second, gradient);
    return true;
  }

  /// Zeros where there is none.
  Tensor gradient_of(const Trial& trial, Setting setting, const std::vector<GradientSeed>& seeds, ValueId id) {
    const std::vector<ValueId> wanted{id};
    const ValueId out = add_gradients(World::get().ops, setting.graph, seeds, wanted)[0];
    if (out == no_value) return Tensor(DType::f64, setting.bound.at(id).shape());
    setting.graph.outputs = {out};
    verify(setting.graph, "gradients");
    const Type &type = setting.graph.value(out).type, &expected = setting.graph.value(id).type;
    if (type.dtype != expected.dtype || setting.sizes_of(type) != setting.sizes_of(expected))
      fault(trial, cat("a gradient is ", text(type, setting.graph.symbols), ", its value ",
                       text(expected, setting.graph.symbols)));
    Graph again = setting.graph;
    Knowledge knowledge;
    infer_graph(World::get().ops, again, knowledge);
    for (ValueId value = 0; value < again.value_count(); ++value)
      if (const Type& now = again.value(value).type, &then = setting.graph.value(value).type;
          now.dtype != then.dtype || now.dims != then.dims)
        fault(trial, cat("inferred again, a value is ", text(now, again.symbols), ", before ",
                         text(then, setting.graph.symbols)));
    return setting.value(out);
  }

  void check(const Trial& trial, const Setting& setting, const std::vector<GradientSeed>& seeds, size_t operand,
             ValueId id, const Tensor& gradient, double scale) {
    double norm = 0;
    for (int64_t j = 0; j < gradient.elements(); ++j) norm += std::pow(element(gradient, j), 2);
    norm = std::sqrt(norm);
    if (gradient.shape() != setting.bound.at(id).shape()) return fault(trial, "a gradient has another shape");
    for (const std::vector<double>& direction : directions(setting.bound.at(id))) {
      double along = 0, largest = 0;
      for (size_t j = 0; j < direction.size(); ++j) {
        if (direction[j] != 0) along += direction[j] * element(gradient, static_cast<int64_t>(j));
        largest = std::max(largest, std::fabs(direction[j]));
      }
      // Rounding of the scalar is 1e-16 of its terms, over h.
      const double expected = difference(setting, seeds, id, direction),
                   slack = 1e-6 * norm * largest + 1e-10 * scale;
      if (std::fabs(along - expected) <= slack) continue;
      return fault(trial, cat("input ", operand, " of ", describe(trial.node), ": along a direction the gradient is ",
                              along, ", by differences ", expected));
    }
  }

  /// With symbols for sizes the gradient is the same.
  void check_symbols(const Trial& trial, const Setting& setting, const std::vector<GradientSeed>& seeds,
                     size_t operand, ValueId id, const Tensor& expected) {
    Tensor got;
    try {
      got = gradient_of(trial, setting, seeds, id);
    } catch (const Error& error) {
      if (error.code() != Code::unsupported) throw;
      refused_.insert(cat(trial.node.op, " | input ", operand, " of symbolic sizes | ",
                          error.message().substr(error.message().rfind(": ") + 2)));
      return;
    }
    ++symbolic_;
    if (got.shape() != expected.shape()) return fault(trial, "with symbolic sizes a gradient has another shape");
    for (int64_t j = 0; j < got.elements(); ++j)
      if (const double a = element(got, j), b = element(expected, j); a != b && !(std::isnan(a) && std::isnan(b)))
        return fault(trial, cat("with symbolic sizes element ", j, " is ", a, ", with numbers ", b));
  }

  std::map<std::string, int> checked_;
  int symbolic_ = 0;
  std::set<std::string> refused_;
  std::vector<std::string> faults_;
};

TEST(Gradients, AreThoseOfFiniteDifferences) {
  const std::vector<std::string>& faults = Report::get().faults();
  for (const std::string& fault : faults) ADD_FAILURE() << fault;
}

TEST(Gradients, OfEveryRowAreTried) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  for (const auto& [name, row] : World::get().ops.all()) {
    if (!row.gradient || row.gradient == no_gradient) continue;
    if (runs_in_graphs(name)) continue;
    if (name == "plait.Cross") continue;  // no kernel computes it; stages are trained in unit.train
    EXPECT_GT(Report::get().checked(name), 0) << name << " has a gradient, and no case";
  }
  EXPECT_GT(Report::get().symbolic(), 300);
}

TEST(Gradients, RefuseWhatTheyDid) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  expect_golden("tests/unit/gradients/refused.golden", Report::get().refused(), "unit.gradients");
}

}  // namespace
}  // namespace plait::test
