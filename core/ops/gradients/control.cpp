// Gradients of If and Loop (Scans are Loops by then): bodies that compute the old one again and its gradients after that.
//
// Of a branch: an If on the same condition. Of a loop: a Loop that goes through the iterations from the last to the first. It carries
// the gradients of the carried values, and the sums of those of what the body captures; the loop itself returns what its iterations
// began with. An iteration is computed again, so that only these are kept (Chen et al. 2016).
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {
namespace {

std::shared_ptr<Graph> copy_of_body(const Node& node, std::string_view name) {
  for (const auto& [key, body] : node.bodies)
    if (key == name) return std::make_shared<Graph>(*body);
  throw Error(Code::bad_model, cat("the body ", quote(name), " is missing"));
}

/// A new value like another one.
ValueId like(Graph& graph, ValueId id) {
  const Type type = graph.value(id).type;
  const ValueKind kind = graph.value(id).kind;
  const ValueId out = graph.add_value({}, type);
  graph.value(out).kind = kind;
  return out;
}

/// Whether the graph with these nodes reads or returns the value.
bool reads(const Graph& graph, const std::vector<Node>& nodes, ValueId id) {
  auto among = [&](const std::vector<ValueId>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  return among(graph.outputs) ||
         std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) { return among(node.inputs); });
}

// ---- If ----

/// The branch with the gradients of `wanted` inputs, which it does not return yet.
struct Branch {
  std::shared_ptr<Graph> graph;
  std::vector<ValueId> gradients;

  Branch(const GradientContext& context, std::string_view name, const std::vector<size_t>& wanted)
      : graph(copy_of_body(context.node(), name)), gradients(wanted.size(), no_value) {
    std::vector<GradientSeed> seeds;
    std::vector<ValueId> inputs;
    for (size_t k = 0; k < context.node().outputs.size(); ++k)
      if (context.gradient(k) != no_value) {
        const ValueId made = graph->outputs[k];
        seeds.push_back({made, like(*graph, made)});
      }
    for (const size_t k : wanted) inputs.push_back(graph->inputs[k]);
    if (graph->refusal.empty()) gradients = add_gradients(context.ops(), *graph, seeds, inputs);
    for (const GradientSeed& seed : seeds) graph->inputs.push_back(seed.gradient);  // sizes are not read of these
  }

  /// Returns the gradients of those inputs, zeros where it has none.
  void finish(const OpSet& ops, const std::vector<size_t>& of) {
    Knowledge knowledge;
    GraphBuilder builder(ops, *graph, knowledge);
    std::vector<ValueId> out;
    for (size_t i = 0; i < of.size(); ++i)
      out.push_back(gradients[i] == no_value ? builder.zeros(graph->inputs[of[i]]) : gradients[i]);
    graph->outputs = std::move(out);
    graph->remove_dead();
  }
};

void of_if(GradientContext& context) {
  const Node& node = context.node();
  std::vector<size_t> wanted;  // inputs of the branches, which do not take the condition
  for (size_t k = 1; k < node.inputs.size(); ++k)
    if (context.wants(k)) wanted.push_back(k - 1);
  Branch first(context, "then_branch", wanted), second(context, "else_branch", wanted);
  for (size_t i = wanted.size(); i-- > 0;)
    if (first.gradients[i] == no_value && second.gradients[i] == no_value) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      wanted.erase(wanted.begin() + at);
      for (Branch* one : {&first, &second}) one->gradients.erase(one->gradients.begin() + at);
    }
  if (wanted.empty()) return;
  for (Branch* one : {&first, &second}) one->finish(context.ops(), wanted);
  std::vector<ValueId> inputs = node.inputs;
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (context.gradient(k) != no_value) inputs.push_back(context.gradient(k));
  for (size_t k = inputs.size(); --k > 0;) {  // what neither reads is not kept for it
    auto input = [&](const Branch& one) { return one.graph->inputs.begin() + static_cast<std::ptrdiff_t>(k - 1); };
    auto is_read = [&](const Branch& one) { return reads(*one.graph, one.graph->nodes, *input(one)); };
    if (is_read(first) || is_read(second)) continue;
    inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(k));
    for (const Branch* one : {&first, &second}) one->graph->inputs.erase(input(*one));
  }
  const std::vector<ValueId> made = context.add_with_bodies(
      "If", std::move(inputs), wanted.size(), {{"then_branch", first.graph}, {"else_branch", second.graph}});
  for (size_t i = 0; i < wanted.size(); ++i) context.give_as_is(wanted[i] + 1, made[i]);
}

// ---- Loop ----

