#pragma once
// Settings from a model's JSON files: config.json, generation_config.json, genai_config.json.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/c/options.h"

namespace plait::c_api {

class FileSet;

struct ModelConfig {
  std::string genai_file;           ///< the model file in genai_config.json; "" if absent
  int64_t context = 0;              ///< tokens; 0: unspecified
  std::vector<int32_t> eos_tokens;  ///< of generation_config.json, otherwise genai_config.json, otherwise config.json
  /// Options of requests, from generation_config.json: with do_sample the file's, with transformers' defaults
  /// (temperature 1, top_k 50); otherwise greedy.
  Settings request_defaults;
};

/// Missing files are skipped. Throws Error(bad_model), naming the file and the field.
ModelConfig read_model_config(const FileSet& files);

}  // namespace plait::c_api
