#pragma once
// Hugging Face's safetensors files: a JSON header with the tensors' names, then their bytes. Used for checkpoint
// shards and PEFT adapters. Format: the README of github.com/huggingface/safetensors.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// One file, mapped read-only. Opening checks the whole header: sizes match dtype and shape, and the tensors are
/// contiguous, as the format requires. Thread-safe; copies share the mapping.
class SafeTensors {
 public:
  struct Entry {
    DType dtype = DType::none;
    Shape shape;
    int64_t offset = 0;  ///< in the file
    int64_t bytes = 0;
  };

  /// Throws Error naming the file: not_found, io; bad_model (damaged: what, and which tensor); unsupported (an
  /// unknown dtype, more dimensions than Shape::max_rank). `checksum`: the expected CRC-32C of the header.
  static SafeTensors open(const std::string& path, std::optional<uint32_t> checksum = std::nullopt);

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  ///< of "__metadata__"
  bool has(const std::string& name) const { return entries_.contains(name); }
  /// Shares the mapping; elements may be unaligned. Throws Error(not_found) with the file's name.
  Tensor tensor(const std::string& name) const;
  /// The header and the eight bytes of its length: ends where the first tensor begins.
  std::span<const std::byte> header() const;

 private:
  std::string path_;
  std::shared_ptr<const Blob> blob_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
  int64_t data_ = 0;
};

/// Tensors to write: unique names, not "__metadata__".
struct NamedTensor {
  std::string name;
  TensorView view;
};

/// Writes and syncs a file (see FileWriter). Tensors are sorted by descending element size, then name, and aligned to
/// their elements, so the bytes depend only on names and contents. Returns the header like SafeTensors::header.
/// Throws Error: io, unsupported (a dtype that the format does not have), invalid_argument.
std::string write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace plait
