#pragma once
// The Store: a rank's persistent arrays (weights, KV cache pages, optimizer moments) on its device, by key.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/base/load_progress.h"
#include "core/base/strings.h"
#include "core/exec/device.h"
#include "core/exec/program.h"

namespace plait {

/// Thread-safe. Programs that name one key share its array.
class Store {
 public:
  /// `weights` (may be null) holds the arrays made from a source: ranks of one process that use host memory share it,
  /// so common weights are stored once. Null `device`: `default_device()`.
  explicit Store(std::shared_ptr<Store> weights = nullptr, std::shared_ptr<Device> device = nullptr);

  /// The device of its arrays and of programs that use them.
  Device& device() const { return *device_; }

  /// The texts of the constants of strings that `load` has made: these are numbered, in this table.
  const std::shared_ptr<StringTable>& strings() const { return strings_; }

  /// Makes missing entries of `program`. `symbols`: values by the program's symbol numbers, for sizes of state. A
  /// weight without steps stays in the mapped file if the device shares host memory; any other is made in new memory,
  /// and the file's pages are released. `progress` counts bytes to its end. Throws Error(cancelled).
  void load(const Program& program, std::span<const int64_t> symbols, ThreadPool* pool,
            LoadProgress* progress = nullptr);

  /// Throws Error(internal) if the key is missing.
  Tensor get(const std::string& key) const;
  bool has(const std::string& key) const;
  /// Replaces the array of that key by a host array, uploaded where memory is not shared.
  void put(const std::string& key, Tensor tensor);
  void erase(const std::string& key);
  /// Bytes of all arrays except those of `weights`; views of a mapped file count too.
  int64_t bytes() const;

 private:
  Tensor find(const std::string& key) const;
  void insert(const std::string& key, Tensor tensor);
  bool begin_making(const std::string& key);
  void end_making(const std::string& key);
  void make(const StoreEntry& entry, std::span<const int64_t> symbols, ThreadPool* pool);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<StringTable> strings_ = std::make_shared<StringTable>();
  const std::shared_ptr<Store> weights_;  ///< also null if the device has its own memory
  mutable std::mutex mutex_;
  std::map<std::string, Tensor> arrays_;
  std::set<std::string> making_;  ///< keys being made by some thread; others wait
  std::condition_variable made_;
};

}  // namespace plait
