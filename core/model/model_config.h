#pragma once
// Settings from a model's JSON files: config.json, generation_config.json, genai_config.json.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/file_set.h"

namespace plait {

/// An option of requests that a file gives.
struct RequestDefault {
  std::string option, value;
  std::string origin;  ///< the file and its field, for messages
};

struct ModelConfig {
  std::string genai_file;           ///< the model file that genai_config.json names; "" if it does not
  std::string embeddings_file;      ///< the file of embeddings that it names; "" if it does not
  std::string encoder_file;         ///< the file of the decoder's encoder that it names; "" if it does not
  int64_t context = 0;              ///< tokens; 0: not specified
  int64_t encoder_context = 0;      ///< tokens of an encoder's text; 0: not specified
  std::vector<int32_t> decoder_tokens;  ///< with which a decoder begins after an encoder's input: the start token, and forced ones
  std::vector<int32_t> image_tokens, video_tokens, audio_tokens;  ///< for which embeddings of such stand
  std::vector<int32_t> input_tokens;                              ///< all of these
  int64_t merge = 0;             ///< patches, in each direction, that one row of an image spans; 0: not specified
  double tokens_per_second = 0;  ///< positions of M-RoPE for a second of a video; 0: not specified
  std::vector<std::string> encoder_files;  ///< of images and sounds, that genai_config.json names
  std::vector<int32_t> eos_tokens;  ///< of the first of generation_config, genai_config and config.json that has any
  /// Options of requests, by generation_config.json (suppressed tokens also by config.json): with do_sample they are the file's, and
  /// transformers' where the file leaves them out (temperature 1, top_k 50); without it, greedy. Without such a file its fields are read in
  /// config.json, as transformers does.
  std::vector<RequestDefault> request_defaults;
  std::vector<std::string> warnings;  ///< fields of generation_config.json that are not taken and not without effect, or not known
};

/// Missing files are skipped. Throws Error(bad_model), naming the file and the field.
ModelConfig read_model_config(const FileSet& files);

}  // namespace plait
