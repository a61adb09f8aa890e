// Pass interface: finds the roles of a language model's inputs and outputs, and unifies their symbols.
//
// Exporters name each past length differently ("s26", "past_sequence_length"), and the attention mask's length not as
// a sum. One symbol each for batch, sequence and past makes derived shapes comparable.
#include <algorithm>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/graph/graft.h"
#include "core/graph/infer.h"
#include "core/graph/roles.h"
#include "core/passes/normalize/normalize.h"

namespace plait {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

size_t rank(const Graph& graph, ValueId id) {
  const auto& dims = graph.value(id).type.dims;
  return dims ? dims->size() : 0;
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

bool is_open(const Dims& dims) {
  return std::any_of(dims.begin() + 1, dims.end(), [](const Dim& dim) { return !dim.is_constant(); });
}

/// The axis of the past length: the last but one if that is symbolic, otherwise the only symbolic one after the
/// batch.
int past_axis(const Dims& dims) {
  int last_but_one = static_cast<int>(dims.size()) - 2;
  if (!dims[static_cast<size_t>(last_but_one)].is_constant()) return last_but_one;
  for (int axis = 1; axis < static_cast<int>(dims.size()); ++axis)
    if (!dims[static_cast<size_t>(axis)].is_constant()) return axis;
  return last_but_one;
}

class Finder {
 public:
  Finder(const Graph& graph, const OpSet& ops) : graph_(graph), ops_(ops) {}

  DecoderInterface run() {
    for (ValueId id : graph_.inputs) find_role(id);
    for (size_t k = 0; k < graph_.outputs.size(); ++k)
      if (graph_.value(graph_.outputs[k]).name == "logits") found_.logits = static_cast<int>(k);
    if (found_.logits < 0 && !graph_.outputs.empty() && !gives_hidden_state()) found_.logits = 0;
    pair_by_name();
    pair_by_position();
    // Without a count of a buffer's contents, an input of fixed size is a state.
    for (auto& cache : found_.caches)
      if (found_.counters.empty() && !is_open(cache.dims)) cache.axis = -1;
    find_idle();
    fill_sizes();
    if (found_.ids == no_value) found_.why = "no integer input of rank 2 looks like token ids";
    else if (found_.logits < 0)
      found_.why = graph_.outputs.empty() ? "there is no output"
                                          : cat("it gives ", quote(graph_.value(graph_.outputs[0]).name),
                                                ", and no logits: an encoder, or a decoder without its head");
    for (const auto& cache : found_.caches)
      if (cache.present < 0) found_.why = no_output(cache.past);
    if (found_.ids == no_value && takes_embeddings())
      found_.why =
          cat("it takes ", embeddings_input,
              ", and the file that makes them of token ids is not next to it: embed_tokens.onnx, or the one that "
              "genai_config.json names");
    if (found_.encoded_mask != no_value && found_.encoded.empty())
      found_.why = cat("input ", quote(graph_.value(found_.encoded_mask).name),
                       " is a mask of an encoder's, of which it takes nothing");
    for (const auto& counter : found_.counters)
      if (counter.output < 0) found_.why = no_output(counter.input);
    found_.complete = found_.why.empty();
    return std::move(found_);
  }

 private:
  bool takes_embeddings() const {
    return std::any_of(graph_.inputs.begin(), graph_.inputs.end(),
                       [&](ValueId id) { return graph_.value(id).name == embeddings_input; });
  }

  /// As encoders' files do; a decoder's first output is taken for its logits, whatever its name.
  bool gives_hidden_state() const {
    const std::string& name = graph_.value(graph_.outputs[0]).name;
    return name == "last_hidden_state" || name == "pooler_output" || name == "sentence_embedding";
  }

  std::string no_output(ValueId id) const {
    return cat("input ", quote(graph_.value(id).name), " has no output that continues it");
  }

  void find_role(ValueId id) {
    const Value& value = graph_.value(id);
    DType dtype = value.type.dtype;
    if (value.name == given_rows_input) {
      found_.given = id;
      found_.given_size = value.type.dims->back().constant();
      return;
    }
    if (value.name == given_at_input) {
      found_.given_at = id;
      return;
    }
    if (is_encoded(value)) {
      found_.encoded.push_back(id);
      return;
    }
    if (is_encoded_mask(value)) {
      found_.encoded_mask = id;
      return;
    }
    bool single = value.type.dims && product(*value.type.dims) == Dim(1) && rank(graph_, id) <= 1;
    if (is_float(dtype) && rank(graph_, id) >= 3) {
      DecoderInterface::Cache cache;
      cache.past = id;
      cache.axis = past_axis(*value.type.dims);
      cache.layer = layer_of(value.name, static_cast<int>(found_.caches.size() / 2));
      cache.dims = *value.type.dims;
      found_.caches.push_back(std::move(cache));
    } else if (single && is_integer(dtype)) {
      found_.counters.push_back({id, -1});
    } else if (single && dtype == DType::boolean) {
      found_.branch = id;
    } else if (contains(value.name, "mask")) {
      found_.mask = id;
    } else if (contains(value.name, "position")) {
      found_.positions = id;
      const bool in_rows = rank(graph_, id) == 3 && (*value.type.dims)[0].is_constant();
      found_.position_rows = in_rows ? (*value.type.dims)[0].constant() : 0;
    } else if (is_integer(dtype) && rank(graph_, id) == 2 && (found_.ids == no_value || value.name == "input_ids")) {
      found_.ids = id;
    }
  }

  /// The output that is the input's next value, by name; -1 if there is none.
  int continuation(ValueId id) const {
    for (const std::string& name : present_names(graph_.value(id).name))
      for (size_t k = 0; k < graph_.outputs.size(); ++k)
        if (static_cast<int>(k) != found_.logits && graph_.value(graph_.outputs[k]).name == name)
          return static_cast<int>(k);
    return -1;
  }

  void pair_by_name() {
    for (auto& cache : found_.caches) cache.present = continuation(cache.past);
    for (auto& counter : found_.counters) counter.output = continuation(counter.input);
  }

  /// What no habit names is paired by position, when the counts agree.
  void pair_by_position() {
    bool all_named =
        std::all_of(found_.caches.begin(), found_.caches.end(), [](const auto& cache) { return cache.present >= 0; });
    std::vector<int> rest;
    for (int k = 0; k < static_cast<int>(graph_.outputs.size()); ++k) {
      bool counts = std::any_of(found_.counters.begin(), found_.counters.end(),
                                [&](const auto& counter) { return counter.output == k; });
      if (k != found_.logits && !counts) rest.push_back(k);
    }
    if (!all_named && rest.size() == found_.caches.size())
      for (size_t i = 0; i < rest.size(); ++i) found_.caches[i].present = rest[i];
  }

  /// Finds pasts that only pass-through nodes read, on the way to their own output.
  void find_idle() {
    std::vector<int> same(static_cast<size_t>(graph_.value_count()), -1);  // by value: the cache that it is
    std::vector<bool> read(found_.caches.size());
    for (size_t k = 0; k < found_.caches.size(); ++k)
      same[static_cast<size_t>(found_.caches[k].past)] = static_cast<int>(k);
    for (const Node& node : graph_.nodes)
      for (ValueId id : node.inputs) {
        const int cache = id == no_value ? -1 : same[static_cast<size_t>(id)];
        if (cache < 0) continue;
        if (node.op == "Identity") same[static_cast<size_t>(node.outputs[0])] = cache;
        else read[static_cast<size_t>(cache)] = true;
      }
    for (size_t k = 0; k < found_.caches.size(); ++k) {
      auto& cache = found_.caches[k];
      if (cache.present < 0 || cache.axis < 0 || read[k]) continue;
      ValueId handed_on = graph_.outputs[static_cast<size_t>(cache.present)];
      cache.idle = same[static_cast<size_t>(handed_on)] == static_cast<int>(k);
    }
  }

  /// Fills in a past's open sizes, such as the head size of files whose cache may be packed, from the inferred type
  /// of its next value. A buffer's next value has its length.
  void fill_sizes() {
    if (found_.ids == no_value || !graph_.value(found_.ids).type.dims) return;
    const Dims& ids = *graph_.value(found_.ids).type.dims;
    auto open = [&](const DecoderInterface::Cache& cache, size_t axis) {
      return !cache.dims[axis].is_constant() && static_cast<int>(axis) != cache.axis && cache.dims[axis] != ids[0] &&
             cache.present >= 0;
    };
    bool any = !found_.counters.empty();
    for (const auto& cache : found_.caches)
      for (size_t axis = 0; axis < cache.dims.size(); ++axis) any = any || open(cache, axis);
    if (!any) return;
    Graph inferred = graph_;
    try {
      Knowledge knowledge;
      infer_graph(ops_, inferred, knowledge);
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return;  // compilation reports it better
    }
    auto same_length = [&](const DecoderInterface::Cache& cache) {
      if (cache.present < 0 || cache.axis < 0) return false;
      const auto& dims = inferred.value(inferred.outputs[static_cast<size_t>(cache.present)]).type.dims;
      auto axis = static_cast<size_t>(cache.axis);
      return dims && dims->size() == cache.dims.size() && (*dims)[axis] == cache.dims[axis];
    };
    found_.fixed_buffers = !found_.caches.empty() && !found_.counters.empty() &&
                           std::all_of(found_.caches.begin(), found_.caches.end(), same_length);
    if (found_.fixed_buffers) read_buffers();
    auto batch = ids[0].single_symbol();
    for (auto& cache : found_.caches) {
      const auto& dims = inferred.value(inferred.outputs[static_cast<size_t>(std::max(cache.present, 0))]).type.dims;
      if (!dims || dims->size() != cache.dims.size()) continue;
      for (size_t axis = 0; axis < cache.dims.size(); ++axis) {
        std::vector<SymbolId> symbols = (*dims)[axis].symbols();
        bool told = symbols.empty() || (batch && symbols == std::vector<SymbolId>{*batch});
        if (open(cache, axis) && told) cache.dims[axis] = (*dims)[axis];
      }
    }
  }

  void read_buffers() {
    for (auto& cache : found_.caches) {
      const Dim& length = cache.dims[static_cast<size_t>(cache.axis)];
      if (!length.is_constant()) continue;
      cache.length = length.constant();
      cache.ring = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
        return node.op == "TensorScatter" && node.inputs[0] == cache.past &&
               node.attributes.string("mode", "linear") == "circular";
      });
    }
  }

