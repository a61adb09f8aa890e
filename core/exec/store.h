#pragma once
// The Store: a rank's persistent arrays (weights, KV cache pages, optimizer moments), by key.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/base/load_progress.h"
#include "core/exec/program.h"

namespace plait {

/// Thread-safe. Arrays are shared: a program that names a key which is there already uses the array that is there.
class Store {
 public:
  /// `weights`, if there is one, has the arrays that are made from a source: ranks of one process share it, so that what
  /// several of them hold is there once.
  explicit Store(std::shared_ptr<Store> weights = nullptr) : weights_(std::move(weights)) {}

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
  /// Bytes of all arrays, without those of `weights`; those that only view a mapped file count too.
  int64_t bytes() const;

 private:
  Tensor find(const std::string& key) const;
  bool begin_making(const std::string& key);
  void end_making(const std::string& key);
  void make(const StoreEntry& entry, std::span<const int64_t> symbols, ThreadPool* pool);

  const std::shared_ptr<Store> weights_;
  mutable std::mutex mutex_;
  std::map<std::string, Tensor> arrays_;
  std::set<std::string> making_;  ///< what some thread is making; others wait for it
  std::condition_variable made_;
};

}  // namespace plait
