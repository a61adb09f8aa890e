#include "core/model/encoder_decoder.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/branch.h"
#include "core/graph/graft.h"
#include "core/graph/roles.h"
#include "core/model/model_config.h"

namespace plait {
namespace {

std::string path_in(const ModelSource& source) { return quote(source.files->path_of(source.file)); }

std::vector<ValueId> encoded_inputs(const Graph& graph) {
  std::vector<ValueId> out;
  for (ValueId id : graph.inputs)
    if (is_encoded(graph.value(id))) out.push_back(id);
  return out;
}

/// The output that continues the input of that name; no_value if there is none.
ValueId present_of(const Graph& graph, const std::string& past) {
  for (const std::string& name : present_names(past))
    for (ValueId id : graph.outputs)
      if (graph.value(id).name == name) return id;
  return no_value;
}

bool is_past(const Value& input) {
  return !is_encoded(input) && is_float(input.type.dtype) && !present_names(input.name).empty();
}

/// The bool by which a merged decoder chooses its branch; no_value if there is none.
ValueId branch_of(const Graph& graph) {
  for (ValueId id : graph.inputs) {
    const Type& type = graph.value(id).type;
    if (type.dtype == DType::boolean && type.dims && type.dims->size() <= 1) return id;
  }
  return no_value;
}

/// The decoder's outputs, without keys and values that the encoder makes; without a past only the first.
std::vector<ValueId> own_outputs(const Graph& graph) {
  std::vector<ValueId> out;
  const bool has_past =
      std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) { return is_past(graph.value(id)); });
  for (ValueId id : graph.outputs)
    if (graph.value(id).name == "logits") out = {id};
  if (out.empty() && !graph.outputs.empty()) out = {graph.outputs[0]};
  for (ValueId id : graph.inputs)
    if (const ValueId present = present_of(graph, graph.value(id).name);
        has_past && !is_encoded(graph.value(id)) && present != no_value)
      out.push_back(present);
  return out;
}

/// Inputs of the decoder's own tokens become those of a run of one token: keys and values of what the encoder makes depend on none, and
/// read at most their sizes.
void give_one_token(Graph& graph) {
  const std::vector<ValueId> inputs = graph.inputs;
  for (ValueId id : inputs) {
    Value& value = graph.value(id);
    if (value.name == hidden_input || is_encoded_mask(value) || !is_integer(value.type.dtype) || !value.type.dims)
      continue;
    const bool is_mask = value.name.find("mask") != std::string::npos;
    Shape shape;
    for (size_t axis = 0; axis < value.type.dims->size(); ++axis) shape.push_back(1);
    Tensor one(value.type.dtype, shape);
    if (is_mask) one.data()[0] = std::byte{1};  // little endian
    value.type.dims = Dims(shape.begin(), shape.end());
    value.constant = std::make_shared<Constant>(Constant{{}, std::move(one), {}});
    value.name.clear();
    std::erase(graph.inputs, id);
  }
}

/// The encoder's hidden state, by its name or as its only output of floats [b, n, h].
ValueId hidden_of(const Graph& encoder) {
  ValueId only = no_value;
  int64_t count = 0;
  for (ValueId id : encoder.outputs) {
    const Value& value = encoder.value(id);
    if (value.name == "last_hidden_state" || value.name == hidden_input || value.name == "hidden_states") return id;
    if (value.type.dtype != DType::none && !is_float(value.type.dtype)) continue;
    only = id;
    ++count;
  }
  return count == 1 ? only : no_value;
}

class Joiner {
 public:
  Joiner(const ModelSource& source, ModelSource encoder, const OpSet& ops, LoadProgress* progress)
      : source_(source), encoder_(std::move(encoder)), ops_(ops), progress_(progress) {}

  EncoderDecoder run(const Graph& graph) {
    EncoderDecoder out{import_model(encoder_, ops_, progress_).graph, graph};
    const ValueId branch = branch_of(graph);
    if (branch != no_value) take_branch(out.decoder, branch, true);
    keep_outputs(out.decoder, own_outputs(out.decoder));
    std::vector<std::string> wanted, made_first;  // names of the decoder's inputs
    for (ValueId id : encoded_inputs(out.decoder)) {
      const std::string& name = wanted.emplace_back(out.decoder.value(id).name);
      if (name != hidden_input && present_of(out.encoder, name) == no_value) made_first.push_back(name);
    }
    if (!made_first.empty()) before_first(graph, made_first, out.encoder);
    take_outputs(out, wanted);
    out.encoder.name = source_.files->path_of(encoder_.file);  // for messages
    return out;
  }

