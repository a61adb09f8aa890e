// Memory of blobs: where it comes from, and that it goes back.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "core/base/tensor.h"

namespace plait {
namespace {

constexpr int64_t mebibyte = 1 << 20;

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Blob, IsZeroWhateverItsSize) {
  for (int64_t bytes : {int64_t{1}, mebibyte, 2 * mebibyte, 2 * mebibyte + 1, 5 * mebibyte}) {
    for (int round = 0; round < 2; ++round) {
      auto blob = make_blob(bytes);
      ASSERT_EQ(blob->size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blob->data()) % 64, 0u);
      EXPECT_EQ(blob->data()[0], std::byte{0});
      EXPECT_EQ(0, std::memcmp(blob->data(), blob->data() + 1, static_cast<size_t>(bytes - 1))) << bytes;
      std::memset(blob->mutable_data(), 1, static_cast<size_t>(bytes));
    }
  }
}

// malloc would keep the second one for itself, for each thread again, and calloc clear all of the third.
TEST(Blob, OfManyPagesCostsWhatIsTouchedAndGoesBack) {
  const int64_t before = resident_bytes();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 4; ++round) {
        auto blob = make_blob(4 * mebibyte);
        std::memset(blob->mutable_data(), 1, static_cast<size_t>(blob->size()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto untouched = make_blob(64 * mebibyte);
  EXPECT_LT(resident_bytes() - before, 3 * mebibyte);
}

}  // namespace
}  // namespace plait
