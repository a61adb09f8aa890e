#pragma once
// Results of PEFT and PyTorch for prefixes before the fixtures (tests/fixtures/prefix_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/safetensors.h"
#include "tests/unit/support/models.h"

namespace plait::test {

inline const nlohmann::json& prefix_goldens() {
  static const nlohmann::json all = [] {
    std::ifstream file(PLAIT_FIXTURES "/prefix/prefix.json");
    return nlohmann::json::parse(file);
  }();
  return all;
}

/// The directory of the family's adapter, as PEFT saved it; "llama-untied" of "llama-untied-optimum18".
inline std::string prefix_directory(const std::string& fixture) {
  return PLAIT_FIXTURES "/prefix/" + fixture.substr(0, fixture.rfind('-'));
}
inline const nlohmann::json& prefix_family(const std::string& fixture) {
  return prefix_goldens()["families"][fixture.substr(0, fixture.rfind('-'))];
}
/// "gradient" of the prefix, or "logits" [s, v] of the first document.
inline Tensor prefix_golden(const std::string& fixture, const std::string& which) {
  const SafeTensors file = SafeTensors::open(prefix_directory(fixture) + "/goldens.safetensors");
  const Tensor mapped = file.tensor(which);
  return Tensor::of<float>(DType::f32, mapped.shape(), {mapped.as<float>(), static_cast<size_t>(mapped.elements())});
}

inline std::vector<std::string> prefix_fixtures() {
  return {"gpt2-optimum18",    "llama-standard23", "llama-dynamo23",  "llama-untied-optimum18",
          "gemma3-standard23", "gemma3-optimum18", "qwen2-optimum18", "qwen3-dynamo23"};
}

inline std::string name_of_case(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

}  // namespace plait::test
