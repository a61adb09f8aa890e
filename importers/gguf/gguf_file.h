#pragma once
// GGUF files: metadata, and tensors in ggml's types. Format: docs/gguf.md of github.com/ggml-org/ggml (versions 2 and 3).
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "importers/gguf/types.h"

namespace plait::gguf {

/// A value of the metadata: integers and booleans as int64_t, and arrays of each.
using Value =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

/// Immutable; shares the mapping.
class File {
 public:
  /// Checks all of the header: counts, lengths, and that each tensor lies in the file. Time and memory are linear in the header's
  /// bytes. Throws Error(bad_model) naming what is damaged and where, Error(unsupported) for another version or type of elements.
  explicit File(std::shared_ptr<const Blob> blob);

  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const std::map<std::string, Value>& metadata() const { return metadata_; }

  /// The values of the metadata. Throw Error(bad_model) naming the key if it is missing, or of another kind.
  int64_t integer(const std::string& key) const;
  double real(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  bool has(const std::string& key) const { return metadata_.contains(key); }
  int64_t integer_or(const std::string& key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  double real_or(const std::string& key, double otherwise) const { return has(key) ? real(key) : otherwise; }

 private:
  template <class T>
  const T& value(const std::string& key, std::string_view kind) const;

  std::map<std::string, Value> metadata_;
  std::map<std::string, Entry> tensors_;
};

/// Whether the bytes begin as such a file does.
bool is_gguf(const Blob& blob);

}  // namespace plait::gguf
