#pragma once
// GGUF files: metadata, and tensors in ggml's types. Format: docs/gguf.md of github.com/ggml-org/ggml (versions 2 and 3).
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "importers/gguf/types.h"

namespace plait::gguf {

/// A value of the metadata: integers and booleans as int64_t, and arrays of each.
using Value =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

/// The bytes of a file, or of all parts of one that was split, in order.
using Parts = std::vector<std::shared_ptr<const Blob>>;

/// Immutable but for the record of what was read; shares the mapping. For one thread.
class File {
 public:
  /// Checks all of the header: counts, lengths, and that each tensor lies in the file. Time and memory are linear in the header's
  /// bytes. Throws Error(bad_model) naming what is damaged and where, Error(unsupported) for another version or type of elements.
  explicit File(std::shared_ptr<const Blob> blob);
  /// All parts; also throws Error(not_found) if there are more, Error(bad_model) for those that do not belong together.
  explicit File(const Parts& parts);

  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const std::map<std::string, Value>& metadata() const { return metadata_; }

  /// The values of the metadata. Throw Error(bad_model) naming the key if it is missing, or of another kind.
  int64_t integer(const std::string& key) const;
  double real(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  bool has(const std::string& key) const;
  /// Keys with this beginning that nothing above asked for.
  std::vector<std::string> unread(const std::string& prefix) const;
  int64_t integer_or(const std::string& key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  double real_or(const std::string& key, double otherwise) const { return has(key) ? real(key) : otherwise; }

 private:
  template <class T>
  const T& value(const std::string& key, std::string_view kind) const;

  std::map<std::string, Value> metadata_;
  std::map<std::string, Entry> tensors_;
  mutable std::set<std::string> read_;
};

/// Whether the bytes begin as such a file does.
bool is_gguf(const Blob& blob);

}  // namespace plait::gguf
