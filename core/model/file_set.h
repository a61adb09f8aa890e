#pragma once
// A model's files, in a directory or in memory.
#include <memory>
#include <string>
#include <vector>

#include "core/base/named_blob.h"

namespace plait {

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

/// Throws Error(invalid_argument) on a name that is empty, absolute, leaves its directory, or occurs twice.
std::unique_ptr<FileSet> memory_files(std::vector<NamedBlob> blobs);

}  // namespace plait
