// Inputs of a request next to its prompt: rows that stand for tokens, the grids of images, an encoder's input.
#include "bindings/c/request_inputs.h"

#include <algorithm>
#include <tuple>

#include "core/generate/image_places.h"

namespace plait::c_api {
namespace {

/// Rows that stand for tokens, of one option.
struct InputRows {
  std::string option;
  Tensor rows;                  ///< f32 [n, h]
  std::vector<int32_t> tokens;  ///< ids that they stand for
};

/// f32 [n, h] of [n, h] or [images, n, h].
Tensor rows_of(const Tensor& out, std::string_view option) {
  Shape shape = out.shape();
  if (shape.rank() == 3) shape = {shape[0] * shape[1], shape[2]};
  if (shape.rank() != 2 || !is_float(out.dtype()))
    throw Error(Code::invalid_argument, cat("option ", option, " is ", dtype_name(out.dtype()), out.shape().text(),
                                            ", expected f32, f16 or bf16 [n, h] or [images, n, h]"));
  return materialize({{}, out.reshaped(shape), {{RecipeStep::Kind::cast, {}, DType::f32}}});
}

std::vector<InputRows> input_rows_of(const Settings& settings, const OpenedModel& model) {
  std::vector<InputRows> out;
  for (const auto& [option, tensor, tokens] :
       {std::tuple("inputs_embeds", settings.tensor("inputs_embeds"), &model.config.input_tokens),
        std::tuple("image_features", settings.tensor("image_features"), &model.config.image_tokens),
        std::tuple("audio_features", settings.tensor("audio_features"), &model.config.audio_tokens)}) {
    if (!tensor.present()) continue;
    InputRows& one = out.emplace_back(InputRows{option, rows_of(tensor, option), *tokens});
    for (const GivenInput& input : model.given_inputs)  // the file's own ids
      if (input.name == option && !input.tokens.empty()) one.tokens = input.tokens;
  }
  if (out.size() > 1 && out[0].option == "inputs_embeds")
    throw Error(Code::invalid_argument,
                cat("options inputs_embeds and ", out[1].option, " are both rows for the prompt's tokens"),
                "give one of them");
  if (std::vector<int32_t> tokens = settings.ids("inputs_token"); !tokens.empty() && !out.empty()) {
    if (out.size() > 1)
      throw Error(Code::invalid_argument,
                  cat("option inputs_token is set for ", out[0].option, " and ", out[1].option),
                  "leave it out, or give all rows as inputs_embeds, in the order of their tokens");
    out[0].tokens = std::move(tokens);
  }
  return out;
}

/// All rows in the order of their tokens in the prompt.
Tensor in_order(const std::vector<InputRows>& inputs, std::span<const int32_t> prompt) {
  const int64_t size = inputs[0].rows.shape()[1];
  std::vector<int64_t> taken(inputs.size());
  std::vector<float> out;
  for (int32_t id : prompt)
    for (size_t i = 0; i < inputs.size(); ++i) {
      const InputRows& one = inputs[i];
      if (std::find(one.tokens.begin(), one.tokens.end(), id) == one.tokens.end()) continue;
      if (one.rows.shape()[1] == size && taken[i] < one.rows.shape()[0])
        out.insert(out.end(), one.rows.as<float>() + taken[i] * size, one.rows.as<float>() + (taken[i] + 1) * size);
      ++taken[i];
      break;
    }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].rows.shape()[0] != taken[i] || inputs[i].rows.shape()[1] != size)
      throw Error(Code::invalid_argument,
                  cat("option ", inputs[i].option, " has rows ", inputs[i].rows.shape().text(), ", and the prompt ",
                      taken[i], " tokens for them, of size ", size),
                  "write that token once for each row");
  return Tensor::of<float>(DType::f32, {static_cast<int64_t>(out.size()) / size, size}, out);
}

/// Grids of the prompt's images and videos, with the ids that their rows stand for.
std::vector<PatchGrids> grids_of(const Settings& settings, const ModelConfig& config) {
  PatchGrids images{"image_grid_thw", config.image_tokens, settings.tensor("image_grid_thw"), {}},
      videos{"video_grid_thw", config.video_tokens, settings.tensor("video_grid_thw"),
             settings.tensor("second_per_grid_ts")};
  videos.tokens_per_second = config.tokens_per_second;
  if (videos.seconds.present() && !videos.grids.present())
    throw Error(Code::invalid_argument, "option second_per_grid_ts is set, and video_grid_thw is not", "set both");
  if (const std::vector<int32_t> tokens = settings.ids("inputs_token"); !tokens.empty()) {
    if (images.grids.present() && !videos.grids.present()) images.tokens = tokens, videos.tokens.clear();
    if (videos.grids.present() && !images.grids.present()) videos.tokens = tokens, images.tokens.clear();
  }
  std::vector<PatchGrids> out;
  for (PatchGrids* one : {&images, &videos}) {
    if (one->grids.present() && one->tokens.empty())
      throw Error(Code::invalid_argument,
                  cat("option ", one->option, " is set, and nothing tells for which tokens its rows stand"),
                  "set option inputs_token");
    if (!one->tokens.empty()) out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace

void give_rows(RequestOptions& request, const Settings& settings, const OpenedModel& model,
               const DecoderInterface& interface) {
  const std::vector<InputRows> inputs = input_rows_of(settings, model);
  for (const InputRows& one : inputs)
    request.input_tokens.insert(request.input_tokens.end(), one.tokens.begin(), one.tokens.end());
  if (!inputs.empty()) request.input_rows = inputs.size() == 1 ? inputs[0].rows : in_order(inputs, request.prompt);
  const bool has_grids = settings.tensor("image_grid_thw").present() || settings.tensor("video_grid_thw").present();
  if (interface.takes_places() && (!inputs.empty() || has_grids))
    request.input_places =
        image_places(request.prompt, request.input_tokens, grids_of(settings, model.config), model.config.merge);
}

void give_encoder(RequestOptions& request, const Settings& settings, const ModelConfig& config,
                  const Encoder* encoder) {
  for (const auto& [name, tensor] : {std::pair("input_features", settings.tensor("input_features")),
                                     std::pair("input_values", settings.tensor("input_values")),
                                     std::pair("pixel_values", settings.tensor("pixel_values"))}) {
    if (!tensor.present()) continue;
    if (request.encoder_tensor.present())
      throw Error(Code::invalid_argument,
                  cat("options ", request.encoder_input, " and ", name, " are both the encoder's input"),
                  "give one of them");
    request.encoder_input = name;
    request.encoder_tensor = tensor;
  }
  std::vector<int32_t> begin = settings.ids("decoder_ids");
  if (!encoder) {
    if (!begin.empty())
      throw Error(Code::unsupported, "the model has no encoder, and option decoder_ids is set",
                  "leave it out: the prompt is what the decoder begins with");
    return;
  }
  if (request.parent) return;  // its tokens go on
  const bool takes_text = encoder->tensor_name().empty();
  if (!takes_text && !request.prompt.empty()) return;
  if (begin.empty()) begin = config.decoder_tokens;
  if (begin.empty())
    throw Error(Code::invalid_argument,
                "nothing tells with which token the decoder begins: config.json has no decoder_start_token_id",
                "set option decoder_ids");
  if (takes_text) request.encoder_text = std::move(request.prompt);
  request.prompt = std::move(begin);
}

}  // namespace plait::c_api
