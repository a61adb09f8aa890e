// Lists of tensors as one tensor.
#include <gtest/gtest.h>

#include "core/base/packed_list.h"

namespace plait::test {
namespace {

std::vector<Tensor> parts() {
  std::vector<Tensor> out;
  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{0, 4}, Shape{5}}) {
    out.emplace_back(DType::f16, shape);
    for (int64_t i = 0; i < out.back().elements(); ++i)
      out.back().view().as<uint16_t>()[i] = static_cast<uint16_t>(100 * out.size() + static_cast<size_t>(i));
  }
  return out;
}

Tensor packed(const std::vector<Tensor>& tensors) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(tensor.view());
  return packed_list(DType::f16, views);
}

TEST(PackedList, ReadsBack) {
  const std::vector<Tensor> tensors = parts();
  const Tensor list = packed(tensors);
  const auto found = parts_of_list(list.view());
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    const TensorView part = view_of(list.view(), (*found)[k]);
    ASSERT_EQ(part.shape, tensors[k].shape());
    for (int64_t i = 0; i < part.elements(); ++i)
      EXPECT_EQ(part.as<uint16_t>()[i], tensors[k].view().as<uint16_t>()[i]) << "part " << k;
  }
  const Tensor empty = packed({});
  EXPECT_EQ(parts_of_list(empty.view())->size(), 0u);
}

/// A list of lists.
TEST(PackedList, Nests) {
  const Tensor inner = packed(parts()), outer = packed({inner});
  const auto found = parts_of_list(outer.view());
  ASSERT_TRUE(found);
  EXPECT_EQ(parts_of_list(view_of(outer.view(), found->at(0)))->size(), parts().size());
}

/// Every length but its own, and counts, ranks and sizes that do not fit.
TEST(PackedList, RefusesWhatIsNone) {
  const Tensor list = packed(parts());
  TensorView view = list.view();
  for (int64_t n = 0; n < list.elements(); ++n) {
    view.shape = {n};
    EXPECT_FALSE(parts_of_list(view)) << n << " elements";
  }
  for (int64_t word = 0; word < 10; ++word)
    for (int64_t number : {int64_t{-1}, int64_t{9}, int64_t{1} << 40, INT64_MAX}) {
      if (word == 7 && number > 0) continue;  // another size of an empty part
      const Tensor changed = packed(parts());
      changed.view().as<int64_t>()[word] = number;
      EXPECT_FALSE(parts_of_list(changed.view())) << "number " << word << " is " << number;
    }
  view = list.view();
  view.dtype = DType::i4;
  EXPECT_FALSE(parts_of_list(view));
}

}  // namespace
}  // namespace plait::test
