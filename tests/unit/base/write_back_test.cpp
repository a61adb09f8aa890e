// The way from a constant's value back into the tensors of the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "core/base/constant.h"
#include "core/base/error.h"

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

Tensor in_dtype(const Tensor& tensor, DType dtype) {
  return materialize({{}, tensor, {{Kind::cast, {}, dtype}}, {}});
}

/// Whole numbers from `first` on, `by` apart: below 256 every dtype has them exactly.
Tensor numbers(DType dtype, const Shape& shape, float first, float by) {
  Tensor out(DType::f32, shape);
  for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = first + by * static_cast<float>(i);
  return in_dtype(out, dtype);
}

class RandomConstants {
 public:
  Constant next() {
    const Shape shapes[] = {{4, 6}, {2, 6, 4}, {8, 3}, {3, 2, 2, 4}};
    const Shape shape = shapes[draw(4)];
    const DType dtype = floats[draw(3)];
    Constant out;
    if (draw(3)) {
      out = {"a", numbers(dtype, shape, 1, 1), {}, {}};
    } else {
      for (const char* name : {"a", "b", "c"}) out.parts.push_back({name, numbers(dtype, shape, 1, 1), {}, {}});
      for (int64_t steps = draw(2); steps > 0; --steps) {
        const RecipeStep step = next_step(out.parts[0]);
        for (Constant& part : out.parts) part.steps.push_back(step);
      }
    }
    for (int64_t steps = draw(6); steps > 0; --steps) out.steps.push_back(next_step(out));
    return out;
  }

 private:
  int64_t draw(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }

  RecipeStep next_step(const Constant& constant) {
    const Shape shape = constant.shape();
    RecipeStep step{Kind::reshape, {}, {}};
    switch (draw(4)) {
      case 0:
        step.kind = Kind::transpose;
        for (int axis = 0; axis < shape.rank(); ++axis) step.numbers.push_back(axis);
        std::shuffle(step.numbers.begin(), step.numbers.end(), random_);
        return step;
      case 1: {
        int64_t rest = shape.elements();
        for (int64_t size : {2, 3, 4})
          if (draw(2) && rest % size == 0) step.numbers.push_back(size), rest /= size;
        step.numbers.push_back(rest);
        return step;
      }
      case 2: return {Kind::cast, {}, floats[draw(3)]};
      default: {
        const int64_t axis = draw(shape.rank()), size = shape[static_cast<int>(axis)], begin = draw(size);
        return {Kind::slice, {axis, begin, begin + 1 + draw(size - begin)}, {}};
      }
    }
  }

  std::mt19937 random_{5};
};

/// With these tensors in the place of its sources.
Constant over(Constant constant, const std::map<std::string, Tensor>& tensors) {
  for (Constant& part : constant.parts) part = over(part, tensors);
  if (auto found = tensors.find(constant.initializer); found != tensors.end()) constant.source = found->second;
  return constant;
}

TEST(WriteBack, StepsLeadToTheValueAgainAndNothingElseChanges) {
  RandomConstants constants;
  int64_t parts = 0;
  for (int round = 0; round < 4000; ++round) {
    const Constant constant = constants.next();
    const Tensor value = numbers(constant.dtype(), constant.shape(), -1, -1);
    std::map<std::string, Tensor> tensors;
    write_back(constant, value, tensors);
    const Tensor again = materialize(over(constant, tensors));
    ASSERT_EQ(again.shape(), value.shape());
    ASSERT_EQ(std::memcmp(again.data(), value.data(), static_cast<size_t>(value.bytes())), 0) << text(constant.steps);
    int64_t changed = 0, whole = 0;
    for (const auto& [name, tensor] : tensors) {
      const Tensor now = in_dtype(tensor, DType::f32);
      whole += now.elements();
      for (int64_t i = 0; i < now.elements(); ++i) {
        const float number = now.as<float>()[i];
        changed += number < 0;
        ASSERT_TRUE(number < 0 || number == static_cast<float>(i + 1)) << text(constant.steps);
      }
    }
    ASSERT_EQ(changed, value.elements()) << text(constant.steps);
    parts += changed < whole;
  }
  EXPECT_GT(parts, 1000);
}

TEST(WriteBack, TheSourceStaysAsItIs) {
  const Constant constant{"a", numbers(DType::f32, {2, 2}, 1, 1), {}, {}};
  std::map<std::string, Tensor> tensors;
  write_back(constant, numbers(DType::f32, {2, 2}, -1, -1), tensors);
  EXPECT_EQ(constant.source.as<float>()[0], 1);
  EXPECT_EQ(tensors.at("a").as<float>()[0], -1);
}

TEST(WriteBack, PartsOfATensorAreWrittenOneByOne) {
  const Tensor source = numbers(DType::bf16, {4, 2}, 1, 1);
  std::map<std::string, Tensor> tensors;
  for (int64_t row : {0, 2})
    write_back({"a", source, {{Kind::slice, {0, row, row + 1}, {}}, {Kind::cast, {}, DType::f32}}, {}},
               numbers(DType::f32, {1, 2}, static_cast<float>(-1 - row), -1), tensors);
  const Tensor now = in_dtype(tensors.at("a"), DType::f32);
  EXPECT_EQ(std::vector<float>(now.as<float>(), now.as<float>() + 8),
            (std::vector<float>{-1, -2, 3, 4, -3, -4, 7, 8}));
}

TEST(WriteBack, RefusesWhatHasNoWayBack) {
  std::map<std::string, Tensor> tensors;
  const Tensor value = numbers(DType::f32, {2, 2}, 1, 1);
  auto code = [&](const Constant& constant) {
    try {
      write_back(constant, value, tensors);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  };
  EXPECT_EQ(code({"", value, {}, {}}), Code::unsupported);
  EXPECT_EQ(code({"a", numbers(DType::f32, {2, 4}, 1, 1), {{Kind::reinterpret, {}, DType::f64}}, {}}),
            Code::unsupported);
  EXPECT_EQ(code({"a", numbers(DType::f32, {4}, 1, 1), {}, {}}), Code::invalid_argument);
}

}  // namespace
}  // namespace plait
