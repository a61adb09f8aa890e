#include "bindings/c/model_info.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error_kind.h"

#include "bindings/c/objects.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

Json operands(const Graph& graph, const std::vector<ValueId>& ids) {
  Json out = Json::array();
  for (ValueId id : ids) {
    const Value& value = graph.value(id);
    out.push_back({{"name", value.name}, {"type", text(value.type, graph.symbols)}});
  }
  return out;
}

void count_ops(const Graph& graph, std::map<std::string, int64_t>& counts) {
  for (const Node& node : graph.nodes) {
    ++counts[node.op];
    for (const auto& [name, body] : node.bodies) count_ops(*body, counts);
  }
}

struct Weights {
  int64_t elements = 0, bytes = 0;
  std::set<const std::byte*> seen;  ///< tied weights are one array of the file

  void add(const Graph& graph) {
    for (ValueId id = 0; id < graph.value_count(); ++id) {
      const auto& constant = graph.value(id).constant;
      // Integers of rank 0 and 1 are sizes and axes, not weights.
      if (!constant || constant->initializer.empty()) continue;
      const Tensor& source = constant->source;
      bool small = !is_float(source.dtype()) && source.shape().rank() < 2;
      if (small || !seen.insert(source.data()).second) continue;
      elements += source.elements();
      bytes += source.bytes();
    }
    for (const Node& node : graph.nodes) {
      for (const auto& [name, body] : node.bodies) add(*body);
    }
  }
};

/// The value that all layers share, or the list of all layers' values.
template <class Get>
Json of_layers(const std::vector<AttentionLayer>& layers, Get get) {
  Json all = Json::array();
  for (const AttentionLayer& layer : layers) all.push_back(get(layer));
  bool same = std::all_of(layers.begin(), layers.end(),
                          [&](const AttentionLayer& layer) { return get(layer) == get(layers[0]); });
  return same && !layers.empty() ? all[0] : all;
}

struct Recognised {
  Decoder decoder;
  std::optional<Json> outputs;         ///< with types inferred by `fold`
  std::map<std::string, int64_t> ops;  ///< of the raised graph
};

/// A graph that cannot be compiled is not recognised, for the compiler's reason.
Recognised recognise_model(ModelObject& model) {
  Recognised out;
  CompileOptions options = model.compile_options();
  options.dump = [&](std::string_view pass, const Graph& graph) {
    if (pass == "fold") out.outputs = operands(graph, graph.outputs);
    if (pass == "raise") count_ops(graph, out.ops);
  };
  try {
    out.decoder = recognise(model.opened().imported.graph, options);
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    out.decoder.why_not = error.message();
  }
  return out;
}

/// The norms among `ops`: "RMSNorm", "LayerNorm, RMSNorm".
std::string norms_of(const std::map<std::string, int64_t>& ops) {
  std::vector<std::string> found;
  for (const auto& [op, name] :
       {std::pair("LayerNormalization", "LayerNorm"), std::pair("RMSNormalization", "RMSNorm")}) {
    if (ops.count(op)) found.emplace_back(name);
  }
  return join(found, ", ");
}

/// The features "activation gelu_tanh" of the decoder: "gelu_tanh".
std::string activations_of(const Decoder& decoder) {
  constexpr std::string_view kind = "activation ";
  std::vector<std::string> found;
  for (const auto& [name, count] : decoder.features()) {
    if (name.rfind(kind, 0) == 0) found.push_back(name.substr(kind.size()));
  }
  return join(found, ", ");
}

Json findings(const std::vector<Finding>& list, const char* what) {
  Json out = Json::array();
  for (const Finding& one : list) out.push_back({{what, one.what}, {"node", one.node}});
  return out;
}

