#pragma once
// A run's arrays, made up: every element tells its array, place and step.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/block.h"
#include "core/base/crc32c.h"
#include "core/train/checkpoint/checkpoint.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {

struct SavedArray {
  std::string name;
  DType dtype;
  Shape shape;
};

inline const std::vector<SavedArray>& arrays() {
  static const std::vector<SavedArray> out{{"model.weight", DType::f32, Shape{6, 8}},
                                           {"moment \"1\"", DType::f64, Shape{4, 2}},
                                           {"codes", DType::u8, Shape{3, 4, 6}}};
  return out;
}

inline Tensor whole_of(const SavedArray& array, int64_t step) {
  Tensor out(array.dtype, array.shape);
  for (int64_t i = 0; i < out.bytes(); ++i)
    out.data()[i] = static_cast<std::byte>(i * 31 + step * 7 + static_cast<int64_t>(array.name.size()));
  return out;
}

inline CheckpointInfo info_of(int64_t step) {
  return {step, "model 1", {{"data", cat("epoch=0 position=", step)}, {"seed", "17"}}};
}

struct OwnedBlocks {
  std::vector<Tensor> tensors;
  std::vector<ArrayBlock> blocks;
};

/// The part of writer `writer` of `writers`, array k being cut along dim dims[k] into parts as even as they can be.
inline OwnedBlocks blocks_of(int64_t step, int64_t writer, int64_t writers, const std::vector<int>& dims) {
  OwnedBlocks out;
  for (size_t k = 0; k < arrays().size(); ++k) {
    const SavedArray& array = arrays()[k];
    const int64_t length = array.shape[dims[k]], from = writer * length / writers,
                  to = (writer + 1) * length / writers;
    Shape begin = array.shape, size = array.shape;
    std::fill_n(&begin[0], begin.rank(), 0);
    begin[dims[k]] = from;
    size[dims[k]] = to - from;
    out.tensors.emplace_back(array.dtype, size);
    take_block(whole_of(array, step).view(), begin, out.tensors.back().view());
    out.blocks.push_back({array.name, array.shape, begin, out.tensors.back().view()});
  }
  return out;
}

/// The checkpoint is whole, and all of it is of its step.
inline void check_checkpoint(const std::string& path) {
  const Checkpoint read = Checkpoint::open(path, "model 1");
  EXPECT_EQ(read.info().state, info_of(read.info().step).state);
  ASSERT_EQ(read.arrays().size(), arrays().size());
  for (const SavedArray& array : arrays()) {
    const Tensor found = read.read(array.name), whole = whole_of(array, read.info().step);
    EXPECT_EQ(std::memcmp(found.data(), whole.data(), static_cast<size_t>(whole.bytes())), 0)
        << path << " " << array.name;
  }
}

inline uint32_t checksum_of_newer() { return crc32c(R"({"format":"plait checkpoint","version":2})"); }

}  // namespace plait::test
