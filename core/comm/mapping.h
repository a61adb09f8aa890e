#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace plait {

/// Shared memory of several ranks: of one process, or an anonymous file (memfd) mapped by processes of one machine.
/// Initially zero, committed when touched, freed with the last process that maps it, even after a crash.
class Mapping : public std::enable_shared_from_this<Mapping> {
 public:
  /// Identifies a mapping to another rank; can be sent as bytes. Valid while its creator keeps the mapping.
  struct Handle {
    uint64_t object = 0;  ///< address, within one process
    int64_t process = 0;  ///< process that owns the file, and its descriptor there
    int64_t descriptor = 0;
    int64_t bytes = 0;
    uint64_t mark[2] = {};  ///< random, at the end of the memory: proves that the right file was opened
  };

  /// Throws Error(out_of_memory).
  static std::shared_ptr<Mapping> within_process(int64_t bytes);
  /// Throws Error(io) where the system has no memfd, out_of_memory where address space is short.
  static std::shared_ptr<Mapping> between_processes(int64_t bytes);
  /// Attaches another rank's mapping. Throws Error(io) if this process may not open it or is in another PID
  /// namespace.
  static std::shared_ptr<Mapping> attach(const Handle& handle);

  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  bool is_within_process() const { return file_ < 0; }
  Handle handle() const;

  /// Marks rank `rank` as alive until this process ends: a record lock, which the kernel releases, so no heartbeat is
  /// needed.
  void hold(int rank) const;
  /// Whether another process holds the rank. Only for mappings between processes.
  bool is_held(int rank) const;

 private:
  Mapping(int file, int64_t bytes);

  int file_ = -1;
  int64_t bytes_ = 0;  ///< without the mark
  std::byte* data_ = nullptr;
};

}  // namespace plait
