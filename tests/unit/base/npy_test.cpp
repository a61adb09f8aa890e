// Arrays of .npy files: what is written is read back; other orders and alignments; damage. NumPy itself is in bindings.cli_test's files.
#include "core/base/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/error.h"

namespace plait::test {
namespace {

std::shared_ptr<Blob> blob_of(const std::string& bytes) {
  auto out = make_blob(static_cast<int64_t>(bytes.size()));
  std::memcpy(out->mutable_data(), bytes.data(), bytes.size());
  return out;
}

std::string file_of(DType dtype, const Shape& shape, const std::string& elements) {
  return npy_header(dtype, shape) + elements;
}

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())};
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  const std::string elements =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!?[]=*+-0123456789abcdefghijklmnop";
  for (const DType dtype :
       {DType::f32,  DType::f64,      DType::f16,    DType::i64,        DType::i32,        DType::i16,   DType::i8,
        DType::u64,  DType::u32,      DType::u16,    DType::u8,         DType::boolean,    DType::c64,   DType::c128,
        DType::bf16, DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f8e8m0}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 4}}) {
      const std::string data = elements.substr(0, static_cast<size_t>(shape.elements() * dtype_bits(dtype) / 8));
      const Tensor read = read_npy(blob_of(file_of(dtype, shape, data)), dtype);
      EXPECT_EQ(read.dtype(), dtype);
      EXPECT_EQ(read.shape(), shape);
      EXPECT_EQ(bytes_of(read), data);
    }
  }
  EXPECT_EQ(npy_header(DType::f32, Shape{2, 3}).size() % 64, 0u);
  EXPECT_THROW(npy_header(DType::i4, Shape{2}), Error);
}

TEST(Npy, ElementsThatNumPyHasNoNameForAreThoseExpected) {
  const std::string void_file = file_of(DType::bf16, Shape{2}, "abcd"),
                    unsigned_file = file_of(DType::u16, Shape{2}, "abcd");
  for (const std::string& file : {void_file, unsigned_file})
    EXPECT_EQ(read_npy(blob_of(file), DType::bf16).dtype(), DType::bf16);
  EXPECT_EQ(read_npy(blob_of(unsigned_file)).dtype(), DType::u16);
  EXPECT_EQ(read_npy(blob_of(unsigned_file), DType::f16).dtype(), DType::u16) << "f16 has a name";
  EXPECT_EQ(read_npy(blob_of(file_of(DType::u8, Shape{4}, "abcd")), DType::bf16).dtype(), DType::u8)
      << "of another size";
}

TEST(Npy, FortransOrderBecomesCOrder) {
  std::string file = file_of(DType::u8, Shape{2, 3}, "adbecf");
  file.replace(file.find("False"), 5, "True ");
  EXPECT_EQ(bytes_of(read_npy(blob_of(file))), "abcdef");
}

TEST(Npy, ElementsThatAreNotAlignedAreCopied) {
  std::string file = file_of(DType::i32, Shape{1}, "abcd");
  const size_t header = file.find('{');
  file.erase(file.size() - 5, 1);  // the header's newline: a header of an odd length
  file[8] = static_cast<char>(file.size() - 4 - header);
  const auto blob = blob_of(file);
  const Tensor read = read_npy(blob);
  EXPECT_EQ(bytes_of(read), "abcd");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data()) % 4, 0u);
}

TEST(Npy, DamageIsRefused) {
  const std::string good = file_of(DType::i32, Shape{2}, "abcdefgh");
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(read_npy(blob_of(good.substr(0, length))), Error) << length;
  EXPECT_THROW(read_npy(blob_of(good + "x")), Error);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"<i4", ">i4"},
                                 {"<i4", "<U4"},
                                 {"'<i4'", "[('a"},
                                 {"(2,)", "(3,)"},
                                 {"(2,)", "2   "},
                                 {"shape", "shade"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_THROW(read_npy(blob_of(bad)), Error) << to;
  }
}

}  // namespace
}  // namespace plait::test
