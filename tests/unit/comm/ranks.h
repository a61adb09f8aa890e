#pragma once
// The ranks that the tests of core/comm run on: threads of this process, or, under mpirun, the processes that it
// started.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/world.h"
#include "tests/unit/support/machine_load.h"

namespace plait {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
/// A deadline that no fault has to wait for, and within how long a fault is heard of.
constexpr double never_s = test::hang_s, bound_s = 15;  ///< the latter times machine_load()

struct Transport {
  std::string name;
  int threads = 0;        ///< 0: the processes of mpirun
  bool delayed = false;   ///< random pauses where a race would need them
  bool messages = false;  ///< processes do without shared memory
};
inline std::ostream& operator<<(std::ostream& out, const Transport& transport) { return out << transport.name; }

bool under_mpirun();
/// The world of the processes of mpirun, through the plug-in that the environment names.
std::unique_ptr<World> open_test_world(const CommOptions& options);

/// Threads, or under mpirun processes.
std::vector<Transport> transports();

/// Pauses of 0 to 30 us at random, now and then one of 200 us.
void pause_at_random();

/// Calls `rank(world)` on every rank. A rank that throws fails the test and aborts the world. `name`: of the options,
/// if they are not the usual ones; processes keep a world for each name.
void on_ranks(const Transport& transport, const std::function<void(World&)>& rank, CommOptions options = {},
              const std::string& name = "");

/// The same in a fresh world of threads, for tests that end it: each rank owns its world.
void on_threads(int size, const CommOptions& options, const std::function<void(std::unique_ptr<World>)>& rank);

/// A tensor's bytes at an odd address if asked for, with bytes after it that must not change.
class Buffer {
 public:
  Buffer(DType dtype, int64_t elements, int offset = 0)
      : dtype_(dtype), elements_(elements), offset_(offset), bytes_(offset + view_bytes() + guard_bytes, guard) {}

  TensorView view() { return {bytes_.data() + offset_, dtype_, {elements_}}; }
  /// Elements [begin, begin + count).
  TensorView part(int64_t begin, int64_t count) {
    return {bytes_.data() + offset_ + begin * dtype_bits(dtype_) / 8, dtype_, {count}};
  }
  int64_t size() const { return elements_; }
  /// Numbers for dtypes that have them; other dtypes are bytes, elements as they come.
  void set(int64_t i, double value);
  double get(int64_t i) const;
  void fill(const std::function<double(int64_t)>& value) {
    for (int64_t i = 0; i < cells(); ++i) set(i, value(i));
  }
  /// The first element that is not `value(i)` (numbers are compared by ==), or that was written after the end; "" if
  /// all are.
  std::string difference(const std::function<double(int64_t)>& value) const;
  /// What get and set count: elements, or bytes where elements are no numbers.
  int64_t cells() const;

 private:
  static constexpr int guard_bytes = 16;
  static constexpr std::byte guard{0x5A};
  int64_t view_bytes() const { return packed_bytes(elements_, dtype_bits(dtype_)); }

  DType dtype_;
  int64_t elements_;
  int offset_;
  std::vector<std::byte> bytes_;
};

}  // namespace plait
