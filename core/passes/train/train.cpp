// Pass train: adds the loss after a decoder's head, the gradients of what is trained, and their accumulation. With a
// host loss the gradients of the logits are an input instead.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/linear_operands.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/graph/gradient.h"
#include "core/passes/train/train.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/train/parameters.h"

namespace plait {
namespace {

/// Approximate rows of a chunk of the vocabulary: its logits of some tokens fit a core's cache.
constexpr int64_t chunk_rows = 4096;

/// The number of chunks of about `chunk_rows` that divides the vocabulary; a multiple of `parts`, if there is one.
int64_t chunks_of(int64_t vocabulary, int64_t parts) {
  const int64_t fewest = vocabulary % parts ? 1 : parts;
  int64_t best = fewest;
  for (int64_t chunks = fewest; chunks <= vocabulary / 256; chunks += fewest)
    if (vocabulary % chunks == 0 &&
        std::abs(vocabulary / chunks - chunk_rows) < std::abs(vocabulary / best - chunk_rows))
      best = chunks;
  return best;
}

class Training {
 public:
  Training(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), builder_(context.options.ops, graph, knowledge_, "loss") {}

  void run() {
    const std::vector<Trainable> trained = choose();
    if (context_.host_loss) {
      graph_.outputs.resize(1);
      given_ = add_input("gradients", graph_.value(graph_.outputs[0]).type.dtype, builder_.dims(graph_.outputs[0]));
    } else if (!context_.training->loss.empty()) {
      losses_ = graph_.outputs[0];
      const ValueId weight = add_input(loss_weight_input, graph_.value(losses_).type.dtype, Dims{});
      weights_ = builder_.expanded(weight, losses_);
      ValueId loss = builder_.times(builder_.reshaped(losses_, Dims{}), weight);
      if (builder_.type(loss).dtype != DType::f32) {
        Attributes to;
        to.set("to", static_cast<int64_t>(DType::f32));
        loss = builder_.add("Cast", {loss}, std::move(to));
      }
      graph_.outputs = {loss};
    } else {
      const Dims rows = rows_of_logits();
      labels_ = add_input("labels", DType::i32, rows);
      weights_ = add_input("weights", graph_.value(graph_.outputs[0]).type.dtype, rows);
      const ValueId losses = add_loss();
      const ValueId loss = builder_.add("ReduceSum", {builder_.times(losses, weights_)}, whole_);
      graph_.outputs = {loss, losses};
    }
    if (context_.training->gradients) add_sums(trained);
    else
      for (const Trainable& one : trained) context_.parameters.push_back(one.parameter);
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  std::vector<Trainable> choose() {
    if (context_.training->has_adapters()) return std::move(context_.adapters);
    if (!context_.training->gradients) return {};
    return make_parameters(graph_, context_, context_.training->trained);
  }

  /// [1, r]
  Dims rows_of_logits() {
    Dims dims = builder_.dims(graph_.outputs[0]);
    dims.pop_back();
    return dims;
  }

  ValueId add_input(const char* name, DType dtype, Dims dims) {
    const ValueId id = graph_.add_value(name, {dtype, std::move(dims)});
    graph_.inputs.push_back(id);
    return id;
  }

  /// Each label's loss, [1, r]. A recognised head is joined with the loss, so that logits of all rows are never in
  /// memory at once.
  ValueId add_loss() {
    const Head head = find_head(graph_);
    if (head.node < 0 || !head.fits) return loss_of_logits();
    const Node linear = graph_.nodes[static_cast<size_t>(head.node)];
    head_inputs_ = {linear.inputs[linear_x], linear.inputs[linear_w], labels_};
    if (head.bias != no_value || linear.inputs.size() > linear_scales) head_rest_ = {bias_of(head)};
    for (size_t k = linear_scales; k < linear.inputs.size(); ++k) head_rest_.push_back(linear.inputs[k]);
    head_attributes_ = linear.attributes;
    head_attributes_.erase("many_rows");
    const Mesh& mesh = context_.options.mesh;
    const int64_t vocabulary = builder_.dims(linear.inputs[linear_w])[0].constant();
    head_attributes_.set("chunks", chunks_of(vocabulary, mesh.blocks(mesh.parts("tensor"))));
    head_attributes_.set("scale", head.scale);
    head_attributes_.set("softcap", head.softcap);
    std::vector<ValueId> inputs = head_inputs_;
    inputs.insert(inputs.end(), head_rest_.begin(), head_rest_.end());
    const std::vector<ValueId> found =
        builder_.add_all("plait.HeadStatistics", std::move(inputs), {true, true, true}, head_attributes_);
    Attributes last = whole_;
    last.set("keepdims", int64_t{1});
    const ValueId axis = builder_.integers({-1});
    const ValueId largest = builder_.add("ReduceMax", {found[0], axis}, last);
    const ValueId below = builder_.add("Exp", {builder_.minus(found[0], largest)});
    last.set("keepdims", int64_t{0});
    const ValueId sum = builder_.add("ReduceSum", {builder_.times(found[1], below), axis}, last);
    log_sum_exp_ = builder_.plus(builder_.add("Log", {sum}), builder_.add("Squeeze", {largest, axis}));
    return builder_.minus(log_sum_exp_, found[2]);
  }

  /// The bias as it is added to the product, [v].
  ValueId bias_of(const Head& head) {
    if (head.bias == no_value) return no_value;
    const Node linear = graph_.nodes[static_cast<size_t>(head.node)];
    const Dim v = builder_.dims(linear.inputs[linear_w]).front();
    const ValueId bias = builder_.cast(builder_.reshaped(head.bias, {v}), linear.inputs[linear_x]);
    return head.share == 1 ? bias : builder_.times(bias, builder_.number(head.share, bias));
  }

  /// For other heads: with an adapter, or a selection of logits.
  ValueId loss_of_logits() {
    Attributes last;
    last.set("axis", int64_t{-1});
    const ValueId logits = builder_.add("LogSoftmax", {graph_.outputs[0]}, last);
    const ValueId axis = builder_.integers({-1});
    const ValueId picked = builder_.add("GatherElements", {logits, builder_.add("Unsqueeze", {labels_, axis})}, last);
    losses_ = builder_.negative(builder_.add("Squeeze", {picked, axis}));
    return losses_;
  }

  void add_sums(const std::vector<Trainable>& trained) {
    std::vector<ValueId> wanted;
    for (const Trainable& one : trained) wanted.push_back(one.value);
    const std::vector<ValueId> gradients = add_gradients(context_.options.ops, graph_, seeds(wanted), wanted);
    std::set<std::string> learning;  // a State of each stage that reads the parameter; at least one has a gradient
    for (size_t i = 0; i < trained.size(); ++i)
      if (gradients[i] != no_value) learning.insert(trained[i].parameter.key);
    for (size_t i = 0; i < trained.size(); ++i) {
      const TrainedParameter& parameter = trained[i].parameter;
      if (!learning.contains(parameter.key)) {  // a table of angles, or what only selects
        graph_.replace_uses(trained[i].value, initial_of(trained[i].value));
        continue;
      }
      if (std::none_of(context_.parameters.begin(), context_.parameters.end(),
                       [&](const TrainedParameter& one) { return one.key == parameter.key; }))
        context_.parameters.push_back(parameter);
      if (gradients[i] == no_value) continue;
      const ValueId sum =
          add_state(graph_, builder_, store_keys::gradient(parameter.key), parameter.dtype(), parameter.shape, nullptr, true);
      graph_.nodes.back().stage = maker_of(trained[i].value).stage;
      graph_.outputs.push_back(builder_.add("plait.Accumulate", {sum, gradients[i]}));
    }
    if (context_.parameters.empty())
      throw Error(Code::invalid_argument,
                  "there is nothing to train: the loss depends on none of the requested weights");
    place_sums();
  }

  /// Accumulates a gradient as soon as it is complete, which frees its memory and lets ranks reduce it.
  void place_sums() {
    const std::vector<int32_t> producer = producers(graph_);
    auto maker = [&](ValueId id) { return producer[static_cast<size_t>(id)]; };
    std::multimap<int32_t, size_t> behind;  // by node
    std::vector<bool> moves(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (const Node& node = graph_.nodes[i]; node.op == "plait.Accumulate") {
        const int32_t sum = maker(node.inputs[0]), gradient = maker(node.inputs[1]);
        for (size_t one : {static_cast<size_t>(sum), i}) {
          behind.emplace(gradient, one);
          moves[one] = true;
        }
      }
    std::vector<Node> nodes;
    auto add_behind = [&](int32_t index) {
      const auto [first, last] = behind.equal_range(index);
      for (auto one = first; one != last; ++one) nodes.push_back(std::move(graph_.nodes[one->second]));
    };
    add_behind(-1);  // of gradients that are constants
    for (size_t i = 0; i < moves.size(); ++i) {
      if (moves[i]) continue;
      nodes.push_back(std::move(graph_.nodes[i]));
      add_behind(static_cast<int32_t>(i));
    }
    graph_.nodes = std::move(nodes);
  }

  /// Initial gradients of the walk: each label's loss counts with its weight.
  std::vector<GradientSeed> seeds(const std::vector<ValueId>& wanted) {
    if (context_.host_loss) return {{graph_.outputs[0], given_}};
    if (head_inputs_.empty()) return {{losses_, weights_}};
    std::vector<ValueId> inputs = head_inputs_;
    inputs.insert(inputs.end(), {log_sum_exp_, weights_});
    inputs.insert(inputs.end(), head_rest_.begin(), head_rest_.end());
    const ValueId of[] = {head_inputs_[0], head_inputs_[1], head_rest_.empty() ? no_value : head_rest_[0]};
    const std::vector<ValueId> back =
        builder_.add_all("plait.HeadBack", std::move(inputs),
                         {true, depends_on(of[1], wanted), depends_on(of[2], wanted)}, head_attributes_);
    std::vector<GradientSeed> out;
    for (size_t k = 0; k < back.size(); ++k)
      if (back[k] != no_value) out.push_back({of[k], back[k]});
    return out;
  }

  /// Whether the weight or bias is one of them, or is made of one by the steps in between.
  bool depends_on(ValueId id, const std::vector<ValueId>& wanted) const {
    if (id == no_value) return false;
    if (std::find(wanted.begin(), wanted.end(), id) != wanted.end()) return true;
    for (const Node& node : graph_.nodes)
      if (std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end())
        return !node.inputs.empty() && node.inputs[0] != no_value && depends_on(node.inputs[0], wanted);
    return false;
  }

  const Node& maker_of(ValueId state) const {
    return *std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
      return !node.outputs.empty() && node.outputs[0] == state;
    });
  }
  ValueId initial_of(ValueId state) const { return maker_of(state).inputs[0]; }

