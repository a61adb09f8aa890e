// Pass interface: finds the roles of a language model's inputs and outputs, and gives their sizes common names.
//
// Exporters name each past length on its own ("s26", "past_sequence_length"), and the length of the attention mask not
// at all as a sum. One symbol each for batch, sequence and past makes the shape arithmetic behind them comparable.
#include <algorithm>
#include <array>

#include "core/base/text.h"
#include "core/passes/compile.h"

namespace plait {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

size_t rank(const Graph& graph, ValueId id) {
  const auto& dims = graph.value(id).type.dims;
  return dims ? dims->size() : 0;
}

/// Names that a present output may have for the past input `name`, by the exporters' habits.
std::vector<std::string> present_names(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> habits = {
      {{"past_key_values", "present"},
       {"past_key_values", "present_key_values"},
       {"past", "present"},
       {"input.", "output."},
       {"input.", ""}}};
  std::vector<std::string> out;
  for (const auto& [from, to] : habits)
    if (size_t at = name.find(from); at != std::string::npos) {
      std::string present = name;
      present.replace(at, from.size(), to);
      out.push_back(std::move(present));
    }
  return out;
}

/// The first number in a name: the layer.
int layer_of(std::string_view name, int fallback) {
  size_t begin = name.find_first_of("0123456789");
  if (begin == std::string_view::npos) return fallback;
  size_t end = name.find_first_not_of("0123456789", begin);
  int64_t number = fallback;
  parse_int(name.substr(begin, end == std::string_view::npos ? end : end - begin), number);
  return static_cast<int>(number);
}

/// The axis of the past length: the last but one where that is symbolic, else the only symbolic one behind the batch.
int past_axis(const Graph& graph, ValueId id) {
  const Dims& dims = *graph.value(id).type.dims;
  int last_but_one = static_cast<int>(dims.size()) - 2;
  if (!dims[static_cast<size_t>(last_but_one)].is_constant()) return last_but_one;
  for (int axis = 1; axis < static_cast<int>(dims.size()); ++axis)
    if (!dims[static_cast<size_t>(axis)].is_constant()) return axis;
  return last_but_one;
}

void find_caches(const Graph& graph, DecoderInterface& found) {
  std::vector<int> free_outputs;
  for (int k = 0; k < static_cast<int>(graph.outputs.size()); ++k)
    if (k != found.logits) free_outputs.push_back(k);
  for (ValueId id : graph.inputs) {
    if (!is_float(graph.value(id).type.dtype) || rank(graph, id) < 3) continue;
    DecoderInterface::Cache cache;
    cache.past = id;
    cache.axis = past_axis(graph, id);
    cache.layer = layer_of(graph.value(id).name, static_cast<int>(found.caches.size() / 2));
    for (const std::string& name : present_names(graph.value(id).name))
      for (int output : free_outputs)
        if (graph.value(graph.outputs[static_cast<size_t>(output)]).name == name && cache.present < 0)
          cache.present = output;
    found.caches.push_back(cache);
  }
  // What no habit names is paired by position, when the counts agree.
  bool all_named =
      std::all_of(found.caches.begin(), found.caches.end(), [](const auto& cache) { return cache.present >= 0; });
  if (!all_named && free_outputs.size() == found.caches.size())
    for (size_t i = 0; i < free_outputs.size(); ++i) found.caches[i].present = free_outputs[i];
}

}  // namespace

DecoderInterface find_interface(const Graph& graph) {
  DecoderInterface found;
  for (ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    if (is_float(value.type.dtype) && rank(graph, id) >= 3) continue;
    if (contains(value.name, "mask")) found.mask = id;
    else if (contains(value.name, "position")) found.positions = id;
    else if (is_integer(value.type.dtype) && rank(graph, id) == 2 &&
             (found.ids == no_value || value.name == "input_ids"))
      found.ids = id;
  }
  for (size_t k = 0; k < graph.outputs.size(); ++k)
    if (graph.value(graph.outputs[k]).name == "logits") found.logits = static_cast<int>(k);
  if (found.logits < 0 && !graph.outputs.empty()) found.logits = 0;
  find_caches(graph, found);
  if (found.ids == no_value) found.why = "no integer input of rank 2 looks like token ids";
  else if (found.logits < 0) found.why = "there is no output";
  else
    for (const auto& cache : found.caches)
      if (cache.present < 0)
        found.why = cat("input ", quote(graph.value(cache.past).name), " has no output that continues it");
  found.complete = found.why.empty();
  return found;
}

void interface(Graph& graph, PassContext& context) {
  DecoderInterface& found = context.decoder.interface;
  found = find_interface(graph);
  if (!found.complete) return;
  found.batch = graph.symbols.fresh("batch");
  found.sequence = graph.symbols.fresh("sequence");
  found.past = graph.symbols.fresh("past");
  Dim batch = Dim::symbol(found.batch), sequence = Dim::symbol(found.sequence), past = Dim::symbol(found.past);
  auto rename = [&](ValueId id, size_t axis, const Dim& to) {
    if (id == no_value || axis >= rank(graph, id)) return;
    Dim& dim = (*graph.value(id).type.dims)[axis];
    if (!dim.is_constant()) dim = to;
  };
  rename(found.ids, 0, batch);
  rename(found.ids, 1, sequence);
  if (found.positions != no_value && rank(graph, found.positions) == 2) {
    rename(found.positions, 0, batch);
    rename(found.positions, 1, sequence);
  }
  rename(found.mask, 0, batch);
  if (found.mask != no_value && rank(graph, found.mask) == 2) rename(found.mask, 1, past + sequence);
  for (const auto& cache : found.caches) {
    rename(cache.past, 0, batch);
    rename(cache.past, static_cast<size_t>(cache.axis), past);
  }
}

}  // namespace plait