/// A body takes (iteration, condition, carried values, captures) and returns (condition, carried values, stacked values).
class LoopGradient {
 public:
  explicit LoopGradient(GradientContext& context)
      : context_(context),
        node_(context.node()),
        carried_(static_cast<size_t>(
            node_.attributes.integer("carried", static_cast<int64_t>(node_.inputs.size()) - own_inputs))),
        old_(copy_of_body(node_, "body")),
        wanted_(node_.inputs.size()),
        arrives_(carried_) {}

  void run() {
    find_wanted();
    for (size_t k = 0; k < carried_; ++k) arrives_[k] = wanted_[own_inputs + k] && context_.gradient(k) != no_value;
    // A carried value that has a gradient after one iteration has one before each.
    for (bool again = true; again;) {
      differentiate();
      again = false;
      for (size_t k = 0; k < carried_; ++k)
        if (gradients_[own_inputs + k] != no_value && !arrives_[k]) again = arrives_[k] = true;
    }
    if (std::all_of(gradients_.begin(), gradients_.end(), [](ValueId id) { return id == no_value; }) &&
        std::none_of(arrives_.begin(), arrives_.end(), [](bool one) { return one; }))
      return;
    finish_body();
    add_loop();
  }

 private:
  static constexpr size_t own_inputs = 2;  ///< trip count and condition

  /// Inputs of the body on which something depends on a wanted operand: carried values by way of the iteration before, too.
  void find_wanted() {
    for (size_t k = own_inputs; k < wanted_.size(); ++k) wanted_[k] = context_.wants(k);
    for (bool again = true; again;) {
      again = false;
      std::vector<ValueId> ids;
      for (size_t k = own_inputs; k < wanted_.size(); ++k)
        if (wanted_[k]) ids.push_back(old_->inputs[k]);
      const std::vector<bool> depends = depending(*old_, ids);
      for (size_t k = 0; k < carried_; ++k) {
        const ValueId after = old_->outputs[1 + k];
        if (!depends[static_cast<size_t>(after)] || wanted_[own_inputs + k]) continue;
        wanted_[own_inputs + k] = again = true;
      }
    }
  }

  /// The body and its gradients, by those that arrive at what it returns. What an iteration began with are slices.
  void differentiate() {
    body_ = std::make_shared<Graph>(*old_);
    std::vector<Node> nodes = std::move(body_->nodes);
    body_->nodes.clear();
    body_->inputs.resize(own_inputs);
    kept_.clear();
    for (size_t k = 0; k < carried_; ++k) kept_.push_back(slice_of_carried(k));
    body_->inputs.insert(body_->inputs.end(),
                         old_->inputs.begin() + static_cast<std::ptrdiff_t>(own_inputs + carried_),
                         old_->inputs.end());
    body_->nodes.insert(body_->nodes.end(), std::make_move_iterator(nodes.begin()),
                        std::make_move_iterator(nodes.end()));
    std::vector<GradientSeed> seeds;
    of_outputs_.assign(node_.outputs.size(), no_value);
    for (size_t k = 0; k < node_.outputs.size(); ++k) {
      if (k < carried_ ? !arrives_[k] : context_.gradient(k) == no_value) continue;
      const ValueId made = body_->outputs[1 + k];
      of_outputs_[k] = like(*body_, made);
      seeds.push_back({made, of_outputs_[k]});
    }
    std::vector<ValueId> ids;
    for (size_t k = 0; k < wanted_.size(); ++k)
      if (wanted_[k]) ids.push_back(old_->inputs[k]);
    const std::vector<ValueId> found = add_gradients(context_.ops(), *body_, seeds, ids);
    gradients_.assign(wanted_.size(), no_value);
    for (size_t k = 0, i = 0; k < wanted_.size(); ++k)
      if (wanted_[k]) gradients_[k] = found[i++];
  }

