#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace plait {

/// Memory that several ranks see: of one process, or a file without a name (memfd) that processes of one machine map. It
/// begins as zeros, takes memory only where it is touched, and is gone with the last process that has it, however that
/// ended.
class Mapping : public std::enable_shared_from_this<Mapping> {
 public:
  /// What another rank needs to find it, as bytes that can be sent; valid while the one who made it keeps it.
  struct Handle {
    uint64_t object = 0;  ///< address, of a mapping of one process
    int64_t process = 0;  ///< whose file it is, and the descriptor there
    int64_t descriptor = 0;
    int64_t bytes = 0;
    uint64_t mark[2] = {};  ///< random, at the end of the memory: what was opened is what was meant
  };

  /// Throws Error(out_of_memory).
  static std::shared_ptr<Mapping> within_process(int64_t bytes);
  /// Throws Error(io) where the system has no memfd, out_of_memory where address space is short.
  static std::shared_ptr<Mapping> between_processes(int64_t bytes);
  /// The mapping of another rank. Throws Error(io) if this process may not open it, or sees other processes' numbers.
  static std::shared_ptr<Mapping> attach(const Handle& handle);

  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  bool is_within_process() const { return file_ < 0; }
  Handle handle() const;

  /// Says that this process is there as rank `rank`, until it ends: the kernel sees to that (a record lock), so that
  /// nobody has to beat a heart.
  void hold(int rank) const;
  /// Whether a process, not this one, holds the rank. Only for mappings between processes.
  bool is_held(int rank) const;

 private:
  Mapping(int file, int64_t bytes);

  int file_ = -1;
  int64_t bytes_ = 0;  ///< without the mark
  std::byte* data_ = nullptr;
};

}  // namespace plait
