// Tensors of strings: packed and numbered, their table, their .npy files.
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/error.h"
#include "core/base/npy.h"
#include "core/base/strings.h"

namespace plait::test {
namespace {

using Texts = std::vector<std::string_view>;

TEST(PackedStrings, ReadBack) {
  const Texts texts{"one", "", "dreißig", std::string_view("a\0b", 3)};
  const Tensor tensor = packed_strings(Shape{2, 2}, texts);
  EXPECT_EQ(packed_texts(tensor.view()), texts);
  EXPECT_EQ(packed_string_bytes(tensor.view()), 4 * 8 + 3 + 8 + 3);
  check_packed_strings(tensor.view(), tensor.blob()->size());
}

/// Every end but its own, and every size.
TEST(PackedStrings, RefusesWhatIsNone) {
  const Texts texts{"one", "two"};
  const auto refused = [](const Tensor& tensor, int64_t bytes) {
    try {
      check_packed_strings(tensor.view(), bytes);
    } catch (const Error& error) {
      return error.code() == Code::invalid_argument;
    }
    return false;
  };
  const Tensor good = packed_strings(Shape{2}, texts);
  for (int64_t bytes = 0; bytes < 30; ++bytes) EXPECT_EQ(refused(good, bytes), bytes != 22) << bytes;
  for (uint64_t end : {uint64_t{7}, UINT64_MAX, uint64_t{1} << 63}) {
    const Tensor bad = packed_strings(Shape{2}, texts);
    std::memcpy(bad.data(), &end, sizeof end);
    EXPECT_TRUE(refused(bad, 22)) << end;
  }
}

TEST(PackedStrings, InLists) {
  const Tensor a = packed_strings(Shape{2}, Texts{"x", "yy"}), b = packed_strings(Shape{}, Texts{"z"}),
               c(DType::string, Shape{0, 3});
  const TensorView views[] = {a.view(), b.view(), c.view()};
  const Tensor list = packed_string_list(views);
  const int64_t before = numbers_of_list(list.view()).value();
  check_packed_strings(list.view(), list.blob()->size(), before);
  StringTable table;
  const Tensor there = table.numbered(list.view(), make_blob, before),
               back = table.packed(there.view(), make_blob, before);
  const auto parts = parts_of_list(back.view());
  ASSERT_TRUE(parts && parts->size() == 3);
  for (size_t k = 0; k < 3; ++k) {
    const Tensor part = packed_string_part(back.view(), (*parts)[k], before);
    EXPECT_EQ(part.shape(), views[k].shape);
    EXPECT_EQ(packed_texts(part.view()), packed_texts(views[k]));
  }
}

/// Lists of one list; of one without elements, whose last number is no text's end; and of none.
TEST(PackedStrings, InListsOfOneList) {
  const Tensor a = packed_strings(Shape{2}, Texts{"x", "yy"}), b = packed_strings(Shape{}, Texts{"z"}), c(DType::string, Shape{0, 3});
  for (const std::vector<TensorView>& parts : {std::vector{a.view(), b.view()}, {c.view()}, {c.view(), b.view()}, {}})
    for (bool given : {true, false}) {
      const Tensor inner = packed_string_list(parts);
      const int64_t own = check_packed_string_list(inner.view(), inner.blob()->size());
      const TensorView whole = inner.view();
      const Tensor list = packed_string_list(std::span(&whole, given ? 1 : 0), given ? own : 0);
      const std::optional<int64_t> before = numbers_of_list(list.view(), 2);
      ASSERT_TRUE(before);
      check_packed_strings(list.view(), list.blob()->size(), *before);
      StringTable table;
      const Tensor back = table.packed(table.numbered(list.view(), make_blob, *before).view(), make_blob, *before);
      ASSERT_EQ(back.blob()->size(), list.blob()->size());
      EXPECT_EQ(std::memcmp(back.data(), list.data(), static_cast<size_t>(list.blob()->size())), 0);
      const auto found = parts_of_list(back.view());
      ASSERT_EQ(found->size(), given ? 1u : 0u);
      if (!given) continue;
      const int64_t checked = check_packed_string_list(back.view(), back.blob()->size());
      const Tensor part = packed_string_part(back.view(), found->front(), checked);
      ASSERT_EQ(part.blob()->size(), inner.blob()->size());
      EXPECT_EQ(std::memcmp(part.data(), inner.data(), static_cast<size_t>(inner.blob()->size())), 0);
    }
  const Tensor one = packed_string_list(std::vector{a.view()});
  const TensorView twice[] = {one.view(), one.view()};
  EXPECT_FALSE(numbers_of_list(packed_list(DType::string, twice).view(), 2));
}

TEST(StringTable, GivesEqualTextsOneNumber) {
  StringTable table;
  EXPECT_EQ(table.number(""), 0u);
  EXPECT_EQ(table.text(0), "");
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 5000; ++i) numbers.push_back(table.number("text " + std::to_string(i)));
  for (int i = 0; i < 5000; ++i) {
    EXPECT_EQ(table.number("text " + std::to_string(i)), numbers[static_cast<size_t>(i)]);
    EXPECT_EQ(table.text(numbers[static_cast<size_t>(i)]), "text " + std::to_string(i));
  }
  EXPECT_EQ(table.text(5001), "");
  EXPECT_EQ(table.text(UINT64_MAX), "");
}

/// A base may gain texts while another table has it.
TEST(StringTable, OnABase) {
  const auto base = std::make_shared<StringTable>();
  const uint64_t first = base->number("of the base");
  StringTable own(base);
  EXPECT_EQ(own.number("of the base"), first);
  const uint64_t mine = own.number("mine"), second = base->number("later");
  EXPECT_EQ(own.text(mine), "mine");
  EXPECT_EQ(own.text(first), "of the base");
  EXPECT_EQ(own.number("later"), second);
  EXPECT_EQ(base->text(mine), "");
}

TEST(StringTable, TakesMemoryOnlyAsItIsGiven) {
  int64_t taken = 0;
  StringTable table(nullptr, [&](int64_t bytes) -> std::shared_ptr<Blob> {
    if (taken + bytes > 100'000) throw Error(Code::out_of_memory, "no more");
    taken += bytes;
    return make_blob(bytes);
  });
  int64_t texts = 0, bytes = 0;
  try {
    for (; texts < 100'000; ++texts) {
      const std::string text = "text " + std::to_string(texts);
      table.number(text);
      bytes += std::ssize(text);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
  }
  EXPECT_GT(texts, 500);
  EXPECT_LT(bytes, 100'000);
  EXPECT_EQ(table.text(table.number("text 7")), "text 7") << "what is there stays";
}

std::shared_ptr<Blob> file_of(std::string_view bytes) {
  return copy_blob(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

TEST(StringNpy, ReadsBack) {
  const Texts texts{"one", "", "dreißig", "日本語", "🙂", "six"};
  const Tensor tensor = packed_strings(Shape{3, 2}, texts);
  const std::string file = npy_of_strings(tensor.view());
  EXPECT_NE(file.find("'<U7'"), std::string::npos);
  const Tensor back = read_npy(file_of(file));
  EXPECT_EQ(back.shape(), tensor.shape());
  EXPECT_EQ(packed_texts(back.view()), texts);
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_THROW(read_npy(file_of(file.substr(0, size))), Error) << size;
}

/// Bytes in Fortran's order.
TEST(StringNpy, ReadsBytes) {
  std::string file = npy_of_strings(packed_strings(Shape{2, 2}, Texts{"a", "b", "c", "d"}).view());
  const size_t header = file.size() - 16;
  file.replace(file.find("'<U1'"), 5, "'|S2'");
  file.replace(file.find("False, "), 7, "True,  ");
  file.resize(header);
  file += std::string("ab\0\0cde\0", 8);
  EXPECT_EQ(packed_texts(read_npy(file_of(file)).view()), (Texts{"ab", "cd", "", "e"}));
}

TEST(StringNpy, RefusesWhatHasNoForm) {
  EXPECT_THROW(npy_of_strings(packed_strings(Shape{1}, Texts{"\xff"}).view()), Error);
  EXPECT_THROW(npy_of_strings(packed_strings(Shape{1}, Texts{std::string_view("a\0", 2)}).view()), Error);
}

}  // namespace
}  // namespace plait::test
