// Where a constant's elements stand in the file: against the constant itself, made of a tensor whose elements are their
// own numbers.
#include "core/mesh/file_layout.h"

#include <gmock/gmock.h>

#include <random>

#include "core/base/text.h"

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

Constant numbered(const Shape& shape) {
  std::vector<int32_t> numbers(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  return {"w", Tensor::of<int32_t>(DType::i32, shape, numbers), {}};
}

/// The number of an element along one axis of the file or of the constant, from its number in row-major order.
std::vector<int64_t> index_of(int64_t number, const Shape& shape) {
  std::vector<int64_t> out(static_cast<size_t>(shape.rank()));
  for (int k = shape.rank(); k-- > 0; number /= shape[k]) out[static_cast<size_t>(k)] = number % shape[k];
  return out;
}

/// The place of an element by the layout: places along all axes.
std::vector<int64_t> places_of(const FileLayout& layout, const std::vector<int64_t>& index) {
  std::vector<int64_t> out = layout.base;
  for (size_t d = 0; d < index.size(); ++d) {
    int64_t left = index[d];
    for (size_t i = layout.dims[d].size(); i-- > 0; left /= layout.dims[d][i].size)
      out[layout.dims[d][i].axis] += left % layout.dims[d][i].size * layout.dims[d][i].stride;
  }
  return out;
}

void expect_places(const Constant& constant) {
  const std::optional<FileLayout> layout = file_layout(constant);
  ASSERT_TRUE(layout);
  const Tensor made = materialize(constant);
  const Shape& shape = constant.source.shape();
  for (int64_t i = 0; i < made.elements(); ++i) {
    std::vector<int64_t> places = places_of(*layout, index_of(i, made.shape()));
    EXPECT_EQ(places.back(), 0) << "of the bits";
    places.pop_back();
    ASSERT_EQ(places, index_of(made.as<int32_t>()[i], shape)) << "element " << i;
  }
}

RecipeStep random_step(const Shape& shape, std::mt19937& random) {
  auto pick = [&](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
  RecipeStep out{Kind::transpose, {}};
  switch (pick(3)) {
    case 0:
      for (int64_t k = 0; k < shape.rank(); ++k) out.numbers.push_back(k);
      std::shuffle(out.numbers.begin(), out.numbers.end(), random);
      return out;
    case 1: {
      const int64_t axis = pick(shape.rank()), size = shape[static_cast<int>(axis)];
      const int64_t begin = pick(size), end = begin + 1 + pick(size - begin);
      return {Kind::slice, {axis, begin, end}};
    }
    default: {
      out.kind = Kind::reshape;
      int64_t left = shape.elements();
      while (left > 1 && out.numbers.size() < 4) {
        int64_t part = 1 + pick(left);
        while (left % part) --part;
        out.numbers.push_back(part);
        left /= part;
      }
      out.numbers.push_back(left);
      return out;
    }
  }
}

TEST(FileLayout, RandomRecipesAreWhereTheySay) {
  std::mt19937 random(7);
  int followed = 0, lost = 0;
  for (int round = 0; round < 3000; ++round) {
    Constant constant = numbered(Shape{6, 4, 8});
    for (int i = 0; i < 4; ++i) constant.steps.push_back(random_step(constant.shape(), random));
    SCOPED_TRACE(text(constant.steps));
    if (!file_layout(constant)) {
      ++lost;
      continue;
    }
    ++followed;
    expect_places(constant);
    if (testing::Test::HasFailure()) return;
  }
  // What a reshape leaves of a slice that cuts through a factor has no places.
  EXPECT_GT(followed, 2 * lost);
}

TEST(FileLayout, PartsOfOneTensorAndStacks) {
  Constant whole = numbered(Shape{3, 2, 4}), stack;
  for (int64_t i = 0; i < 3; ++i) {
    stack.parts.push_back(whole);
    stack.parts.back().steps = {{Kind::slice, {0, i, i + 1}}, {Kind::reshape, {2, 4}}, {Kind::transpose, {1, 0}}};
  }
  stack.source = whole.source;  // what expect_places compares with
  ASSERT_EQ(file_layout(stack)->stacked, 0u);
  expect_places(stack);

  Constant apart;
  for (const char* name : {"a", "b"}) {
    apart.parts.push_back(numbered(Shape{2, 4}));
    apart.parts.back().initializer = name;
    apart.parts.back().steps = {{Kind::transpose, {1, 0}}};
  }
  const std::optional<FileLayout> layout = file_layout(apart);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->stacked, 1u);
  EXPECT_EQ(layout->tensors[1]->initializer, "b");
  EXPECT_EQ(layout->sizes, (std::vector<int64_t>{2, 2, 4, 32}));
  EXPECT_EQ(places_of(*layout, {1, 3, 1}), (std::vector<int64_t>{1, 1, 3, 0}));
  apart.parts[1].steps.clear();
  EXPECT_FALSE(file_layout(apart)) << "parts that are not alike";
}

TEST(FileLayout, PackedElements) {
  // Rows of 3 values of 4 bits take 2 bytes each.
  std::vector<uint8_t> bytes(8);
  Constant zeros{"z", Tensor::of<uint8_t>(DType::u8, Shape{8}, bytes), {}};
  zeros.steps = {{Kind::reshape, {4, 2}}, {Kind::reinterpret, {}, DType::u4}, {Kind::slice, {1, 0, 3}}};
  const std::optional<FileLayout> layout = file_layout(zeros);
  ASSERT_TRUE(layout);
  const Mesh mesh = Mesh::parse("tensor=2");
  const auto rows = cut_in_file(*layout, Sharding::cut(2, 0, mesh.parts("tensor")), mesh);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at(0).blocks, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_FALSE(
      cut_in_file(*layout, Sharding::cut(2, 1, Mesh::parse("tensor=3").parts("tensor")), Mesh::parse("tensor=3")))
      << "3 columns are no 3 places in bytes";
  zeros.steps.pop_back();
  EXPECT_TRUE(cut_in_file(*file_layout(zeros), Sharding::cut(2, 1, mesh.parts("tensor")), mesh));
  zeros.steps[0].numbers = {8, 1};
  EXPECT_FALSE(cut_in_file(*file_layout(zeros), Sharding::cut(2, 1, mesh.parts("tensor")), mesh)) << "within a byte";
  zeros.steps = {{Kind::cast, {}, DType::f32}, {Kind::reinterpret, {}, DType::u8}};
  EXPECT_FALSE(file_layout(zeros));
}

TEST(FileLayout, BlocksAreWhatAShardingCuts) {
  const Mesh mesh = Mesh::parse("tensor=4");
  const AxisList t = mesh.parts("tensor");
  Constant constant = numbered(Shape{4, 12});
  constant.steps = {{Kind::slice, {1, 4, 8}}, {Kind::transpose, {1, 0}}};
  Sharding sharding = Sharding::replicated(2);
  sharding.dims = {{t[1]}, {t[0]}};
  const auto cut = cut_in_file(*file_layout(constant), sharding, mesh);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->at(0).axes, (AxisList{t[0]}));
  EXPECT_EQ(cut->at(0).blocks, (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(cut->at(1).axes, (AxisList{t[1]}));
  EXPECT_EQ(cut->at(1).blocks, (std::vector<int32_t>{-1, -1, -1, -1, 0, 0, 1, 1, -1, -1, -1, -1}));
}

}  // namespace
}  // namespace plait