  const Graph& graph_;
  const OpSet& ops_;
  DecoderInterface found_;
};

/// Rows of the table that positions pick from; nullopt if they pick from none. A run whose positions go beyond is refused.
std::optional<int64_t> position_table(const Graph& graph, ValueId positions) {
  std::optional<int64_t> rows;
  for (const Node& node : graph.nodes) {
    if (node.op != "Gather" || node.inputs[1] != positions || node.attributes.integer("axis", 0) != 0) continue;
    const auto& table = graph.value(node.inputs[0]).constant;
    if (table && table->shape().rank() == 2) rows = std::min(rows.value_or(INT64_MAX), table->shape()[0]);
  }
  return rows;
}

}  // namespace

DecoderInterface find_interface(const Graph& graph, const OpSet& ops) { return Finder(graph, ops).run(); }

void free_mask(Graph& graph, const DecoderInterface& found) {
  if (!found.complete || found.mask == no_value || found.caches.empty() || rank(graph, found.mask) != 2) return;
  Dim& length = (*graph.value(found.mask).type.dims)[1];
  if (!length.is_constant() && length == (*graph.value(found.ids).type.dims)[1])
    length = Dim::symbol(graph.symbols.fresh("mask_length"));
}

void interface(Graph& graph, PassContext& context) {
  DecoderInterface& found = context.decoder.interface;
  found = find_interface(graph, context.options.ops);
  if (!found.complete) return;
  found.batch = graph.symbols.fresh("batch");
  found.sequence = graph.symbols.fresh("sequence");
  found.past = graph.symbols.fresh("past");
  Dim batch = Dim::symbol(found.batch), sequence = Dim::symbol(found.sequence), past = Dim::symbol(found.past);
  auto old_batch = (*graph.value(found.ids).type.dims)[0].single_symbol();
  auto rename = [&](ValueId id, size_t axis, const Dim& to) {
    if (id == no_value || axis >= rank(graph, id)) return;
    Dim& dim = (*graph.value(id).type.dims)[axis];
    if (!dim.is_constant()) dim = to;
  };
  rename(found.ids, 0, batch);
  rename(found.ids, 1, sequence);
  if (found.positions != no_value && (rank(graph, found.positions) == 2 || found.position_rows)) {
    const size_t first = found.position_rows ? 1 : 0;
    rename(found.positions, first, batch);
    rename(found.positions, first + 1, sequence);
  }
  rename(found.given_at, 0, batch);
  rename(found.given_at, 1, sequence);
  rename(found.mask, 0, batch);
  if (found.mask != no_value && rank(graph, found.mask) == 2)
    rename(found.mask, 1, found.caches.empty() ? sequence : past + sequence);
  if (found.mask != no_value && rank(graph, found.mask) == 4) {  // which keys each token sees
    rename(found.mask, 2, sequence);
    rename(found.mask, 3, found.caches.empty() ? sequence : found.fixed_buffers ? past : past + sequence);
  }
  for (const auto& cache : found.caches) {
    Dims& dims = *graph.value(cache.past).type.dims;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      bool open = !dims[axis].is_constant();
      dims[axis] = old_batch ? cache.dims[axis].substitute(*old_batch, batch) : cache.dims[axis];
      if (static_cast<int>(axis) == cache.axis && open) dims[axis] = past;
      else if (axis == 0 && dims[axis].single_symbol()) dims[axis] = batch;
    }
  }
  if (auto rows = found.positions == no_value ? std::nullopt : position_table(graph, found.positions))
    context.knowledge.sum_bound = {{found.past, found.sequence}, *rows};
}

}  // namespace plait
