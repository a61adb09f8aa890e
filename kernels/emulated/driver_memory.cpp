#include "kernels/emulated/driver_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace plait::emulated {
namespace {

constexpr size_t page = 4096, alignment = 256;

size_t up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// From now on nothing accesses these addresses, which stay reserved. Next to memory they are a mapping of their own, so that opening and
/// closing it splits none.
bool reserve(std::byte* at, size_t bytes) {
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(at, bytes, PROT_NONE, kind, -1, 0) != MAP_FAILED;
}

}  // namespace

DeviceMemory::DeviceMemory() : file_(memfd_create("emulated device", MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, space_bytes) != 0)
    throw std::runtime_error("no file in memory for emulated devices");
  space_ = map_space(PROT_NONE);
  alias_ = map_space(PROT_READ | PROT_WRITE);
}

std::byte* DeviceMemory::map_space(int access) const {
  void* out = mmap(nullptr, space_bytes, access, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (out == MAP_FAILED) throw std::runtime_error("no addresses for emulated devices");
  return static_cast<std::byte*>(out);
}

std::byte* DeviceMemory::next(size_t mapped) {
  if (used_ + static_cast<int64_t>(mapped + page) > space_bytes) return nullptr;
  std::byte* out = space_ + used_;
  used_ += static_cast<int64_t>(mapped + page);
  return reserve(out + mapped, page) ? out : nullptr;
}

cuda::DevicePtr DeviceMemory::add(const Allocation& one) {
  const auto data = reinterpret_cast<cuda::DevicePtr>(one.base + one.mapped - up(one.bytes, alignment));
  allocations_[data] = one;
  return data;
}

void DeviceMemory::protect(const Allocation& one, bool accessible) const {
  mprotect(one.base, one.mapped, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

cuda::DevicePtr DeviceMemory::take(int device, size_t bytes) {
  std::lock_guard lock(mutex_);
  const size_t mapped = up(up(bytes, alignment), page);
  Allocation one{next(mapped), mapped, bytes, device, 0, {}};
  if (!one.base) return 0;
  std::memset(alias_ + (one.base - space_), 0xFF, mapped);
  if (open_[device]) protect(one, true);
  return add(one);
}

bool DeviceMemory::free(cuda::DevicePtr memory) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end() || found->second.foreign() || is_open_elsewhere(found->second)) return false;
  const Allocation& one = found->second;
  // The pages stay reserved, so that later accesses are found.
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, one.base - space_,
            static_cast<off_t>(one.mapped + page));
  reserve(one.base, one.mapped);
  allocations_.erase(found);
  return true;
}

std::atomic<int32_t>* DeviceMemory::openers(const Allocation& one) const {
  return reinterpret_cast<std::atomic<int32_t>*>(alias_ + (one.base - space_) + one.mapped);
}

/// A process that has ended has closed what it had open.
bool DeviceMemory::is_open_elsewhere(const Allocation& one) const {
  for (int i = 0; i < most_openers; ++i)
    if (const int32_t process = openers(one)[i]; process && (!kill(process, 0) || errno != ESRCH)) return true;
  return false;
}

int DeviceMemory::owner(cuda::DevicePtr at, size_t bytes) const {
  std::lock_guard lock(mutex_);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin()) return -1;
  --found;
  return at + bytes <= found->first + found->second.bytes ? found->second.device : -1;
}

void DeviceMemory::open(int device) {
  std::lock_guard lock(mutex_);
  if (open_[device]++) return;
  for (const auto& [at, one] : allocations_)
    if (one.device == device) protect(one, true);
}

void DeviceMemory::close(int device) {
  std::lock_guard lock(mutex_);
  if (--open_[device]) return;
  for (const auto& [at, one] : allocations_)
    if (one.device == device) protect(one, false);
}

bool DeviceMemory::share(cuda::DevicePtr memory, cuda::IpcHandle& handle) const {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end() || found->second.foreign()) return false;
  const Allocation& one = found->second;
  const Shared shared{getpid(), file_, one.base - space_, one.mapped, one.bytes};
  static_assert(sizeof shared <= sizeof handle.bytes);
  std::memset(&handle, 0, sizeof handle);
  std::memcpy(handle.bytes, &shared, sizeof shared);
  return true;
}

bool DeviceMemory::is_own(const cuda::IpcHandle& handle) {
  Shared shared;
  std::memcpy(&shared, handle.bytes, sizeof shared);
  return shared.process == getpid();
}

cuda::DevicePtr DeviceMemory::map(int device, const cuda::IpcHandle& handle) {
  Shared shared;
  std::memcpy(&shared, handle.bytes, sizeof shared);
  std::lock_guard lock(mutex_);
  for (auto& [at, one] : allocations_)
    if (one.foreign() && one.device == device && !std::memcmp(&one.handle, &handle, sizeof handle))
      return ++one.opened, at;
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open64(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  Allocation one{next(shared.mapped), shared.mapped, shared.bytes, device, 1, handle};
  bool mapped = one.base != nullptr;
  for (const int access : {PROT_NONE, PROT_READ | PROT_WRITE}) {
    std::byte* const at = access == PROT_NONE ? one.base : alias_ + (one.base - space_);
    const size_t bytes = access == PROT_NONE ? one.mapped : one.mapped + page;
    mapped = mapped && mmap(at, bytes, access, MAP_SHARED | MAP_FIXED, file, shared.offset) != MAP_FAILED;
  }
  ::close(file);
  bool entered = false;
  for (int i = 0; mapped && !entered && i < most_openers; ++i) {
    int32_t none = 0;
    entered = openers(one)[i].compare_exchange_strong(none, getpid());
  }
  if (!entered) return 0;
  if (open_[device]) protect(one, true);
  return add(one);
}

bool DeviceMemory::unmap(cuda::DevicePtr memory) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end() || !found->second.foreign()) return false;
  Allocation& one = found->second;
  if (one.opened > 1) return --one.opened, true;
  for (int i = 0; i < most_openers; ++i) {
    int32_t own = getpid();
    if (openers(one)[i].compare_exchange_strong(own, 0)) break;
  }
  for (std::byte* at : {one.base, alias_ + (one.base - space_)}) reserve(at, one.mapped + page);
  allocations_.erase(found);
  return true;
}

int64_t DeviceMemory::bytes(int device) const {
  std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& [at, one] : allocations_)
    if (!one.foreign() && (device < 0 || one.device == device)) sum += static_cast<int64_t>(one.bytes);
  return sum;
}

int64_t DeviceMemory::allocations() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(allocations_.size());
}

int64_t DeviceMemory::allocations(int device) const {
  std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (const auto& [at, one] : allocations_) count += one.device == device;
  return count;
}

}  // namespace plait::emulated
