#pragma once
// What ranks tell each other before they use their devices together.
#include <sys/random.h>
#include <unistd.h>

#include <vector>

#include "core/comm/communicator.h"

namespace plait::cuda {

/// Every rank's value, by rank. Collective over `host`. T: plain bytes.
template <class T>
std::vector<T> gathered(Communicator& host, const T& own) {
  std::vector<T> out(static_cast<size_t>(host.size()));
  const auto view = [](const T* values, size_t count) {
    return TensorView{
        reinterpret_cast<std::byte*>(const_cast<T*>(values)), DType::u8, {static_cast<int64_t>(count * sizeof(T))}};
  };
  host.all_gather(view(&own, 1), view(out.data(), out.size()));
  return out;
}

/// Differs between processes, also where their numbers do not.
inline uint64_t process_identity() {
  static const uint64_t identity = [] {
    uint64_t out = 0;
    if (getrandom(&out, sizeof out, 0) != sizeof out) out = static_cast<uint64_t>(getpid());
    return out;
  }();
  return identity;
}

}  // namespace plait::cuda
