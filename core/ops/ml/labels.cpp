// LabelEncoder, CategoryMapper and OneHotEncoder.
#include "core/ops/base/rows.h"
#include "core/ops/ml/lists.h"
#include "core/ops/ml/register.h"

namespace plait {

namespace {

struct MapSide {
  DType dtype = DType::none;
  int64_t size = 0;
};

/// The one of "keys_int64s", "keys_floats", "keys_strings" and "keys_tensor" (or of values) that is there.
MapSide map_side(const Attributes& attributes, std::string_view stem) {
  MapSide out;
  int found = 0;
  for (const auto& [suffix, dtype] : {std::pair("_int64s", DType::i64), std::pair("_floats", DType::f32),
                                      std::pair("_strings", DType::string), std::pair("_tensor", DType::none)}) {
    const std::string name = cat(stem, suffix);
    const Attribute* value = attributes.find(name);
    if (!value) continue;
    const auto* tensor = std::get_if<Tensor>(value);
    out = {tensor ? tensor->dtype() : dtype, list_size(attributes, name)};
    ++found;
  }
  if (found != 1)
    InferContext::fail(cat("there are ", found, " lists of ", stem, ", expected one of ", stem, "_int64s, ", stem,
                           "_floats, ", stem, "_strings and ", stem, "_tensor"));
  return out;
}

/// Between strings and integers, in the direction that x's type tells.
void infer_both_ways(InferContext& context) {
  const DType x = context.dtype(0);
  if (x != DType::none) context.set_type(0, x == DType::string ? DType::i64 : DType::string);
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
}

void infer_category_mapper(InferContext& context) {
  const int64_t strings = list_size(context.attributes(), "cats_strings"), ints = list_size(context.attributes(), "cats_int64s");
  if (strings != ints) InferContext::fail(cat("there are ", strings, " strings and ", ints, " integers, expected equally many"));
  infer_both_ways(context);
}

void infer_label_encoder(InferContext& context) {
  const Attributes& attributes = context.attributes();
  if (attributes.has("classes_strings")) {  // opset 1: a string's place in the list
    const DType x = context.dtype(0);
    if (x != DType::none && x != DType::string && x != DType::i64)
      InferContext::fail(cat("attribute \"classes_strings\" maps strings or i64, and x is ", dtype_name(x)));
    return infer_both_ways(context);
  }
  const MapSide keys = map_side(attributes, "keys"), values = map_side(attributes, "values");
  if (keys.size != values.size)
    InferContext::fail(cat("there are ", keys.size, " keys and ", values.size, " values"));
  if (context.dtype(0) != DType::none && context.dtype(0) != keys.dtype)
    InferContext::fail(cat("keys are ", dtype_name(keys.dtype), ", and x is ", dtype_name(context.dtype(0))));
  if (const Attribute* found = attributes.find("default_tensor")) {
    const auto* fallback = std::get_if<Tensor>(found);
    if (!fallback || fallback->elements() != 1 || fallback->dtype() != values.dtype)
      InferContext::fail(
          cat("attribute \"default_tensor\" is not one ", dtype_name(values.dtype), ", as the values are"));
  }
  context.set_type(0, values.dtype);
  if (const Dims* x = context.dims(0)) context.set_dims(0, *x);
}

void infer_one_hot_encoder(InferContext& context) {
  const bool strings = list_size(context.attributes(), "cats_strings") > 0;
  const char* const name = strings ? "cats_strings" : "cats_int64s";
  const int64_t categories = list_size(context.attributes(), name);
  if (categories == 0) InferContext::fail("attribute \"cats_int64s\" or \"cats_strings\" is missing or empty");
  if (context.dtype(0) != DType::none && strings != (context.dtype(0) == DType::string))
    InferContext::fail(cat("categories are in attribute ", quote(name), ", and x is ", dtype_name(context.dtype(0))));
  context.set_type(0, DType::f32);
  if (const Dims* x = context.dims(0)) {
    if (x->size() >= static_cast<size_t>(Shape::max_rank)) InferContext::fail(cat("x has rank ", x->size()));
    Dims y = *x;
    y.emplace_back(categories);
    context.set_dims(0, std::move(y));
  }
}

}  // namespace

void register_labels(OpSet& ops) {
  ops.add({.name = "ai.onnx.ml.LabelEncoder",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"classes_strings", "strings", ""},
                          {"default_float", "float", "-0"},
                          {"default_int64", "int", "-1"},
                          {"default_string", "string", "_Unused"},
                          {"default_tensor", "tensor", ""},
                          {"keys_floats", "floats", ""},
                          {"keys_int64s", "ints", ""},
                          {"keys_strings", "strings", ""},
                          {"keys_tensor", "tensor", ""},
                          {"values_floats", "floats", ""},
                          {"values_int64s", "ints", ""},
                          {"values_strings", "strings", ""},
                          {"values_tensor", "tensor", ""}},
           .infer = infer_label_encoder,
           .doc = "the value of the first equal key (NaN equals NaN), or the default",
           .since = 4});
  ops.add({.name = "ai.onnx.ml.OneHotEncoder",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"cats_int64s", "ints", ""}, {"cats_strings", "strings", ""}, {"zeros", "int", "1"}},
           .infer = infer_one_hot_encoder,
           .doc = "1 at the category, 0 elsewhere, along a new last dim, in f32",
           .since = 1});
  ops.add({.name = "ai.onnx.ml.CategoryMapper",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"cats_int64s", "ints", ""},
                          {"cats_strings", "strings", ""},
                          {"default_int64", "int", "-1"},
                          {"default_string", "string", "_Unused"}},
           .infer = infer_category_mapper,
           .doc = "the integer of each string, or the string of each integer, or the default",
           .since = 1});
  ops.claim("ai.onnx.ml.CategoryMapper", 1, "i64 string");
  ops.claim("ai.onnx.ml.LabelEncoder", 1, "f32 f64 i16 i32 i64 string -> f32 f64 i16 i32 i64 string");
  ops.claim("ai.onnx.ml.OneHotEncoder", 1, cat(four_types, " string"));
}

}  // namespace plait