  /// What the body of gradients takes for carried value k, to take a slice of it.
  struct Kept {
    ValueId all =
        no_value;  ///< an array of those of all iterations; a list, if they have different sizes or are lists
    ValueId sizes = no_value;  ///< of a list of tensors of a known rank: the sizes of each
    bool is_list = false;
  };
  Kept slice_of_carried(size_t k) {
    const ValueId id = old_->inputs[own_inputs + k];
    const Type &before = old_->value(id).type, &after = old_->value(old_->outputs[1 + k]).type;
    const bool of_lists = old_->value(id).kind != ValueKind::tensor;
    Kept out;
    out.is_list = of_lists || !before.dims || before.dims != after.dims;
    if (!out.is_list) {
      out.all = array_of(before);
      slice(out.all, id);
      return out;
    }
    Graph& body = *body_;
    out.all = body.add_value({}, {before.dtype, Dims{Dim::symbol(body.symbols.fresh("list"))}});
    body.value(out.all).kind = ValueKind::sequence;
    body.inputs.push_back(out.all);
    if (!before.dims && !of_lists) {
      make("SequenceAt", {out.all, body.inputs[0]}, id);
      return out;
    }
    // A part of a list has no known rank: its sizes, of which the number is known, are kept, too.
    const ValueId part = body.add_value({}, {before.dtype, std::nullopt});
    make("SequenceAt", {out.all, body.inputs[0]}, part);
    ValueId sizes = no_value;
    if (of_lists) {
      sizes = body.add_constant(Tensor::of_ints(std::vector<int64_t>{-1}));
    } else {
      const Type of_sizes{DType::i64, Dims{Dim(static_cast<int64_t>(before.dims->size()))}};
      out.sizes = array_of(of_sizes);
      sizes = body.add_value({}, of_sizes);
      slice(out.sizes, sizes);
    }
    make("Reshape", {part, sizes}, id, one_attribute("allowzero", static_cast<int64_t>(!of_lists)));
    return out;
  }
  /// An input with one of these for each iteration.
  ValueId array_of(Type type) {
    type.dims->insert(type.dims->begin(), Dim::symbol(body_->symbols.fresh("n")));
    const ValueId out = body_->add_value({}, std::move(type));
    body_->inputs.push_back(out);
    return out;
  }
  /// Makes `to` of these.
  void make(const char* op, std::vector<ValueId> inputs, ValueId to, Attributes attributes = {}) {
    Node& node = body_->add_node(op, std::move(inputs), 0, std::move(attributes));
    node.outputs = {to};
    node.name = node_.name;
  }
  /// `to` is what the array has of an iteration.
  void slice(ValueId array, ValueId to) {
    make("Gather", {array, body_->inputs[0]}, to, one_attribute("axis", int64_t{0}));
  }

  /// What the body returns, and what it takes for that.
  void finish_body() {
    Graph& body = *body_;
    Knowledge knowledge;
    GraphBuilder builder(context_.ops(), body, knowledge, node_.name, node_.stage);
    std::vector<ValueId> carried, returned;
    for (size_t k = own_inputs; k < gradients_.size(); ++k) {
      const bool is_carried = k < own_inputs + carried_;
      if (is_carried ? !arrives_[k - own_inputs] : gradients_[k] == no_value) continue;
      const ValueId id = old_->inputs[k];
      given_.push_back(k);
      if (is_carried) {
        carried.push_back(of_outputs_[k - own_inputs]);
        returned.push_back(gradients_[k] == no_value ? builder.zeros(id) : gradients_[k]);
        const ValueId arrived = context_.gradient(k - own_inputs);
        operands_.push_back(arrived == no_value ? context_.zeros(node_.outputs[k - own_inputs]) : arrived);
      } else {
        carried.push_back(like(body, id));
        returned.push_back(builder.plus(carried.back(), gradients_[k]));
        operands_.push_back(context_.zeros(node_.inputs[k]));
      }
    }
    body.outputs = {body.inputs[1]};
    body.outputs.insert(body.outputs.end(), returned.begin(), returned.end());
    body.remove_dead();
    body.inputs.resize(own_inputs);
    body.inputs.insert(body.inputs.end(), carried.begin(), carried.end());
    take_operands();
  }

