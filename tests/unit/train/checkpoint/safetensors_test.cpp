// Safetensors files: what is written reads back, and no bytes of a file bring the reader down.
#include "core/base/safetensors.h"

#include <random>

#include "tests/unit/train/train_test.h"

namespace plait {
namespace {

using test::expect_error;
using test::Folder;

std::string file_of(const std::string& header, size_t data = 0) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, 'x');
}

TEST(SafeTensors, WhatIsWrittenReadsBack) {
  const Folder folder;
  const std::vector<float> floats{1, -2, 3.5f, 4, 5, 6};
  const Tensor a = Tensor::of<float>(DType::f32, Shape{2, 3}, floats);
  const Tensor bytes = Tensor::of<uint8_t>(DType::u8, Shape{3}, std::vector<uint8_t>{7, 8, 9});
  const Tensor scalar = Tensor::of<double>(DType::f64, Shape{}, std::vector<double>{0.25});
  const Tensor half = Tensor::of<uint16_t>(DType::bf16, Shape{1}, std::vector<uint16_t>{0x3F80}),
               none(DType::f16, Shape{0, 4});
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"note", "\"quoted\"\n"}};
  const std::string path = folder.path("a.safetensors");
  const std::string header = write_safetensors(path,
                                               {{"model.a", a.view()},
                                                {"bytes", bytes.view()},
                                                {"s", scalar.view()},
                                                {"half", half.view()},
                                                {"none", none.view()}},
                                               metadata);
  const SafeTensors read = SafeTensors::open(path);
  EXPECT_EQ(read.metadata(), metadata);
  EXPECT_EQ(read.entries().size(), 5u);
  for (const auto& [name, tensor] :
       {std::pair("model.a", a), {"bytes", bytes}, {"s", scalar}, {"half", half}, {"none", none}}) {
    const Tensor found = read.tensor(name);
    EXPECT_EQ(found.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(found.shape(), tensor.shape()) << name;
    EXPECT_EQ(std::memcmp(found.data(), tensor.data(), static_cast<size_t>(tensor.bytes())), 0) << name;
    EXPECT_EQ(read.entries().at(name).offset % (dtype_bits(tensor.dtype()) / 8), 0) << name;
  }
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.header().data()), read.header().size()), header);
  expect_error([&] { read.tensor("b"); }, Code::not_found, path, "\"b\"");
}

TEST(SafeTensors, TheOrderOfArgumentsChangesNothing) {
  const Folder folder;
  const Tensor a(DType::f32, Shape{3}), b(DType::f32, Shape{1}), c(DType::i64, Shape{2});
  write_safetensors(folder.path("1"), {{"a", a.view()}, {"b", b.view()}, {"c", c.view()}});
  write_safetensors(folder.path("2"), {{"c", c.view()}, {"b", b.view()}, {"a", a.view()}});
  EXPECT_EQ(test::bytes_of(folder.path("1")), test::bytes_of(folder.path("2")));
}

TEST(SafeTensors, RefusesToWriteWhatCannotBeRead) {
  const Folder folder;
  const Tensor a(DType::f32, Shape{1}), packed(DType::u4, Shape{2});
  const std::string path = folder.path("x");
  expect_error([&] { write_safetensors(path, {{"a", a.view()}, {"a", a.view()}}); }, Code::invalid_argument, "\"a\"");
  expect_error(
      [&] {
        write_safetensors(path, {{"__metadata__", a.view()}});
      },
      Code::invalid_argument, "__metadata__");
  expect_error([&] { write_safetensors(path, {{"p", packed.view()}}); }, Code::unsupported, "\"p\"", "u4");
  expect_error([&] { write_safetensors(path, {{"\xFF", a.view()}}); }, Code::invalid_argument, "UTF-8");
  expect_error([&] { write_safetensors("/dev/full", {{"a", a.view()}}); }, Code::io, "/dev/full", "No space left");
  expect_error([&] { write_safetensors(folder.path("no/such/x"), {}); }, Code::io, "no/such/x");
}

