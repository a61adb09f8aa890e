#pragma once
// Files as blobs, and the one place where a path that a model names becomes a file.
#include <memory>
#include <string>

#include "core/base/tensor.h"

namespace plait {

/// Maps the whole file read-only. What others write to it later may show, and where they shorten it reading ends the
/// process: Blob::check tells, and has to be called before each use. A file that is replaced under its name (rename) is
/// no matter: the mapping keeps the old one. An empty file is a blob of size 0. Throws Error(not_found | io), naming the
/// path; io for what is no regular file.
std::shared_ptr<Blob> map_file(const std::string& path);

/// The same as a copy in memory, which nothing changes. Error(io), too, when the file changes while it is read.
std::shared_ptr<Blob> read_file(const std::string& path);

/// Maps the file `location` that the model file `model_path` names. `location` must be a relative POSIX path
/// without "..": the resolved file has to lie under the model's directory, or under the directory of the
/// canonical model file (Hugging Face's cache links each revision's files into a common blobs/ directory).
/// Throws Error(bad_model) when it leaves both, Error(not_found) when it does not exist.
std::shared_ptr<Blob> map_beside(const std::string& model_path, const std::string& location);
/// The same file as a copy in memory.
std::shared_ptr<Blob> read_beside(const std::string& model_path, const std::string& location);

/// The whole file as text; throws like map_file, and Error(bad_model) above `limit` bytes.
std::string read_text_file(const std::string& path, int64_t limit = int64_t{1} << 30);

}  // namespace plait
