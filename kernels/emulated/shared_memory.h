#pragma once
// The shared memory of a block: full of NaNs, with a margin after each array.
#include <cstddef>
#include <map>
#include <string>

namespace plait::emulated {

class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// For the next block.
  void begin(size_t dynamic_bytes);
  /// The array of that tag; the first caller allocates it.
  void* array(const void* tag, size_t bytes);
  void* dynamic() const { return memory_ + dynamic_at_; }
  /// The margin that something has been written to; "" if there is none.
  std::string damage() const;

 private:
  size_t place(size_t bytes);

  struct Array {
    size_t at, bytes;
  };
  std::byte* memory_ = nullptr;
  std::map<const void*, Array> arrays_;
  size_t dynamic_at_ = 0, dynamic_bytes_ = 0, used_ = 0, asked_ = 0;
};

}  // namespace plait::emulated