 private:
  /// The graph that computes keys and values of cross-attention.
  Graph first_graph(const Graph& graph) const {
    Graph out = graph;
    const ValueId branch = branch_of(graph);
    if (branch != no_value) {
      take_branch(out, branch, false);
      return out;
    }
    constexpr std::string_view with_past = "decoder_with_past_model";
    ModelSource other = source_;
    if (const size_t at = other.file.find(with_past); at != std::string::npos)
      other.file.replace(at, with_past.size(), "decoder_model");
    if (other.file == source_.file || !source_.files->has(other.file))
      throw Error(Code::not_found,
                  cat(path_in(source_),
                      " takes keys and values of cross-attention, and the file that makes them is not next to it"),
                  "export decoder_model.onnx too, or decoder_model_merged.onnx");
    return import_model(other, ops_, progress_).graph;
  }

  /// Makes `encoder` compute the keys and values of these inputs of the decoder as well.
  void before_first(const Graph& graph, const std::vector<std::string>& names, Graph& encoder) const {
    Graph first = first_graph(graph);
    std::vector<ValueId> outputs;
    for (const std::string& name : names) {
      outputs.push_back(present_of(first, name));
      if (outputs.back() == no_value)
        throw Error(Code::bad_model, cat(path_in(source_), ": no output makes what input ", quote(name), " takes"));
    }
    keep_outputs(first, outputs);
    give_one_token(first);
    const ValueId hidden = hidden_of(encoder);
    if (hidden == no_value)
      throw Error(Code::bad_model, cat(path_in(encoder_), ": no output is a hidden state, as last_hidden_state"));
    ValueId input = no_value;
    for (ValueId id : first.inputs) {
      Value& value = first.value(id);
      if (value.name == hidden_input) input = id;
      else if (!is_encoded_mask(value))
        throw Error(Code::unsupported, cat(path_in(source_), ": keys and values of cross-attention depend on input ",
                                           quote(value.name)));
      else
        for (ValueId mask : encoder.inputs)  // one mask for both
          if (encoder.value(mask).name.find("mask") != std::string::npos) value.name = encoder.value(mask).name;
    }
    if (input == no_value)
      throw Error(
          Code::unsupported,
          cat(path_in(source_), ": keys and values of cross-attention do not depend on input ", hidden_input));
    const auto number = std::find(encoder.outputs.begin(), encoder.outputs.end(), hidden) - encoder.outputs.begin();
    graft(first, input, encoder, static_cast<size_t>(number));
    first.value(input).name = hidden_input;
    first.outputs.push_back(input);
    encoder = std::move(first);
  }

  /// The encoder's outputs become those that the decoder takes, in order.
  void take_outputs(EncoderDecoder& joined, const std::vector<std::string>& wanted) const {
    std::vector<ValueId> outputs;
    for (const std::string& name : wanted) {
      const ValueId id = name == hidden_input ? hidden_of(joined.encoder) : present_of(joined.encoder, name);
      if (id == no_value)
        throw Error(Code::bad_model,
                    cat(path_in(encoder_), ": no output is what the decoder's input ", quote(name), " takes"));
      outputs.push_back(id);
    }
    keep_outputs(joined.encoder, std::move(outputs));
  }

  const ModelSource& source_;
  const ModelSource encoder_;
  const OpSet& ops_;
  LoadProgress* const progress_;
};

}  // namespace

std::optional<ModelSource> encoder_of(const ModelSource& source) {
  const std::filesystem::path folder = std::filesystem::path(source.file).parent_path();
  const std::string decoder = std::filesystem::path(source.file).filename().string();
  std::vector<std::string> names{read_model_config(*source.files).encoder_file};
  for (std::string_view kind : {"decoder_model_merged", "decoder_with_past_model", "decoder_model"})
    if (decoder.starts_with(kind)) {
      names.push_back((folder / cat("encoder_model", decoder.substr(kind.size()))).generic_string());
      break;
    }
  for (const char* usual : {"encoder_model.onnx", "encoder.onnx"}) names.push_back((folder / usual).generic_string());
  return other_file(source, names);
}

std::optional<EncoderDecoder> with_encoder(const ModelSource& source, const Graph& graph, const OpSet& ops,
                                           LoadProgress* progress) {
  if (encoded_inputs(graph).empty()) return std::nullopt;
  const auto encoder = encoder_of(source);
  if (!encoder) return std::nullopt;
  return Joiner(source, *encoder, ops, progress).run(graph);
}

}  // namespace plait
