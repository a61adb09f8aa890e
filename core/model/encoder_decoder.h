#pragma once
// Models of two parts, as exporters write them: an encoder, which runs once for a request, and a decoder that attends to what it made.
#include <optional>

#include "core/model/model_source.h"

namespace plait {

struct EncoderDecoder {
  Graph encoder;  ///< its outputs are the decoder's inputs that `is_encoded`, in order; its name is the file's path
  Graph decoder;  ///< of one token for each run if it has a past, as it was traced
};

/// The file next to a decoder's that has its encoder: the one that genai_config.json names, encoder_model.onnx (encoder_model_q4.onnx
/// of decoder_model_merged_q4.onnx), or encoder.onnx. nullopt: there is none.
std::optional<ModelSource> encoder_of(const ModelSource& source);

/// Of a decoder with inputs that `is_encoded`: the decoder with a past, and before it the encoder with what makes keys and values of
/// cross-attention: the encoder's file itself, the merged decoder's branch without a past, or decoder_model.onnx next to
/// decoder_with_past_model.onnx. nullopt: `graph` is another, or there is no encoder's file. Throws what import_model throws;
/// Error(not_found), Error(bad_model) or Error(unsupported), naming the file, if the parts are not complete or do not fit.
std::optional<EncoderDecoder> with_encoder(const ModelSource& source, const Graph& graph, const OpSet& ops,
                                           LoadProgress* progress = nullptr);

}  // namespace plait
