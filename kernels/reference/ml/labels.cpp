// LabelEncoder and OneHotEncoder of numbers.
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "kernels/reference/ml/lists.h"
#include "kernels/reference/ml/register.h"

namespace plait::reference {
namespace {

/// A number such that two are equal where their keys are: NaN equals NaN, and -0 equals 0.
uint64_t key_of(double number) {
  if (std::isnan(number)) return std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
  return std::bit_cast<uint64_t>(number == 0 ? 0.0 : number);
}

std::vector<uint64_t> keys_in(const TensorView& tensor) {
  std::vector<uint64_t> out;
  out.reserve(static_cast<size_t>(tensor.elements()));
  if (is_float(tensor.dtype)) {
    for (double number : load_all<double>(tensor)) out.push_back(key_of(number));
  } else {
    for (int64_t number : load_all<int64_t>(tensor)) out.push_back(static_cast<uint64_t>(number));
  }
  return out;
}

/// The list "STEM_int64s", "STEM_floats" or "STEM_tensor", flat.
Tensor list_of(const Attributes& attributes, std::string_view stem) {
  if (const Attribute* tensor = attributes.find(cat(stem, "_tensor")))
    if (const auto* value = std::get_if<Tensor>(tensor)) return *value;
  if (attributes.has(cat(stem, "_int64s"))) return Tensor::of_ints(attributes.integers(cat(stem, "_int64s")));
  const std::vector<double> reals = reals_of(attributes, cat(stem, "_floats"));
  const std::vector<float> floats(reals.begin(), reals.end());
  return Tensor::of<float>(DType::f32, Shape{std::ssize(floats)}, floats);
}

struct LabelMap {
  explicit LabelMap(const NodeInfo& node) : values(list_of(node.attributes, "values")) {
    const std::vector<uint64_t> keys = keys_in(list_of(node.attributes, "keys").view());
    if (std::ssize(keys) != values.elements())
      throw Error(Code::bad_model, cat("there are ", keys.size(), " keys and ", values.elements(), " values"));
    for (size_t i = 0; i < keys.size(); ++i) places.emplace(keys[i], i);  // the first of equal keys
    if (const Attribute* found = node.attributes.find("default_tensor")) {
      const auto* tensor = std::get_if<Tensor>(found);
      if (!tensor || tensor->elements() != 1 || tensor->dtype() != values.dtype())
        throw Error(Code::bad_model, "attribute \"default_tensor\" is not one value of the values' type");
      fallback = *tensor;
      return;
    }
    fallback = Tensor(values.dtype(), Shape{1});
    if (is_float(values.dtype())) store_one<double>(fallback.view(), 0, node.attributes.real("default_float", -0.0));
    else store_one<int64_t>(fallback.view(), 0, node.attributes.integer("default_int64", -1));
  }
  Tensor values, fallback;  ///< fallback: one element
  std::unordered_map<uint64_t, size_t> places;
};

KernelStatus encode_labels(const KernelCall& call, const LabelMap& map) {
  const TensorView& y = call.outputs[0];
  const std::vector<uint64_t> keys = keys_in(call.inputs[0]);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = map.places.find(keys[i]);
    put_bits(y, static_cast<int64_t>(i),
             found == map.places.end() ? get_bits(map.fallback.view(), 0)
                                       : get_bits(map.values.view(), static_cast<int64_t>(found->second)));
  }
  return {};
}

struct Categories {
  explicit Categories(const NodeInfo& node)
      : list(node.attributes.integers("cats_int64s")), zeros(node.attributes.integer("zeros", 1) != 0) {
    for (size_t i = 0; i < list.size(); ++i) places.insert_or_assign(list[i], i);  // the last of equal ones
  }
  std::vector<int64_t> list;
  std::unordered_map<int64_t, size_t> places;
  bool zeros;
};

/// A float is its integer part; -1 if there is no such integer.
int64_t category_of(double number) {
  constexpr double beyond = 9223372036854775808.0;  // 2^63
  return number > -beyond && number < beyond ? static_cast<int64_t>(number) : -1;
}

KernelStatus encode_one_hot(const KernelCall& call, const Categories& categories) {
  const TensorView& x = call.inputs[0];
  const size_t count = categories.list.size();
  std::vector<double> result(static_cast<size_t>(x.elements()) * count);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t category = is_float(x.dtype) ? category_of(load_one<double>(x, i)) : load_one<int64_t>(x, i);
    const auto found = categories.places.find(category);
    if (found != categories.places.end()) result[static_cast<size_t>(i) * count + found->second] = 1;
    else if (!categories.zeros) return {KernelCode::bad_value, 0, category};
  }
  store_all(call.outputs[0], result);
  return {};
}

constexpr Domain label_types{"f32, f64, i16, i32, i64", [](const NodeInfo& node) {
                               return four_types.accepts(node) ||
                                      first_is(node, [](DType dtype) { return dtype == DType::i16; });
                             }};

}  // namespace

void add_labels(KernelTable& table) {
  add<encode_labels>(table, "ai.onnx.ml.LabelEncoder", label_types);
  add<encode_one_hot>(table, "ai.onnx.ml.OneHotEncoder", four_types);
}

}  // namespace plait::reference
