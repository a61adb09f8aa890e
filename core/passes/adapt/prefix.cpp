// Pass adapt, prefix tuning (Li and Liang 2021): trained keys and values before the first token of each document, in
// every layer. Attention runs on a longer row of `places`: each document's prefix, then its tokens; GatherRows
// converts between rows. So segments, windows and distances include prefixes, and all other ops see t tokens.
#include <map>
#include <random>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/base/parameter_states.h"

namespace plait {
namespace {

class Prefixing {
 public:
  Prefixing(Graph& graph, PassContext& context, const PrefixOptions& prefix)
      : graph_(graph),
        context_(context),
        prefix_(prefix),
        shape_(prefix_shape(context.decoder)),
        builder_(context.options.ops, graph, knowledge_, "prefix"),
        random_(prefix.seed) {}

  void run() {
    const Dim all = graph_.symbol("places");
    tokens_ = input("place_tokens", DType::i32, {Dim(1), all});
    prefixes_ = input("place_prefixes", DType::i32, {Dim(1), all});
    is_prefix_ = input("place_is_prefix", DType::boolean, {Dim(1), all, Dim(1), Dim(1)});
    segments_ = input("place_segments", DType::i32, {Dim(1), all});
    size_t layer = 0;
    for (size_t i = 0, old = graph_.nodes.size(); i < old; ++i)
      if (graph_.nodes[i].op == "plait.PackedAttention") join(i, layer++);
    graph_.sort();
  }

 private:
  ValueId input(const char* name, DType dtype, Dims dims) {
    const ValueId id = graph_.add_value(name, {dtype, std::move(dims)});
    graph_.inputs.push_back(id);
    return id;
  }

  /// The layer's attention over places.
  void join(size_t at, size_t layer) {
    const Node node = graph_.nodes[at];
    if (tokens_of_places_ == no_value)
      tokens_of_places_ = input("token_places", DType::i32, builder_.dims(node.inputs[3]));
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = placed(node.inputs[0]);
    inputs[1] = joined(node.inputs[1], layer, false);
    inputs[2] = joined(node.inputs[2], layer, true);
    inputs[3] = segments_;
    const std::vector<ValueId> made =
        builder_.add_all("plait.PackedAttention", std::move(inputs), {true, true}, node.attributes);
    graph_.replace_uses(node.outputs[0], builder_.add("plait.GatherRows", {made[0], tokens_of_places_}));
  }

  /// [1, t, heads, d] -> [1, places, heads, d]; prefix places have arbitrary rows.
  ValueId placed(ValueId id) { return builder_.add("plait.GatherRows", {id, tokens_}); }

  /// Keys or values by place. Layers that share keys share the prefix of the first.
  ValueId joined(ValueId id, size_t layer, bool values) {
    auto [known, fresh] = joined_.try_emplace({id, values}, no_value);
    if (!fresh) return known->second;
    const ValueId own = placed(id);
    const ValueId prefix = add_matrix(prefix_name(layer, values), shape_.width());
    const ValueId rows = builder_.reshaped(builder_.add("plait.Embedding", {prefix, prefixes_}), own);
    return known->second = builder_.add("Where", {is_prefix_, builder_.cast(rows, own), own});
  }

  ValueId add_matrix(const std::string& name, int64_t width) {
    // Near zero: initially a prefix takes attention weight but adds little.
    constexpr float spread = 0.02F;
    const Shape shape{prefix_.tokens, width};
    Tensor initial(DType::f32, shape);
    std::normal_distribution<float> normal(0, spread);
    for (int64_t i = 0; i < initial.elements(); ++i) initial.as<float>()[i] = normal(random_);
    Trainable one;
    one.parameter = {.key = store_keys::parameter(name),
                     .name = name,
                     .shape = shape,
                     .origin = std::make_shared<Constant>(Constant{{}, std::move(initial), {}}),
                     .decays = true};
    one.value = add_parameter(graph_, builder_, one.parameter);
    graph_.value(one.value).name = name;
    context_.adapters.push_back(one);
    return one.value;
  }

  Graph& graph_;
  PassContext& context_;
  const PrefixOptions& prefix_;
  const PrefixShape shape_;
  Knowledge knowledge_;
  GraphBuilder builder_;
  std::mt19937_64 random_;
  /// By place: its token, its row of the prefix, and whether it is a prefix; by token: its place.
  ValueId tokens_ = no_value, prefixes_ = no_value, is_prefix_ = no_value, segments_ = no_value;
  ValueId tokens_of_places_ = no_value;
  std::map<std::pair<ValueId, bool>, ValueId> joined_;
};

}  // namespace

std::string prefix_name(size_t layer, bool values) {
  return cat("layers.", layer, values ? ".prefix_values" : ".prefix_keys");
}

PrefixShape prefix_shape(const Decoder& decoder) {
  auto refuse = [](const std::string& why) {
    throw Error(Code::unsupported, cat("the model takes no prefix: ", why), "low-rank adapters (lora) fit any model");
  };
  if (!decoder.states.empty() || decoder.layers.empty())
    refuse("it has recurrent states, which no prefix can precede");
  const AttentionLayer& first = decoder.layers[0];
  for (const AttentionLayer& layer : decoder.layers)
    if (layer.kv_heads != first.kv_heads || layer.key_size != first.key_size || layer.value_size != first.key_size)
      refuse("the keys and values of its layers are not all of one size, as those of a prefix are");
  return {static_cast<int64_t>(decoder.layers.size()), first.kv_heads, first.key_size};
}

void check_prefix(const AdapterWeights& adapter, const Decoder& decoder) {
  const PrefixShape expected = prefix_shape(decoder), &given = adapter.prefix_shape;
  if (given == expected) return;
  throw Error(Code::invalid_argument,
              cat("the prefix is of ", given.layers, " layers of ", given.kv_heads, " key heads of ", given.size,
                  ", the model has ", expected.layers, " of ", expected.kv_heads, " of ", expected.size),
              "the adapter is of another model");
}

void add_prefix(Graph& graph, PassContext& context) { Prefixing(graph, context, context.training->prefix).run(); }

}  // namespace plait
