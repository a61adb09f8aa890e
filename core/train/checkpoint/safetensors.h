#pragma once
// Hugging Face's safetensors files: a JSON header that names tensors, then their bytes. Weights outside of ONNX files: a
// checkpoint's shards, and adapters in PEFT's layout. Format: the README of github.com/huggingface/safetensors.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// One file, mapped and read-only. Opening it checks the whole header: sizes are those of dtype and shape, and the tensors
/// lie one behind the other with nothing between or behind them, as the format asks. Thread-safe; copies share the mapping.
class SafeTensors {
 public:
  struct Entry {
    DType dtype = DType::none;
    Shape shape;
    int64_t offset = 0;  ///< in the file
    int64_t bytes = 0;
  };

  /// Throws Error: not_found, io; bad_model (damaged: what, and which tensor); unsupported (a dtype that Plait does not
  /// have, more dimensions than Shape::max_rank). Messages name the file. With a `checksum` (CRC-32C) a header that has
  /// another one is damaged, whatever it says.
  static SafeTensors open(const std::string& path, std::optional<uint32_t> checksum = std::nullopt);

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  ///< of "__metadata__"
  bool has(const std::string& name) const { return entries_.contains(name); }
  /// Shares the mapping. Elements need not be aligned. Throws Error(not_found) with the file's name.
  Tensor tensor(const std::string& name) const;
  /// The header with the eight bytes of its length: where the first tensor begins.
  std::span<const std::byte> header() const;

 private:
  std::string path_;
  std::shared_ptr<const Blob> blob_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
  int64_t data_ = 0;
};

/// What to write: names are unique and not "__metadata__".
struct NamedTensor {
  std::string name;
  TensorView view;
};

/// Writes a file and syncs it (see FileWriter). Tensors stand in the order of falling element size, then of names, and begin
/// at a multiple of their element's size: the bytes depend on names and contents alone. Returns the header as
/// SafeTensors::header gives it. Throws Error: io, unsupported (a dtype that the format does not have), invalid_argument.
std::string write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace plait
