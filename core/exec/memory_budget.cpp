#include "core/exec/memory_budget.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

int64_t usable_memory() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE), limit = 0;
  // cgroup v2; "max" does not parse as a number.
  std::ifstream group("/sys/fs/cgroup/memory.max");
  return group >> limit && limit > 0 ? std::min(bytes, limit) : bytes;
}

MemoryBudget::MemoryBudget(int64_t bytes) : given_(bytes > 0), bytes_(given_ ? bytes : usable_memory() / 4 * 3) {}

void MemoryBudget::check_room(int64_t bytes, int64_t limit) const {
  if (bytes > limit - used_)
    throw Error(Code::out_of_memory,
                cat("the run needs ", human_bytes(bytes), " in addition to ", human_bytes(used_),
                    "; its limit is ", human_bytes(limit)),
                "shorter inputs need less; option memory_bytes raises the limit");
}

void MemoryBudget::need(int64_t bytes) const { check_room(bytes, bytes_); }

std::shared_ptr<Blob> MemoryBudget::take(int64_t bytes, Device& device) {
  const bool shared = device.kind() == DeviceKind::host;  // with the rest of the process
  check_room(bytes, given_ || shared ? bytes_ : std::numeric_limits<int64_t>::max());
  std::shared_ptr<Blob> blob = device.take(bytes);
  used_ += bytes;
  Blob* raw = blob.get();
  return {raw, [budget = shared_from_this(), blob = std::move(blob), bytes](Blob*) mutable {
            blob.reset();
            budget->used_ -= bytes;
          }};
}

void MemoryBudget::check() const {
  if (cancelled_) throw Error(Code::cancelled, "the run was cancelled");
}

}  // namespace plait
