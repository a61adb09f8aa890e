#pragma once
// Attributes of ai.onnx.ml's ops, as kernels read them.
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {

/// The numbers of a list of floats or a tensor; empty if absent.
inline std::vector<double> reals_of(const Attributes& attributes, std::string_view name) {
  const Attribute* found = attributes.find(name);
  if (!found) return {};
  if (const auto* list = std::get_if<std::vector<double>>(found)) return *list;
  if (const auto* tensor = std::get_if<Tensor>(found)) return load_all<double>(tensor->view());
  throw Error(Code::bad_model, cat("attribute ", quote(name), " is no list of numbers"));
}

/// To f32, which such models compute in.
inline std::vector<float> narrowed(const std::vector<double>& numbers) { return {numbers.begin(), numbers.end()}; }

/// The strings of a list or a tensor; empty if absent.
inline std::vector<std::string> texts_of(const Attributes& attributes, std::string_view name) {
  const Attribute* found = attributes.find(name);
  if (!found) return {};
  if (const auto* list = std::get_if<std::vector<std::string>>(found)) return *list;
  const auto* tensor = std::get_if<Tensor>(found);
  if (!tensor || tensor->dtype() != DType::string)
    throw Error(Code::bad_model, cat("attribute ", quote(name), " is no list of strings"));
  const std::vector<std::string_view> texts = packed_texts(tensor->view());
  return {texts.begin(), texts.end()};
}

/// The labels of a classifier: integers, or strings, whose integers are their places.
struct LabelList {
  LabelList(const Attributes& attributes, std::string_view ints_name)
      : texts(texts_of(attributes, "classlabels_strings")), ints(attributes.integers(ints_name)) {
    if (texts.empty()) return;
    ints.clear();
    for (int64_t i = 0; i < std::ssize(texts); ++i) ints.push_back(i);
  }
  /// What stands for each text in this run; empty for integers.
  std::vector<uint64_t> numbers(const KernelCall& call) const {
    std::vector<uint64_t> out;
    for (const std::string& text : texts) out.push_back(call.strings->number(text));
    return out;
  }
  std::vector<std::string> texts;
  std::vector<int64_t> ints;
};

inline constexpr Domain four_types{"f32, f64, i32, i64", [](const NodeInfo& node) {
                                     return first_is(node, [](DType dtype) {
                                       return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 ||
                                              dtype == DType::i64;
                                     });
                                   }};

/// The rows and columns of x [n, f] or [f].
struct Table {
  explicit Table(const TensorView& x) : rows(x.shape.rank() == 2 ? x.shape[0] : 1), columns(x.shape.back(1)) {}
  int64_t rows, columns;
};

/// Whether a list of this size has one number, or one for each column of x.
inline bool fits_features(size_t size, const TensorView& x) {
  const int rank = x.shape.rank();
  return size == 1 || (rank >= 1 && rank <= 2 && static_cast<int64_t>(size) == x.shape.back(1));
}

}  // namespace plait::reference