  /// What the body reads of what it may take; the loop before is made to return it.
  void take_operands() {
    Graph& body = *body_;
    auto take = [&](ValueId id, auto operand) {
      if (id == no_value || !reads(body, body.nodes, id)) return;
      body.inputs.push_back(id);
      operands_.push_back(operand());
    };
    std::vector<Node> nodes = std::move(body.nodes);
    body.nodes.clear();
    std::vector<ValueId> arrays;
    for (size_t k = carried_; k < of_outputs_.size(); ++k) {
      arrays.push_back(no_value);
      if (of_outputs_[k] == no_value || !reads(body, nodes, of_outputs_[k])) continue;
      arrays.back() = body.add_value({}, {body.value(of_outputs_[k]).type.dtype, std::nullopt});
      slice(arrays.back(), of_outputs_[k]);
    }
    body.nodes.insert(body.nodes.end(), std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
    for (size_t k = 0; k < arrays.size(); ++k) take(arrays[k], [&] { return context_.gradient(carried_ + k); });
    Forward forward(context_, old_, carried_);
    for (size_t k = 0; k < carried_; ++k) {
      take(kept_[k].all,
           [&] { return kept_[k].is_list ? forward.list(k) : forward.stack(old_->inputs[own_inputs + k]); });
      take(kept_[k].sizes, [&] { return forward.stack_sizes(k); });
    }
    if (operands_.size() == given_.size()) {  // nothing tells yet how many iterations there were
      body.inputs.push_back(body.add_value({}, {DType::i64, std::nullopt}));
      operands_.push_back(forward.stack(old_->inputs[0]));
    }
    for (size_t k = own_inputs + carried_; k < node_.inputs.size(); ++k)
      take(old_->inputs[k], [&] { return node_.inputs[k]; });
    forward.finish();
  }

  void add_loop() {
    Attributes attributes;
    attributes.set("carried", static_cast<int64_t>(given_.size()));
    attributes.set("reversed", int64_t{1});
    std::vector<ValueId> inputs{iterations(operands_[given_.size()]), no_value};
    inputs.insert(inputs.end(), operands_.begin(), operands_.end());
    const std::vector<ValueId> made =
        context_.add_with_bodies("Loop", std::move(inputs), given_.size(), {{"body", body_}}, std::move(attributes));
    for (size_t i = 0; i < given_.size(); ++i) context_.give_as_is(given_[i], made[i]);
  }

  /// How many there were, by an array or a list with something of each.
  ValueId iterations(ValueId of_each) {
    if (context_.is_list(of_each)) return context_.add("SequenceLength", {of_each});
    Attributes first;
    first.set("start", int64_t{0});
    first.set("end", int64_t{1});
    return context_.add("Squeeze", {context_.add("Shape", {of_each}, std::move(first)), context_.integers({0})});
  }

  /// The loop itself, which is to return what its iterations begin with.
  class Forward {
   public:
    Forward(GradientContext& context, const std::shared_ptr<Graph>& body, size_t carried)
        : context_(context), body_(std::make_shared<Graph>(*body)), loop_(context.node()), carried_(carried) {}

    /// A value of its body, one for each iteration, as an array.
    ValueId stack(ValueId id) {
      body_->outputs.push_back(id);
      loop_.outputs.push_back(context_.graph().add_value({}));
      return loop_.outputs.back();
    }
    ValueId stack_sizes(size_t k) { return stack(body_->add_node("Shape", {of_carried(k)}).outputs[0]); }

    /// Carried value k of each iteration as a list, which it carries after the others.
    ValueId list(size_t k) {
      const ValueId id = of_carried(k);
      const DType dtype = body_->value(id).type.dtype;
      const auto at = static_cast<std::ptrdiff_t>(carried_ + lists_++);
      const ValueId so_far = body_->add_value({}, {dtype, Dims{Dim::symbol(body_->symbols.fresh("list"))}});
      body_->value(so_far).kind = ValueKind::sequence;
      const ValueId more = body_->add_node("SequenceInsert", {so_far, id}).outputs[0];
      body_->inputs.insert(body_->inputs.begin() + own_inputs + at, so_far);
      body_->outputs.insert(body_->outputs.begin() + 1 + at, more);
      const ValueId all = context_.graph().add_value({});
      context_.graph().value(all).kind = ValueKind::sequence;
      loop_.inputs.insert(loop_.inputs.begin() + own_inputs + at, context_.empty_list(dtype));
      loop_.outputs.insert(loop_.outputs.begin() + at, all);
      return all;
    }

    void finish() {
      if (loop_.outputs.size() == context_.node().outputs.size()) return;
      loop_.attributes.set("carried", static_cast<int64_t>(carried_ + lists_));
      loop_.bodies = {{"body", body_}};
      context_.replace(std::move(loop_));
    }

   private:
    ValueId of_carried(size_t k) const { return body_->inputs[own_inputs + k]; }

    GradientContext& context_;
    std::shared_ptr<Graph> body_;
    Node loop_;
    const size_t carried_;
    size_t lists_ = 0;
  };

  GradientContext& context_;
  const Node& node_;
  const size_t carried_;
  std::shared_ptr<Graph> old_;
  std::vector<bool> wanted_;         ///< by input of the body
  std::vector<bool> arrives_;        ///< by carried value: whether it has a gradient after an iteration
  std::shared_ptr<Graph> body_;      ///< of the gradients
  std::vector<Kept> kept_;           ///< by carried value
  std::vector<ValueId> of_outputs_;  ///< in that body: the gradients of what an iteration returns
  std::vector<ValueId> gradients_;   ///< in that body, by input of the old one
  std::vector<ValueId> operands_;    ///< of the loop of gradients, from its third on
  std::vector<size_t> given_;        ///< operands of the old loop, of which its first carried values are gradients
};

void of_loop(GradientContext& context) { LoopGradient(context).run(); }

}  // namespace

void register_control_gradients(OpSet& ops) {
  ops.differentiate("If", of_if);
  ops.differentiate("Loop", of_loop);
}

}  // namespace plait
