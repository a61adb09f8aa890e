#pragma once
// The ONNX files of the fixtures, as inputs that fuzzers start from.
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/mapped_file.h"

namespace plait::fuzz {

/// The smaller ones: what is large in the others is more of the same layers.
inline std::vector<std::string> fixture_files() {
  constexpr std::uintmax_t largest = 200'000;
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(PLAIT_FIXTURES)) {
    auto model = entry.path() / "model.onnx";
    if (std::filesystem::exists(model) && std::filesystem::file_size(model) <= largest)
      out.push_back(read_text_file(model.string()));
  }
  return out;
}

}  // namespace plait::fuzz
