// Embedding graphs that take more than token ids: rows of an image or a sound (image_features, audio_features), which they put in the
// places of tokens. Found is the part that makes embeddings of ids only, and by probing, for which ids rows are taken, unchanged and in
// order: then rows may be given as `give_rows` takes them.
#include <algorithm>
#include <cmath>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/graph/graft.h"
#include "core/graph/infer.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/normalize/normalize.h"

namespace plait {
namespace {

class EmbeddingsProbe {
 public:
  EmbeddingsProbe(const Graph& graph, const CompileOptions& options)
      : graph_(graph), context_{options, {}, {}, false} {
    if (take_branches()) fold(graph_, context_);
    infer_graph(options.ops, graph_, knowledge_);
    for (ValueId id : graph_.inputs)
      if (is_float(graph_.value(id).type.dtype)) features_.push_back(id);
      else if (is_integer(graph_.value(id).type.dtype) && ids_ == no_value) ids_ = id;
      else throw refused(cat("its input ", quote(graph_.value(id).name), " is neither token ids nor rows of floats"));
    if (ids_ == no_value) throw refused("no input looks like token ids");
    for (ValueId id : graph_.outputs)
      if (graph_.value(id).name == embeddings_input || graph_.outputs.size() == 1) output_ = id;
    if (output_ == no_value) throw refused(cat("no output is called ", embeddings_input));
  }

  TextEmbeddings run(std::span<const int32_t> known_tokens) {
    const std::vector<ValueId> seams = seams_of();
    const std::vector<int32_t> ids = candidates(known_tokens);
    std::string why = "no value of ids only is merged with the rows";
    for (ValueId seam : seams) {
      const auto& dims = graph_.value(seam).type.dims;
      size_ = dims && dims->size() == 3 && dims->back().is_constant() ? dims->back().constant() : 0;
      if (!size_) continue;
      std::vector<GivenInput> inputs;
      why = "rows are not taken unchanged for any token id";
      try {
        for (ValueId feature : features_)
          inputs.push_back({graph_.value(feature).name, tokens_of(seam, feature, ids)});
      } catch (const Error& error) {
        if (!is_about_input(error.code())) throw;
        why = error.message();
        continue;
      }
      if (std::all_of(inputs.begin(), inputs.end(), [](const GivenInput& one) { return one.tokens.empty(); }))
        continue;
      return {cut(seam), std::move(inputs)};
    }
    throw refused(why);
  }

 private:
  static Error refused(const std::string& why) {
    return {Code::unsupported, cat("it takes more than token ids, and ", why),
            "export one that only looks up the table; embeddings of images are an option of requests"};
  }

  /// An If of which only one branch reads rows asks whether there are any: that branch is taken. False if there is none.
  bool take_branches() {
    std::vector<bool> of_rows(static_cast<size_t>(graph_.value_count()));
    for (ValueId id : graph_.inputs) of_rows[static_cast<size_t>(id)] = is_float(graph_.value(id).type.dtype);
    bool any = false;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto depends = [&](ValueId id) { return id != no_value && of_rows[static_cast<size_t>(id)]; };
      const Node& node = graph_.nodes[i];
      const bool rows = std::any_of(node.inputs.begin(), node.inputs.end(), depends);
      for (ValueId id : node.outputs)
        if (id != no_value) of_rows[static_cast<size_t>(id)] = rows;
      if (node.op != "If" || !rows) continue;
      std::vector<std::string> readers;
      for (const auto& [name, body] : node.bodies)
        if (reads(*body, node, depends)) readers.push_back(name);
      if (readers.size() != 1) continue;
      const uint8_t taken = readers[0] == "then_branch";
      graph_.nodes[i].inputs[0] = graph_.add_constant(Tensor::of<uint8_t>(DType::boolean, {}, {&taken, 1}));
      of_rows.push_back(false);
      any = true;
    }
    return any;
  }

  /// Whether a node or result of the body is one of the captures of `node` that depend on rows.
  template <class Depends>
  static bool reads(const Graph& body, const Node& node, Depends depends) {
    for (size_t k = 0; k < body.inputs.size() && k + 1 < node.inputs.size(); ++k) {
      if (!depends(node.inputs[k + 1])) continue;
      const ValueId own = body.inputs[k];
      const auto has = [&](const std::vector<ValueId>& list) {
        return std::find(list.begin(), list.end(), own) != list.end();
      };
      if (has(body.outputs) ||
          std::any_of(body.nodes.begin(), body.nodes.end(), [&](const Node& one) { return has(one.inputs); }))
        return true;
    }
    return false;
  }

  Graph cut(ValueId seam) const {
    Graph out = graph_;
    out.outputs = {seam};
    out.remove_dead();
    std::erase_if(out.inputs, [&](ValueId id) { return id != ids_; });
    return out;
  }

