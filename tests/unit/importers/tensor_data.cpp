// Elements of tensors: raw, typed, external in memory; every rule about sizes.
#include <cstring>

#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

struct TensorCase {
  ModelBuilder b;
  onnx::TensorProto& tensor;

  TensorCase(int dtype, const std::vector<int64_t>& dims) : tensor(b.initializer("w", dtype, dims)) { b.output("w"); }
  Tensor import(const ExternalResolver& resolver = {}) {
    Graph g = b.import(resolver).graph;
    return *g.constant(g.outputs[0]);
  }
};

template <class T>
std::vector<T> elements(const Tensor& tensor) {
  std::vector<T> out(static_cast<size_t>(tensor.bytes()) / sizeof(T));
  std::memcpy(out.data(), tensor.data(), static_cast<size_t>(tensor.bytes()));
  return out;
}

TEST(TensorData, RawIsSharedWithTheFile) {
  TensorCase c(1, {2});
  float numbers[] = {1.5f, -2};
  c.tensor.set_raw_data(numbers, sizeof numbers);
  auto file = blob_of(c.b.bytes());
  ImportedModel out = import_bytes(file, {}, test_ops());
  const Tensor& tensor = *out.graph.constant(out.graph.outputs[0]);
  EXPECT_EQ(tensor.blob(), file);
  EXPECT_EQ(elements<float>(tensor), (std::vector<float>{1.5f, -2}));
}

TEST(TensorData, RawOfEveryWidth) {
  struct Row {
    int dtype;
    size_t bytes;
  };
  // Three elements each.
  for (Row row : {Row{1, 12}, {2, 3}, {3, 3}, {4, 6}, {5, 6}, {6, 12}, {7, 24}, {9, 3}, {10, 6}, {11, 24}, {12, 12},
                  {13, 24}, {14, 24}, {15, 48}, {16, 6}, {17, 3}, {18, 3}, {19, 3}, {20, 3}, {21, 2}, {22, 2},
                  {23, 2}, {24, 3}, {25, 1}, {26, 1}}) {
    for (int extra : {-1, 0, 1}) {
      TensorCase c(row.dtype, {3});
      c.tensor.set_raw_data(std::string(row.bytes + static_cast<size_t>(extra), '\0'));
      if (extra) expect_bad(c.b, {"initializer \"w\"", "raw_data"});
      else EXPECT_EQ(c.import().bytes(), static_cast<int64_t>(row.bytes)) << row.dtype;
    }
  }
}

TEST(TensorData, TypedFields) {
  TensorCase f32(1, {2});
  f32.tensor.add_float_data(1);
  f32.tensor.add_float_data(2);
  EXPECT_EQ(elements<float>(f32.import()), (std::vector<float>{1, 2}));
  TensorCase f64(11, {});
  f64.tensor.add_double_data(0.1);
  EXPECT_EQ(elements<double>(f64.import()), std::vector<double>{0.1});
  TensorCase i64(7, {1});
  i64.tensor.add_int64_data(-7);
  EXPECT_EQ(elements<int64_t>(i64.import()), std::vector<int64_t>{-7});
  TensorCase u32(12, {1});
  u32.tensor.add_uint64_data(4000000000u);
  EXPECT_EQ(elements<uint32_t>(u32.import()), std::vector<uint32_t>{4000000000u});
  TensorCase c64(14, {1});
  c64.tensor.add_float_data(1);
  c64.tensor.add_float_data(2);
  EXPECT_EQ(elements<float>(c64.import()), (std::vector<float>{1, 2}));
}

TEST(TensorData, NarrowTypesLiveBitWiseInInt32) {
  auto one = [](int dtype, int32_t number) {
    TensorCase c(dtype, {1});
    c.tensor.add_int32_data(number);
    return elements<uint8_t>(c.import());
  };
  EXPECT_EQ(one(10, 0x3C00), (std::vector<uint8_t>{0x00, 0x3C}));  // f16 1.0
  EXPECT_EQ(one(16, 0x3F80), (std::vector<uint8_t>{0x80, 0x3F}));  // bf16 1.0
  EXPECT_EQ(one(3, -2), std::vector<uint8_t>{0xFE});
  EXPECT_EQ(one(2, 200), std::vector<uint8_t>{200});
  EXPECT_EQ(one(9, 1), std::vector<uint8_t>{1});
  EXPECT_EQ(one(17, 0x7E), std::vector<uint8_t>{0x7E});
  TensorCase wide(2, {1});
  wide.tensor.add_int32_data(256);
  expect_bad(wide.b, {"256", "u8"});
}

