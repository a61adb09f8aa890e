#pragma once
// The ONNX files of the fixtures, as inputs that fuzzers start from.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/base/mapped_file.h"
#include "importers/onnx/import.h"
#include "tests/fuzz/fuzz.h"

namespace plait::fuzz {

/// The smaller ones of all dialects: what is large in the others is more of the same layers.
inline std::vector<std::string> fixture_files() {
  constexpr std::uintmax_t largest = 64'000;
  std::vector<std::string> paths, out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(PLAIT_FIXTURES))
    if (entry.path().extension() == ".onnx" && entry.file_size() <= largest) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) out.push_back(read_text_file(path));
  return out;
}

/// What an input's external data holds, whatever its name: small numbers.
inline std::shared_ptr<const Blob> external_data(const std::string&) {
  static const std::shared_ptr<const Blob> data = [] {
    std::vector<float> numbers(1 << 18);
    std::mt19937 random(1);
    for (float& number : numbers) number = static_cast<float>(random() % 2001) * 1e-3f - 1;
    return copy_blob(std::as_bytes(std::span(numbers)));
  }();
  return data;
}

/// The model that an input is. Throws Error.
inline ImportedModel model_of(const uint8_t* data, size_t size, const OpSet& ops) {
  return import_bytes(copy_blob({reinterpret_cast<const std::byte*>(data), size}), external_data, ops);
}

}  // namespace plait::fuzz