  static Attributes no_dims() {
    Attributes out;
    out.set("keepdims", int64_t{0});
    return out;
  }

  Graph& graph_;
  PassContext& context_;
  Knowledge knowledge_;
  GraphBuilder builder_;
  const Attributes whole_ = no_dims();
  ValueId labels_ = no_value, weights_ = no_value, losses_ = no_value, log_sum_exp_ = no_value, given_ = no_value;
  std::vector<ValueId> head_inputs_;  ///< x, w, labels; empty: the head is not joined
  std::vector<ValueId> head_rest_;    ///< the bias, and scales and zero points of w, if any
  Attributes head_attributes_;
};

}  // namespace

Head find_head(const Graph& graph) {
  const std::vector<int32_t> producer = producers(graph);
  const auto readers = consumers(graph);
  auto is_vector = [&](ValueId id, const Dim& size) {
    const auto& dims = graph.value(id).type.dims;
    return dims && !dims->empty() && dims->back() == size &&
           std::all_of(dims->begin(), dims->end() - 1, [](const Dim& dim) { return dim == Dim(1); });
  };
  Head head;
  // Factors after the tanh (after the product if there is none), before the tanh, and after the bias.
  double factors[2] = {1, 1}, behind_bias = 1;
  size_t capped = 0;
  for (ValueId id = graph.outputs[0];;) {
    const int32_t at = producer[static_cast<size_t>(id)];
    if (at < 0 || (id != graph.outputs[0] && readers[static_cast<size_t>(id)].size() > 1)) return {};
    const Node& node = graph.nodes[static_cast<size_t>(at)];
    if (node.op == "plait.Linear") {
      const bool adds_itself = node.inputs.size() > linear_bias && node.inputs[linear_bias] != no_value;
      if (adds_itself || (capped && factors[0] <= 0)) head.fits = false;
      head.node = at;
      head.scale = factors[0] * factors[1];
      head.softcap = capped ? factors[0] : 0;
      head.share = behind_bias / factors[capped];
      return head;
    }
    if (node.op == "Add") {
      const auto& dims = graph.value(id).type.dims;
      if (!dims || dims->empty()) return {};
      auto adds = [&](size_t side) {
        return graph.value(node.inputs[side]).constant || is_vector(node.inputs[side], dims->back());
      };
      const size_t side = adds(0) ? 0 : 1;
      if (!adds(side)) return {};
      if (head.bias != no_value || !is_vector(node.inputs[side], dims->back())) head.fits = false;
      head.bias = node.inputs[side];
      behind_bias = factors[capped];
      id = node.inputs[1 - side];
      continue;
    }
    const bool is_product = node.op == "Mul" || node.op == "Div";
    if (is_product) {
      const size_t constant = node.op == "Mul" && !graph.value(node.inputs[1]).constant ? 0 : 1;
      const std::optional<double> factor = scalar_of(graph, node.inputs[constant]);
      if (!factor || *factor == 0) return {};
      factors[capped] *= node.op == "Mul" ? *factor : 1 / *factor;
      id = node.inputs[1 - constant];
      continue;
    }
    if (node.op == "Tanh" && !capped) {
      capped = 1;
      if (head.bias != no_value) head.fits = false;
    } else if (node.op != "Identity" && (node.op != "Cast" || !is_float(graph.value(node.inputs[0]).type.dtype)))
      return {};
    id = node.inputs[0];
  }
}

void train(Graph& graph, PassContext& context) { Training(graph, context).run(); }

}  // namespace plait