  /// Values of floats that depend on ids only and are merged with what depends on rows; before reshapes.
  std::vector<ValueId> seams_of() const {
    std::vector<bool> of_rows(static_cast<size_t>(graph_.value_count())), of_ids = of_rows;
    for (ValueId id : features_) of_rows[static_cast<size_t>(id)] = true;
    of_ids[static_cast<size_t>(ids_)] = true;
    const std::vector<int32_t> producer = producers(graph_);
    std::vector<ValueId> out;
    for (const Node& node : graph_.nodes) {
      const auto any = [&](const std::vector<bool>& of) {
        return std::any_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId id) { return id != no_value && of[static_cast<size_t>(id)]; });
      };
      const bool rows = any(of_rows), ids = any(of_ids);
      for (ValueId id : node.outputs)
        if (id != no_value) of_rows[static_cast<size_t>(id)] = rows, of_ids[static_cast<size_t>(id)] = ids;
      for (ValueId id : node.inputs) {
        if (!rows || id == no_value || of_rows[static_cast<size_t>(id)] || !of_ids[static_cast<size_t>(id)]) continue;
        if (!is_float(graph_.value(id).type.dtype)) continue;
        for (int32_t maker; (maker = producer[static_cast<size_t>(id)]) >= 0;) {
          const Node& made = graph_.nodes[static_cast<size_t>(maker)];
          const auto& dims = graph_.value(id).type.dims;
          const bool moves =
              made.op == "Reshape" || made.op == "Flatten" || made.op == "Identity" || made.op == "Cast";
          if ((dims && dims->size() == 3) || !moves) break;
          id = made.inputs[0];
        }
        if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
      }
    }
    return out;
  }

  /// Ids for which a file may take rows: those of its configuration, those that it compares with, and negative ones (Phi-3 vision).
  std::vector<int32_t> candidates(std::span<const int32_t> known) const {
    constexpr size_t most = 64;
    std::vector<int32_t> out(known.begin(), known.end());
    const auto add = [&](double id) {
      const bool fits = id == std::floor(id) && std::fabs(id) < 2147483647.0;
      if (fits && out.size() < most && std::find(out.begin(), out.end(), static_cast<int32_t>(id)) == out.end())
        out.push_back(static_cast<int32_t>(id));
    };
    for (int32_t id = -1; id >= -8; --id) add(id);
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const auto& constant = graph_.value(id).constant;
      if (!constant || !is_integer(constant->dtype()) || constant->shape().elements() != 1) continue;
      if (const auto number = scalar_of(graph_, id)) add(*number);
    }
    return out;
  }

  std::vector<int32_t> tokens_of(ValueId seam, ValueId feature, const std::vector<int32_t>& ids) {
    std::vector<int32_t> out;
    for (int32_t id : ids)
      if (takes(seam, feature, id, ids)) out.push_back(id);
    return out;
  }

  /// Whether the rows of `feature` come in the places of token `id`, and the seam's in all others.
  bool takes(ValueId seam, ValueId feature, int32_t id, const std::vector<int32_t>& special) {
    std::vector<int64_t> ids;
    std::vector<int64_t> row_at;
    int64_t rows = 0, text = 3;
    for (const bool is_row : {false, true, false, false, true, true, false}) {
      while (!is_row && std::find(special.begin(), special.end(), text) != special.end()) ++text;
      ids.push_back(is_row ? id : text++);
      row_at.push_back(is_row ? rows++ : -1);
    }
    const auto count = static_cast<int64_t>(ids.size());
    const std::vector<float> own = numbers(count, 1), given = numbers(rows, 2);
    std::vector<float> expected = own;
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t row = row_at[static_cast<size_t>(i)]; row >= 0)
        std::copy_n(given.begin() + row * size_, size_, expected.begin() + i * size_);
    Evaluator evaluator(context_, graph_);
    Tensor of_ids = Tensor::of_ints(ids).reshaped({1, count});
    if (graph_.value(ids_).type.dtype == DType::i32) {
      const std::vector<int32_t> narrow(ids.begin(), ids.end());
      of_ids = Tensor::of<int32_t>(DType::i32, {1, count}, narrow);
    }
    evaluator.bind(ids_, of_ids);
    evaluator.bind(seam, in_type(seam, {1, count, size_}, own));
    for (ValueId one : features_) {
      const auto& dims = graph_.value(one).type.dims;
      const int64_t here = one == feature ? rows : 0;
      Shape shape{here, size_};
      if (dims && dims->size() == 3) shape = {1, here, size_};
      evaluator.bind(one, in_type(one, shape, one == feature ? given : std::vector<float>()));
    }
    try {
      const Tensor made = materialize({{}, evaluator.value(output_), {{RecipeStep::Kind::cast, {}, DType::f32}}});
      return made.elements() == static_cast<int64_t>(expected.size()) &&
             std::equal(expected.begin(), expected.end(), made.as<float>());
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return false;  // rows without places, or an id beyond a table
    }
  }

  /// Different small integers, which each type of floats holds.
  std::vector<float> numbers(int64_t count, int seed) const {
    std::vector<float> out(static_cast<size_t>(count * size_));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed) * 31) % 251);
    return out;
  }

  Tensor in_type(ValueId id, const Shape& shape, const std::vector<float>& values) const {
    return materialize({{},
                        Tensor::of<float>(DType::f32, shape, values),
                        {{RecipeStep::Kind::cast, {}, graph_.value(id).type.dtype}}});
  }

  Graph graph_;
  Knowledge knowledge_;
  PassContext context_;
  ValueId ids_ = no_value, output_ = no_value;
  std::vector<ValueId> features_;
  int64_t size_ = 0;  ///< h
};

}  // namespace

TextEmbeddings text_embeddings(const Graph& file, const CompileOptions& options,
                               std::span<const int32_t> known_tokens) {
  return EmbeddingsProbe(file, options).run(known_tokens);
}

}  // namespace plait
