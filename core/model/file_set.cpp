#include "core/model/file_set.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class Directory final : public FileSet {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (std::string& name : names_in(path_))
      if (is_file(path_of(name))) out.push_back(std::move(name));
    return out;
  }
  bool has(const std::string& name) const override { return is_file((fs::path(path_) / name).string()); }
  std::shared_ptr<const Blob> read(const std::string& name) const override { return read_file(path_of(name)); }
  std::string place() const override { return path_; }

 private:
  std::string path_;
};

class Memory final : public FileSet {
 public:
  explicit Memory(std::map<std::string, std::shared_ptr<const Blob>> blobs) : blobs_(std::move(blobs)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, blob] : blobs_) {
      if (name.find('/') == std::string::npos) out.push_back(name);
    }
    return out;
  }
  bool has(const std::string& name) const override { return blobs_.count(name) > 0; }
  std::shared_ptr<const Blob> read(const std::string& name) const override {
    auto found = blobs_.find(name);
    if (found != blobs_.end()) return found->second;
    throw Error(Code::not_found, cat("no file ", quote(name), " among the ", blobs_.size(), " in memory"),
                "give every file that the model refers to, under the name that it uses");
  }
  std::string place() const override { return "memory"; }

 private:
  std::map<std::string, std::shared_ptr<const Blob>> blobs_;
};

}  // namespace

std::unique_ptr<FileSet> directory_files(const std::string& directory) {
  if (!is_directory(directory)) {
    throw Error(Code::not_found, cat("there is no directory ", quote(directory)));
  }
  return std::make_unique<Directory>(directory);
}

std::unique_ptr<FileSet> memory_files(std::vector<NamedBlob> blobs) {
  std::map<std::string, std::shared_ptr<const Blob>> by_name;
  for (NamedBlob& blob : blobs) {
    fs::path path(blob.name);
    bool leaves = path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
    if (blob.name.empty() || leaves) {
      throw Error(Code::invalid_argument, cat("the file name ", quote(blob.name), " is not relative to the model"));
    }
    if (!by_name.emplace(path.lexically_normal().generic_string(), std::move(blob.blob)).second) {
      throw Error(Code::invalid_argument, cat("the file ", quote(blob.name), " is passed twice"));
    }
  }
  return std::make_unique<Memory>(std::move(by_name));
}

}  // namespace plait