void describe_decoder(const Recognised& found, const ModelConfig& config, Json& out) {
  const Decoder& decoder = found.decoder;
  int layers = 0;
  const auto kinds = decoder.layer_kinds();
  for (const auto& [kind, count] : kinds) layers += count;
  out["layers"] = layers;
  out["layer_kinds"] = kinds;
  out["heads"] = of_layers(decoder.layers, [](const AttentionLayer& layer) { return layer.query_heads; });
  out["kv_heads"] = of_layers(decoder.layers, [](const AttentionLayer& layer) { return layer.kv_heads; });
  out["head_size"] = of_layers(decoder.layers, [](const AttentionLayer& layer) { return layer.key_size; });
  Json windows = Json::array();
  for (const AttentionLayer& layer : decoder.layers) windows.push_back(layer.window);
  out["windows"] = windows;
  out["hidden"] = decoder.hidden;
  if (decoder.interface.given_size) out["inputs_embeds"] = decoder.interface.given_size;
  out["vocabulary"] = decoder.vocabulary;
  int64_t context = decoder.context > 0 && config.context > 0 ? std::min(decoder.context, config.context)
                                                              : std::max(decoder.context, config.context);
  out["context"] = context > 0 ? Json(context) : Json();
  out["norm"] = norms_of(found.ops);
  out["activation"] = activations_of(decoder);
  Json features = Json::object();
  for (const auto& [name, count] : decoder.features()) features[name] = count;
  out["features"] = features;
  out["found"] = findings(decoder.found, "pattern");
  out["plain"] = findings(decoder.plain, "op");
  int64_t cache = 0;
  for (const PageGroup& group : decoder.groups) {
    const PagePoolShape& pool = decoder.pools[static_cast<size_t>(group.pool)];
    PagePoolShape part = pool;
    part.layers = static_cast<int64_t>(group.layers.size());
    cache += part.page_bytes(1, decoder.cache_dtype);
  }
  out["cache_bytes_per_token"] = cache;
  out["states"] = decoder.states.size();
  out["state_bytes_per_sequence"] = decoder.state_bytes();
}

}  // namespace

int64_t parameters_of(const Graph& graph) {
  Weights weights;
  weights.add(graph);
  return weights.elements;
}

std::string model_info(ModelObject& model) {
  const ImportedModel& imported = model.opened().imported;
  Json out;
  out["file"] = model.file();
  out["producer"] = imported.producer;
  out["ir_version"] = imported.ir_version;
  Json opsets = Json::object();
  for (const auto& [domain, version] : imported.opsets) opsets[domain.empty() ? "ai.onnx" : domain] = version;
  out["opsets"] = opsets;
  const Graph& written = model.opened().as_written();
  out["inputs"] = operands(written, written.inputs);
  out["outputs"] = operands(written, written.outputs);
  std::map<std::string, int64_t> ops;
  count_ops(imported.graph, ops);
  out["nodes"] = imported.graph.nodes.size();
  out["ops"] = ops;
  Weights weights;
  weights.add(imported.graph);
  out["parameters"] = weights.elements;
  out["weight_bytes"] = weights.bytes;
  const OpenedModel& opened = model.opened();
  if (opened.written)  // of images and sounds, whose rows stand for tokens
    if (const auto encoders = input_encoders_of(opened.source); !encoders.empty()) out["input_encoders"] = encoders;
  for (const GivenInput& input : opened.given_inputs) out["given_inputs"][input.name] = input.tokens;
  Recognised found = recognise_model(model);
  if (found.outputs) out["outputs"] = *found.outputs;
  out["recognised"] = found.decoder.recognised;
  if (found.decoder.recognised) describe_decoder(found, model.opened().config, out);
  else {
    out["why_not"] = found.decoder.why_not;
    out["obstacles"] = found.decoder.obstacles;
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace);  // names come from the file
}

std::string model_dump(ModelObject& model, const std::string& pass) {
  if (pass == "import") return text(model.opened().imported.graph);
  std::vector<std::string> passes = {"import"};
  std::optional<std::string> found;
  CompileOptions options = model.compile_options();
  options.dump = [&](std::string_view name, const Graph& graph) {
    passes.emplace_back(name);
    if (name == pass) found = text(graph);
  };
  auto smallest = [](const Decoder& decoder) {
    RaggedBounds bounds;
    bounds.pages.assign(decoder.pools.size(), 1);
    bounds.states = decoder.states.empty() ? 0 : 1;
    return bounds;
  };
  try {
    compile_ragged(model.opened().imported.graph, options, smallest);
  } catch (const Error&) {
    if (!found) throw;  // a later step failed: the requested dump exists
  }
  if (found) return *found;
  throw Error(Code::not_found, cat("no pass ", quote(pass), " ran on this model"),
              cat("the passes are ", join(passes, ", ")));
}

}  // namespace plait::c_api