TEST(SafeTensors, SaysWhatIsWrongWithAHeader) {
  const Folder folder;
  const auto refuses = [&](const std::string& bytes, Code code, const std::string& words) {
    const std::string path = folder.write("bad.safetensors", bytes);
    expect_error([&] { SafeTensors::open(path); }, code, path, words);
  };
  const auto row = [](const std::string& dtype, const std::string& shape, const std::string& range) {
    return cat("{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", range, "}");
  };
  const std::string f4 = row("F32", "[1]", "[0,4]");
  expect_error([&] { SafeTensors::open(folder.path("none")); }, Code::not_found, "none");
  refuses("", Code::bad_model, "truncated");
  refuses("1234567", Code::bad_model, "truncated");
  refuses(std::string(8, '\xFF') + "{}", Code::bad_model, "truncated");
  refuses(file_of("[]"), Code::bad_model, "no JSON object");
  refuses(file_of("{"), Code::bad_model, "not JSON");
  refuses(file_of(std::string(100000, '[')), Code::bad_model, "nested");
  refuses(file_of("{\"a\":" + f4 + ",\"a\":" + f4 + "}", 4), Code::bad_model, "\"a\" twice");
  refuses(file_of("{\"a\":" + row("F4", "[1]", "[0,4]") + "}", 4), Code::unsupported, "\"F4\"");
  refuses(file_of("{\"a\":" + row("F32", "[2]", "[0,4]") + "}", 4), Code::bad_model, "8 bytes");
  refuses(file_of("{\"a\":" + row("F32", "[-1]", "[0,4]") + "}", 4), Code::bad_model, "shape");
  refuses(file_of("{\"a\":" + row("F32", "[1.0]", "[0,4]") + "}", 4), Code::bad_model, "shape");
  refuses(file_of("{\"a\":" + row("F32", "[4294967296,4294967296,4294967296]", "[0,4]") + "}", 4), Code::bad_model,
          "\"a\"");
  refuses(file_of("{\"a\":" + row("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4), Code::unsupported, "\"a\"");
  refuses(file_of("{\"a\":" + row("F32", "[1]", "[4,0]") + "}", 4), Code::bad_model, "data_offsets");
  refuses(file_of("{\"a\":" + row("F32", "[1]", "[0]") + "}", 4), Code::bad_model, "data_offsets");
  refuses(file_of("{\"a\":" + row("F32", "[1]", "[0,18446744073709551615]") + "}", 4), Code::bad_model,
          "data_offsets");
  refuses(file_of("{\"a\":" + f4 + "}", 3), Code::bad_model, "3 bytes");
  refuses(file_of("{\"a\":" + f4 + "}", 5), Code::bad_model, "belong to no tensor");
  refuses(file_of("{\"a\":" + f4 + ",\"b\":" + f4 + "}", 4), Code::bad_model, "overlaps");
  refuses(file_of("{\"a\":" + f4 + ",\"b\":" + row("U8", "[1]", "[5,6]") + "}", 6), Code::bad_model, "gap");
  refuses(file_of("{\"a\":7}"), Code::bad_model, "no dtype");
  refuses(file_of("{\"a\":{\"dtype\":\"F32\"}}"), Code::bad_model, "shape");
  refuses(file_of("{\"__metadata__\":{\"a\":1}}"), Code::bad_model, "metadata");
}

/// Each byte changed, each length cut: an Error or a file that reads within its bounds (the sanitizers look).
TEST(SafeTensors, SurvivesAnyDamage) {
  const Folder folder;
  const Tensor a(DType::f32, Shape{2, 2}), b(DType::i8, Shape{3});
  const std::string path = folder.path("whole");
  write_safetensors(path, {{"a", a.view()}, {"b", b.view()}}, {{"k", "v"}});
  const std::string whole = test::bytes_of(path);
  std::mt19937 random(3);
  const auto survives = [&](const std::string& bytes) {
    try {
      const SafeTensors read = SafeTensors::open(folder.write("damaged", bytes));
      for (const auto& [name, entry] : read.entries()) {
        const Tensor tensor = read.tensor(name);
        int sum = 0;
        for (int64_t i = 0; i < tensor.bytes(); ++i) sum += static_cast<int>(tensor.data()[i]);
        EXPECT_GE(sum, 0);
      }
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), testing::HasSubstr("damaged"));
    }
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(random());
    survives(bytes);
    survives(whole.substr(0, at));
  }
}

}  // namespace
}  // namespace plait
