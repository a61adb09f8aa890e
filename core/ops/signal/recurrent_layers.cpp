// Layers that go through time step by step: LSTM, GRU, RNN.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/signal/register.h"

namespace plait {

namespace {

bool batch_first(const Attributes& attributes) { return attributes.integer("layout", 0) != 0; }

/// x [s, b, i] (layout 1: [b, s, i]), w [d, g h, i], r [d, g h, h] -> y [s, d, b, h], states [d, b, h] (layout 1: [b, s, d, h],
/// [b, d, h]); d is 2 for both directions.
void infer_layer(InferContext& context, int64_t gates) {
  const Attributes& attributes = context.attributes();
  for (int k = 0; k < context.outputs(); ++k)
    if (context.wants(k)) context.set_type(k, context.dtype(0));
  const std::string direction = attributes.string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    InferContext::fail(cat("attribute \"direction\" is ", quote(direction)));
  const Dims *x = context.dims(0), *r = context.dims(2);
  if (!x || !r) return;
  const Dim &directions = (*r)[0], &hidden = (*r)[2];
  if (const int64_t expected = direction == "bidirectional" ? 2 : 1;
      directions.is_constant() && directions != Dim(expected))
    InferContext::fail(cat("r has ", directions.constant(), " directions, expected ", expected));
  if (hidden.is_constant() && (*r)[1].is_constant() && (*r)[1].constant() != gates * hidden.constant())
    InferContext::fail(cat("r has ", (*r)[1].constant(), " rows, expected ", gates, " for each of ",
                           hidden.constant(), " features"));
  const bool batched = batch_first(attributes);
  const Dim &steps = (*x)[batched ? 1 : 0], &batch = (*x)[batched ? 0 : 1];
  for (int k = 0; k < context.outputs(); ++k) {
    if (!context.wants(k)) continue;
    if (k == 0)
      context.set_dims(k, batched ? Dims{batch, steps, directions, hidden} : Dims{steps, directions, batch, hidden});
    else context.set_dims(k, batched ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden});
  }
}

/// Only the batch is free.
std::string layer_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool batched = batch_first(node.attributes);
  const std::string state = batched ? "b [d] [h]" : "[d] b [h]";
  std::vector<std::string> operands{
      batched ? "b [s] [i]" : "[s] b [i]", "[d] [n] [i]", "[d] [n] [h]", "[d] [m]", "b", state, state, "[d] [p]"};
  operands.resize(std::min(operands.size(), in.size()));
  std::vector<std::string> results{batched ? "b [s] [d] [h]" : "[s] [d] b [h]", state, state};
  results.resize(std::min(results.size(), std::max<size_t>(out.size(), 1)));
  return rule_text(operands, results);
}

constexpr size_t first_dy = 8;  ///< of a gradient; operands before are those of the layer

/// Only the batch is free, and gradients of weights are sums over it.
std::string layer_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool batched = batch_first(node.attributes);
  const std::string x = batched ? "b [s] [i]" : "[s] b [i]", state = batched ? "b [d] [h]" : "[d] b [h]",
                    y = batched ? "b [s] [d] [h]" : "[s] [d] b [h]";
  std::vector<std::string> operands{x, "[d] [n] [i]", "[d] [n] [h]", "[d] [m]", "b", state, state, "[d] [p]",
                                    y, state,         state};
  operands.resize(std::min(operands.size(), in.size()));
  int given = 0;
  for (size_t k = first_dy; k < operands.size(); ++k) given += !is_absent(in, k);
  for (size_t k = 0; k < operands.size(); ++k) {
    if (is_absent(in, k)) operands[k].clear();
    else if (k >= first_dy) operands[k].insert(0, given > 1 ? "+" : "*");
  }
  std::vector<std::string> results{x,     "[d] [n] [i] {all}", "[d] [n] [h] {all}", "[d] [m] {all}", state,
                                   state, "[d] [p] {all}"};
  results.resize(std::min(results.size(), out.size()));
  for (size_t k = 0; k < results.size(); ++k)
    if (out[k].dtype == DType::none) results[k].clear();
  return rule_text(operands, results);
}

std::vector<AttributeRow> layer_attributes(std::initializer_list<AttributeRow> more) {
  std::vector<AttributeRow> out{{"activation_alpha", "floats", ""},
                                {"activation_beta", "floats", ""},
                                {"activations", "strings", ""},
                                {"clip", "float", ""},
                                {"direction", "string", "forward"},
                                {"hidden_size", "int", ""},
                                {"layout", "int", "0"}};
  out.insert(out.end(), more);
  return out;
}

}  // namespace

void register_recurrent_layers(OpSet& ops) {
  constexpr const char* dims =
      "[s] b [i], [d] [n] [i], [d] [n] [h], [d] [m], b, [d] b [h] -> [s] [d] b [h], [d] b [h]";
  ops.add({.name = "LSTM",
           .inputs = "x w r b? sequence_lens? initial_h? initial_c? p?",
           .outputs = "y? y_h? y_c?",
           .attributes = layer_attributes({{"input_forget", "int", "0"}}),
           .dims = dims,
           .dims_of = layer_dims,
           .ranks = "3, 3, 3, 2, 1, 3, 3, 2",
           .infer = [](InferContext& context) { infer_layer(context, 4); },
           .doc = "long short-term memory (Hochreiter and Schmidhuber 1997)",
           .since = 22});
  ops.add({.name = "GRU",
           .inputs = "x w r b? sequence_lens? initial_h?",
           .outputs = "y? y_h?",
           .attributes = layer_attributes({{"linear_before_reset", "int", "0"}}),
           .dims = dims,
           .dims_of = layer_dims,
           .ranks = "3, 3, 3, 2, 1, 3",
           .infer = [](InferContext& context) { infer_layer(context, 3); },
           .doc = "gated recurrent units (Cho et al. 2014)",
           .since = 22});
  ops.add({.name = "RNN",
           .inputs = "x w r b? sequence_lens? initial_h?",
           .outputs = "y? y_h?",
           .attributes = layer_attributes({}),
           .dims = dims,
           .dims_of = layer_dims,
           .ranks = "3, 3, 3, 2, 1, 3",
           .infer = [](InferContext& context) { infer_layer(context, 1); },
           .doc = "a layer that reads its own last result (Elman 1990)",
           .since = 22});
  ops.add({.name = "plait.RecurrentBack",
           .inputs = "x w r b? sequence_lens? initial_h? initial_c? p? dy? dy_h? dy_c?",
           .outputs = "dx? dw? dr? db? dinitial_h? dinitial_c? dp?",
           .attributes = layer_attributes(
               {{"input_forget", "int", "0"}, {"layer", "string", "required"}, {"linear_before_reset", "int", "0"}}),
           .dims =
               "[s] b [i], [d] [n] [i], [d] [n] [h], [d] [m], b, [d] b [h], [d] b [h], [d] [p], +[s] [d] b [h], +[d] "
               "b [h], "
               "+[d] b [h] -> [s] b [i], [d] [n] [i] {all}, [d] [n] [h] {all}, [d] [m] {all}, [d] b [h], [d] b [h], "
               "[d] [p] {all}",
           .dims_of = layer_back_dims,
           .ranks = "3, 3, 3, 2, 1, 3, 3, 2, 4, 3, 3",
           .infer = infer_gradients<0, 1, 2, 3, 5, 6, 7>,
           .doc = "the gradients of LSTM, GRU or RNN (attribute layer) through time (Werbos 1990)"});
}

}  // namespace plait
