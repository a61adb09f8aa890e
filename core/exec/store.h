#pragma once
// The Store: a rank's persistent arrays (weights, KV cache pages, optimizer moments) on its device, by key.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/base/load_progress.h"
#include "core/exec/device.h"
#include "core/exec/program.h"

namespace plait {

/// Thread-safe. Programs that name one key share its array.
class Store {
 public:
  /// `weights`, if there is one, holds the arrays that are made from a source: ranks of one process whose memory is the
  /// host's share it, so that what several of them hold is there once. Null `device`: `default_device()`.
  explicit Store(std::shared_ptr<Store> weights = nullptr, std::shared_ptr<Device> device = nullptr);

  /// Where its arrays are, and where programs that use them run.
  Device& device() const { return *device_; }

  /// Makes every entry of `program` that is missing. Sizes of state are evaluated with `symbols` (by the program's symbol
  /// numbers). A weight that needs no step stays where the file is mapped if the device shares the host's memory; any
  /// other is made in fresh memory, and the file's pages leave memory. `progress` counts bytes to its end. Throws
  /// Error(cancelled) when it was cancelled.
  void load(const Program& program, std::span<const int64_t> symbols, ThreadPool* pool,
            LoadProgress* progress = nullptr);

  /// Throws Error(internal) when the key is not there.
  Tensor get(const std::string& key) const;
  bool has(const std::string& key) const;
  /// Replaces the array of that key by one of the host's, uploaded where memory is not shared.
  void put(const std::string& key, Tensor tensor);
  void erase(const std::string& key);
  /// Bytes of all arrays, without those of `weights`; those that only view a mapped file count too.
  int64_t bytes() const;

 private:
  Tensor find(const std::string& key) const;
  void insert(const std::string& key, Tensor tensor);
  bool begin_making(const std::string& key);
  void end_making(const std::string& key);
  void make(const StoreEntry& entry, std::span<const int64_t> symbols, ThreadPool* pool);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Store> weights_;  ///< null, too, where the device's memory is its own
  mutable std::mutex mutex_;
  std::map<std::string, Tensor> arrays_;
  std::set<std::string> making_;  ///< keys that some thread is making; others wait for it
  std::condition_variable made_;
};

}  // namespace plait