TEST(TensorData, PackedTypesTakeOneNumberAByte) {
  TensorCase i4(22, {3});
  i4.tensor.add_int32_data(0x21);
  i4.tensor.add_int32_data(0x03);
  EXPECT_EQ(elements<uint8_t>(i4.import()), (std::vector<uint8_t>{0x21, 0x03}));
  TensorCase u2(25, {5});
  u2.tensor.add_int32_data(0xE4);
  u2.tensor.add_int32_data(0x01);
  EXPECT_EQ(elements<uint8_t>(u2.import()), (std::vector<uint8_t>{0xE4, 0x01}));
  u2.tensor.add_int32_data(0);
  expect_bad(u2.b, {"needs 2 numbers", "there are 3"});
}

TEST(TensorData, TooFewTypedNumbersAreNoReasonToAllocate) {
  TensorCase c(1, {int64_t{1} << 50});
  c.tensor.add_float_data(1);
  expect_bad(c.b, {"initializer \"w\"", "there are 1"});
}

TEST(TensorData, TheFieldMustServeTheDtype) {
  TensorCase c(1, {1});
  c.tensor.add_int64_data(1);
  expect_bad(c.b, {"int64_data", "float_data"});
}

TEST(TensorData, OneFieldOnly) {
  TensorCase c(1, {1});
  c.tensor.add_float_data(1);
  c.tensor.set_raw_data(std::string(4, '\0'));
  expect_bad(c.b, {"more than one", "float_data", "raw_data"});
}

TEST(TensorData, ZeroElements) {
  TensorCase c(1, {0, 3});
  EXPECT_EQ(c.import().elements(), 0);
  c.tensor.set_raw_data("");
  EXPECT_EQ(c.import().shape(), (Shape{0, 3}));
}

TEST(TensorData, Sizes) {
  TensorCase negative(1, {-1});
  expect_bad(negative.b, {"negative"});
  TensorCase huge(1, {int64_t{1} << 40, int64_t{1} << 40});
  expect_bad(huge.b, {"overflow"});
  TensorCase hidden(1, {int64_t{1} << 62, int64_t{1} << 62, 0});
  expect_bad(hidden.b, {"overflow"});
  TensorCase ranks(1, std::vector<int64_t>(9, 1));
  expect_unsupported(ranks.b, {"rank 9"});
}

TEST(TensorData, Dtypes) {
  for (int dtype : {0, -1, 27, 1000}) {
    TensorCase c(dtype, {1});
    expect_bad(c.b, {"initializer \"w\"", "element type"});
  }
  TensorCase text(8, {1});
  text.tensor.add_string_data("x");
  text.tensor.add_string_data("y");
  expect_bad(text.b, {"string[1] needs 1 strings", "there are 2"});
  TensorCase raw(8, {1});
  raw.tensor.set_raw_data("x");
  expect_bad(raw.b, {"raw_data is set", "string_data"});
  TensorCase segment(1, {1});
  segment.tensor.mutable_segment()->set_begin(0);
  expect_unsupported(segment.b, {"segment"});
}

TEST(TensorData, ABoolIsZeroOrOne) {
  TensorCase c(9, {2});
  c.tensor.set_raw_data(std::string("\1\2", 2));
  expect_bad(c.b, {"bool"});
}

TEST(TensorData, SparseInitializersAreRefused) {
  ModelBuilder b;
  b.graph().add_sparse_initializer()->mutable_values()->set_name("s");
  expect_unsupported(b, {"sparse", "\"s\""});
}

}  // namespace
}  // namespace plait
