#pragma once
// The Store: a rank's persistent arrays (weights, KV cache pages, optimizer moments), by key.
#include <map>
#include <mutex>
#include <string>

#include "core/base/load_progress.h"
#include "core/exec/program.h"

namespace plait {

/// Thread-safe. Arrays are shared: a program that names a key which is there already uses the array that is there.
class Store {
 public:
  /// Makes every entry of `program` that is not there yet. Sizes of state are evaluated with `symbols` (by the
  /// program's symbol numbers). A weight that needs no step stays where the file is mapped; one that does is made in
  /// fresh memory, and the file's pages behind it leave memory. `progress` then goes
  /// to its end, by bytes. Throws Error(cancelled) when it was cancelled.
  void load(const Program& program, std::span<const int64_t> symbols, ThreadPool* pool,
            LoadProgress* progress = nullptr);

  /// Throws Error(internal) when the key is not there.
  Tensor get(const std::string& key) const;
  bool has(const std::string& key) const;
  /// Puts an array there, in place of one of the same key.
  void put(const std::string& key, Tensor tensor);
  void erase(const std::string& key);
  /// Bytes of all arrays; those that only view a mapped file count too.
  int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Tensor> arrays_;
};

}  // namespace plait
