#include "bindings/c/model_info.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

/// The value that all layers share, or the list of theirs.
template <class Get>
Json of_layers(const std::vector<AttentionLayer>& layers, Get get) {
  Json all = Json::array();
  for (const AttentionLayer& layer : layers) all.push_back(get(layer));
  bool same = std::all_of(layers.begin(), layers.end(),
                          [&](const AttentionLayer& layer) { return get(layer) == get(layers[0]); });
  return same && !layers.empty() ? all[0] : all;
}

/// Features are "RMSNorm" or "activation gelu_tanh": the words of those that begin so, joined.
std::string features_of(const Decoder& decoder, std::initializer_list<std::string_view> kinds) {
  std::vector<std::string> found;
  for (const auto& [name, count] : decoder.features) {
    for (std::string_view kind : kinds) {
      if (name == kind)
        found.push_back(name);
      else if (name.rfind(cat(kind, " "), 0) == 0)
        found.push_back(name.substr(kind.size() + 1));
    }
  }
  return join(found, ", ");
}

void describe_decoder(const Decoder& decoder, const ModelConfig& config, Json& out) {
  out["layers"] = decoder.layers.size();
  out["heads"] = of_layers(decoder.layers, [](const AttentionLayer& layer) { return layer.query_heads; });
  out["kv_heads"] = of_layers(decoder.layers, [](const AttentionLayer& layer) { return layer.kv_heads; });
  out["head_size"] = of_layers(decoder.layers, [](const AttentionLayer& layer) { return layer.key_size; });
  Json windows = Json::array();
  for (const AttentionLayer& layer : decoder.layers) windows.push_back(layer.window);
  out["windows"] = windows;
  out["hidden"] = decoder.hidden;
  out["vocabulary"] = decoder.vocabulary;
  int64_t context = decoder.context > 0 && config.context > 0 ? std::min(decoder.context, config.context)
                                                              : std::max(decoder.context, config.context);
  out["context"] = context > 0 ? Json(context) : Json();
  out["norm"] = features_of(decoder, {"RMSNorm", "LayerNorm", "norm"});
  out["activation"] = features_of(decoder, {"activation"});
  Json features = Json::object();
  for (const auto& [name, count] : decoder.features) features[name] = count;
  out["features"] = features;
  int64_t cache = 0;
  for (const PageGroup& group : decoder.groups) {
    const PagePoolShape& pool = decoder.pools[static_cast<size_t>(group.pool)];
    PagePoolShape part = pool;
    part.layers = static_cast<int64_t>(group.layers.size());
    cache += part.page_bytes(1, decoder.cache_dtype);
  }
  out["cache_bytes_per_token"] = cache;
}

}  // namespace

std::string model_info(ModelObject& model) {
  const ImportedModel& imported = model.imported;
  Json out;
  out["file"] = model.file;
  out["producer"] = imported.producer;
  out["ir_version"] = imported.ir_version;
  Json opsets = Json::object();
  for (const auto& [domain, version] : imported.opsets) opsets[domain.empty() ? "ai.onnx" : domain] = version;
  out["opsets"] = opsets;
  out["inputs"] = operands(imported.graph, imported.graph.inputs);
  out["outputs"] = operands(imported.graph, imported.graph.outputs);
  std::map<std::string, int64_t> ops;
  count_ops(imported.graph, ops);
  out["nodes"] = imported.graph.nodes.size();
  out["ops"] = ops;
  Weights weights;
  weights.add(imported.graph);
  out["parameters"] = weights.elements;
  out["weight_bytes"] = weights.bytes;
  Decoder decoder;
  try {
    decoder = recognise(imported.graph, model.compile_options());
  } catch (const Error& error) {
    decoder = Decoder{};
    decoder.why_not = error.message();
  }
  out["recognised"] = decoder.recognised;
  if (decoder.recognised)
    describe_decoder(decoder, model.config, out);
  else
    out["why_not"] = decoder.why_not;
  return out.dump(1, ' ', false, Json::error_handler_t::replace);  // names come from the file
}

std::string model_dump(ModelObject& model, const std::string& pass) {
  if (pass == "import") return text(model.imported.graph);
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
    return bounds;
  };
  try {
    compile_ragged(model.imported.graph, options, smallest);
  } catch (const Error&) {
    if (!found) throw;  // a later step failed: what was asked for is there
  }
  if (found) return *found;
  throw Error(Code::not_found, cat("no pass ", quote(pass), " ran on this model"),
              cat("the passes are ", join(passes, ", ")));
}

}  // namespace plait::c_api
