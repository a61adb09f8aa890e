#pragma once
// The cache of Tokenizer::load's binary forms. Nothing here throws: failures are treated as a missing cache.
#include <memory>
#include <string>
#include <string_view>

#include "core/base/tensor.h"

namespace plait {

/// One file per model directory, so that a changed tokenizer.json replaces it.
std::string fast_cache_path(const std::string& directory, const std::string& cache_dir);

/// Null if there is no such file or it cannot be read.
std::shared_ptr<Blob> read_fast_cache(const std::string& path);

/// Other processes see the old file or the whole new one. Creates the directory if needed.
void write_fast_cache(const std::string& path, std::string_view fast) noexcept;

inline std::string_view blob_text(const Blob& blob) {
  return {reinterpret_cast<const char*>(blob.data()), static_cast<size_t>(blob.size())};
}

}  // namespace plait
