#pragma once
// Attributes of ai.onnx.ml's ops, as inference reads them.
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/schema.h"

namespace plait {

/// The number of elements of a list or a tensor; 0 if absent.
inline int64_t list_size(const Attributes& attributes, std::string_view name) {
  const Attribute* found = attributes.find(name);
  if (!found) return 0;
  if (const auto* ints = std::get_if<std::vector<int64_t>>(found)) return std::ssize(*ints);
  if (const auto* reals = std::get_if<std::vector<double>>(found)) return std::ssize(*reals);
  if (const auto* texts = std::get_if<std::vector<std::string>>(found)) return std::ssize(*texts);
  const auto* tensor = std::get_if<Tensor>(found);
  return tensor ? tensor->elements() : 0;
}

/// The labels of a classifier, of which those of strings count if both lists are there.
struct Labels {
  Labels(const Attributes& attributes, const std::string& ints)
      : strings(list_size(attributes, "classlabels_strings") > 0),
        name(strings ? "classlabels_strings" : ints),
        size(list_size(attributes, name)) {}
  DType dtype() const { return strings ? DType::string : DType::i64; }
  bool strings;
  std::string name;
  int64_t size;
};

/// Throws Error(bad_model) unless a list has one number, or one for each feature: the columns of x [n, f], or [f].
inline void check_per_feature(const InferContext& context, std::string_view name, int64_t size) {
  const Dims* x = context.dims(0);
  if (size == 1 || !x) return;
  if (x->empty() || x->size() > 2)
    InferContext::fail(
        cat("attribute ", quote(name), " has ", size, " numbers, expected one, since x has rank ", x->size()));
  if (x->back().is_constant() && x->back().constant() != size)
    InferContext::fail(cat("attribute ", quote(name), " has ", size, " numbers, expected one, or ",
                           x->back().constant(), ", one for each feature"));
}

/// The rows of x [n, f] or [f].
inline Dim rows_of(const Dims& x) { return x.size() == 2 ? x[0] : Dim(1); }

inline constexpr const char* four_types = "f32 f64 i32 i64";

}  // namespace plait
