#pragma once
// config.json as a spec of a decoder, and the names of its weights.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "importers/decoder/decoder_spec.h"

namespace plait::huggingface {

/// How a weight lies in the file.
struct Part {
  std::string name;              ///< in the file
  int64_t begin = 0, count = 0;  ///< of a fused weight, these outputs; count 0: all
  int64_t all = 0;               ///< outputs of the fused weight
  bool inputs_first = false;     ///< [k, n]
  bool by_head = false;          ///< outputs are [heads, 3, head size]: `begin` is which of the three
};

struct Model {
  decoder::DecoderSpec spec;
  /// Where the weight that decoder::Weights calls `name` lies: the first of these that there is.
  std::vector<Part> parts_of(const std::string& name) const;

  /// Whether the module has a bias, by the configuration: one of the file that it does not have is not read.
  bool has_bias(const std::string& module) const;

  std::vector<std::pair<std::string, Part>> names;  ///< ours, theirs; "{}" is the layer's number
  struct Biases {
    bool qkv = false, output = false, mlp = false, head = false;
  } biases;
  std::vector<std::string> ignored;  ///< fields that the class does not have
};

/// Fields that config.json leaves out have the defaults of transformers' class. Throws Error(unsupported | bad_model), naming the field: of
/// those that the class has, each is taken, or is without effect on logits, or has its usual value.
Model read_config(const nlohmann::json& config);

}  // namespace plait::huggingface
