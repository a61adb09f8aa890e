#include "kernels/emulated/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "kernels/emulated/sanitizers.h"

namespace plait::emulated {
namespace {

constexpr size_t most_bytes = 227 << 10;                 // of a block of sm_90
constexpr size_t most_static_bytes = 48 << 10;           // what the compiler allows
constexpr size_t memory_bytes = 512 << 10, margin = 64;  // margins come on top
constexpr std::byte poison_byte{0xFF};                   // NaN in every type

void* map(void* at) {
  const int fixed = at ? MAP_FIXED : 0;
  void* out = mmap(at, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  if (out == MAP_FAILED) throw std::bad_alloc();
  return out;
}

}  // namespace

SharedMemory::SharedMemory() : memory_(static_cast<std::byte*>(map(nullptr))) {}
SharedMemory::~SharedMemory() {
  unpoison(memory_, memory_bytes);
  munmap(memory_, memory_bytes);
}

void SharedMemory::begin(size_t dynamic_bytes) {
  arrays_.clear();
  used_ = asked_ = 0;
  if (thread_sanitized) map(memory_);  // it is another block's memory: accesses so far are forgotten
  poison(memory_, memory_bytes);
  dynamic_bytes_ = dynamic_bytes;
  dynamic_at_ = place(dynamic_bytes);
}

size_t SharedMemory::place(size_t bytes) {
  const size_t at = used_, taken = (bytes + margin - 1) / margin * margin + margin;
  asked_ += bytes;
  if (asked_ > most_bytes || used_ + taken > memory_bytes)
    throw std::runtime_error(std::to_string(asked_) + " bytes of shared memory, a block has " +
                             std::to_string(most_bytes));
  used_ += taken;
  unpoison(memory_ + at, taken);
  std::memset(memory_ + at, static_cast<int>(poison_byte), taken);
  poison(memory_ + at + bytes, taken - bytes);
  return at;
}

void* SharedMemory::array(const void* tag, size_t bytes) {
  const auto [found, is_new] = arrays_.try_emplace(tag, Array{0, bytes});
  if (is_new) {
    found->second.at = place(bytes);
    if (asked_ - dynamic_bytes_ > most_static_bytes)
      throw std::runtime_error(std::to_string(asked_ - dynamic_bytes_) + " bytes of static shared memory, at most " +
                               std::to_string(most_static_bytes) + " can be");
  }
  return memory_ + found->second.at;
}

std::string SharedMemory::damage() const {
  if (address_sanitized) return "";  // has ended the program
  const auto whole = [&](size_t at, size_t bytes) {
    const size_t end = at + (bytes + margin - 1) / margin * margin + margin;
    return std::all_of(memory_ + at + bytes, memory_ + end, [](std::byte byte) { return byte == poison_byte; });
  };
  if (!whole(dynamic_at_, dynamic_bytes_)) return "a write after the end of dynamic shared memory";
  for (const auto& [tag, array] : arrays_)
    if (!whole(array.at, array.bytes))
      return "a write after the end of a shared array of " + std::to_string(array.bytes) + " bytes";
  return "";
}

}  // namespace plait::emulated
