#pragma once
// Finds a directory's model file: the only code that knows the layout of model directories.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"

namespace plait::c_api {

/// Files by name, relative, with '/': of a directory, or in a host's memory. Thread-safe for reading.
class FileSet {
 public:
  virtual ~FileSet() = default;
  /// Names of the top-level files, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  /// Throws Error(not_found | io), naming the file.
  virtual std::shared_ptr<const Blob> read(const std::string& name) const = 0;
  /// For messages: "/models/gemma", or "memory".
  virtual std::string place() const = 0;

  /// "place/name", for messages.
  std::string path_of(const std::string& name) const { return place() + "/" + name; }
};

/// Throws Error(not_found) if there is no such directory.
std::unique_ptr<FileSet> directory_files(const std::string& directory);

struct NamedBlob {
  std::string name;
  std::shared_ptr<const Blob> blob;
};
/// Throws Error(invalid_argument) on a name that is empty, absolute, leaves its directory, or occurs twice.
std::unique_ptr<FileSet> memory_files(std::vector<NamedBlob> blobs);

/// The model's file among `files`: the one that genai_config.json names, model.onnx, decoder_model_merged.onnx, the
/// second of the pair decoder_model.onnx and decoder_with_past_model.onnx (with an empty past it does the work of
/// both), or the only .onnx file. Throws Error(not_found) if there is none, Error(invalid_argument) listing them if
/// several remain, Error(bad_model) if genai_config.json is damaged.
std::string choose_model_file(const FileSet& files);

}  // namespace plait::c_api
