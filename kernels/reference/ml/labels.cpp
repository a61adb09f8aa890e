// LabelEncoder, CategoryMapper and OneHotEncoder.
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
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

/// The list "STEM_int64s", "STEM_floats", "STEM_strings" or "STEM_tensor", flat; strings are packed.
Tensor list_of(const Attributes& attributes, std::string_view stem) {
  if (const Attribute* tensor = attributes.find(cat(stem, "_tensor")))
    if (const auto* value = std::get_if<Tensor>(tensor)) return *value;
  if (attributes.has(cat(stem, "_int64s"))) return Tensor::of_ints(attributes.integers(cat(stem, "_int64s")));
  if (attributes.has(cat(stem, "_strings"))) {
    const std::vector<std::string> texts = texts_of(attributes, cat(stem, "_strings"));
    return packed_strings(Shape{std::ssize(texts)}, texts);
  }
  const std::vector<double> reals = reals_of(attributes, cat(stem, "_floats"));
  const std::vector<float> floats(reals.begin(), reals.end());
  return Tensor::of<float>(DType::f32, Shape{std::ssize(floats)}, floats);
}

/// One list is the keys, the other the values; between strings and integers x's type tells which.
struct LabelMap {
  explicit LabelMap(const NodeInfo& node) {
    const Attributes& attributes = node.attributes;
    const bool classes = attributes.has("classes_strings"), mapper = node.op == "ai.onnx.ml.CategoryMapper";
    Tensor keys;
    if (classes || mapper) {
      const std::vector<std::string> texts = texts_of(attributes, classes ? "classes_strings" : "cats_strings");
      std::vector<int64_t> places(texts.size());
      std::iota(places.begin(), places.end(), 0);
      const Tensor strings = packed_strings(Shape{std::ssize(texts)}, texts),
                   ints = Tensor::of_ints(classes ? places : attributes.integers("cats_int64s"));
      const bool of_strings = node.inputs[0].dtype == DType::string;
      keys = of_strings ? strings : ints;
      values = of_strings ? ints : strings;
    } else {
      keys = list_of(attributes, "keys");
      values = list_of(attributes, "values");
    }
    if (keys.elements() != values.elements())
      throw Error(Code::bad_model, cat("there are ", keys.elements(), " keys and ", values.elements(), " values"));
    number(keys);
    set_fallback(attributes);
  }

  Tensor values, fallback;  ///< fallback: one element; strings are packed
  std::unordered_map<uint64_t, size_t> places;
  std::map<std::string, size_t, std::less<>> text_places;

 private:
  /// The first of equal keys counts.
  void number(const Tensor& keys) {
    if (keys.dtype() == DType::string) {
      for (int64_t i = 0; i < keys.elements(); ++i)
        text_places.emplace(packed_string(keys.view(), i), static_cast<size_t>(i));
      return;
    }
    const std::vector<uint64_t> bits = keys_in(keys.view());
    for (size_t i = 0; i < bits.size(); ++i) places.emplace(bits[i], i);
  }
  void set_fallback(const Attributes& attributes) {
    if (const Attribute* found = attributes.find("default_tensor")) {
      const auto* tensor = std::get_if<Tensor>(found);
      if (!tensor || tensor->elements() != 1 || tensor->dtype() != values.dtype())
        throw Error(Code::bad_model, "attribute \"default_tensor\" is not one value of the values' type");
      fallback = *tensor;
      return;
    }
    if (values.dtype() == DType::string) {
      const std::string text = attributes.string("default_string", "_Unused");
      fallback = packed_strings(Shape{1}, std::span(&text, 1));
      return;
    }
    fallback = Tensor(values.dtype(), Shape{1});
    if (is_float(values.dtype())) store_one<double>(fallback.view(), 0, attributes.real("default_float", -0.0));
    else store_one<int64_t>(fallback.view(), 0, attributes.integer("default_int64", -1));
  }
};

/// For each element of x the place of its key among the values, or -1.
std::vector<int64_t> places_of_keys(const KernelCall& call, const LabelMap& map) {
  std::vector<int64_t> out;
  const auto add = [&](const auto& places, const auto& key) {
    const auto found = places.find(key);
    out.push_back(found == places.end() ? -1 : static_cast<int64_t>(found->second));
  };
  const TensorView& x = call.inputs[0];
  if (x.dtype == DType::string)
    for (const uint64_t number : load_all<uint64_t>(x)) add(map.text_places, call.strings->text(number));
  else
    for (const uint64_t key : keys_in(x)) add(map.places, key);
  return out;
}

KernelStatus encode_labels(const KernelCall& call, const LabelMap& map) {
  const TensorView& y = call.outputs[0];
  const std::vector<int64_t> places = places_of_keys(call, map);
  for (size_t i = 0; i < places.size(); ++i) {
    const TensorView from = (places[i] < 0 ? map.fallback : map.values).view();
    const int64_t at = std::max<int64_t>(places[i], 0);
    put_bits(y, static_cast<int64_t>(i), y.dtype == DType::string ? call.strings->number(packed_string(from, at)) : get_bits(from, at));
  }
  return {};
}

/// A float is its integer part; -1 if there is no such integer.
int64_t category_of(double number) {
  constexpr double beyond = 9223372036854775808.0;  // 2^63
  return number > -beyond && number < beyond ? static_cast<int64_t>(number) : -1;
}

struct Categories {
  explicit Categories(const NodeInfo& node)
      : zeros(node.attributes.integer("zeros", 1) != 0) {
    const std::vector<std::string> texts = texts_of(node.attributes, "cats_strings");
    const std::vector<int64_t> list = node.attributes.integers("cats_int64s");
    count = texts.empty() ? list.size() : texts.size();
    // The last of equal ones.
    for (size_t i = 0; i < texts.size(); ++i) text_places.insert_or_assign(texts[i], i);
    for (size_t i = 0; i < list.size(); ++i) places.insert_or_assign(list[i], i);
  }
  /// Its place; `count` for what is no category.
  size_t place(const KernelCall& call, int64_t i) const {
    const TensorView& x = call.inputs[0];
    const auto in = [&](const auto& all, const auto& key) {
      const auto found = all.find(key);
      return found == all.end() ? count : found->second;
    };
    if (x.dtype == DType::string) return in(text_places, call.strings->text(get_bits(x, i)));
    return in(places, is_float(x.dtype) ? category_of(load_one<double>(x, i)) : load_one<int64_t>(x, i));
  }
  size_t count = 0;
  std::unordered_map<int64_t, size_t> places;
  std::map<std::string, size_t, std::less<>> text_places;
  bool zeros;
};

KernelStatus encode_one_hot(const KernelCall& call, const Categories& categories) {
  const TensorView& x = call.inputs[0];
  const size_t count = categories.count;
  std::vector<double> result(static_cast<size_t>(x.elements()) * count);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const size_t place = categories.place(call, i);
    if (place < count) result[static_cast<size_t>(i) * count + place] = 1;
    else if (!categories.zeros) return {KernelCode::bad_value, 0, x.dtype == DType::string ? i : load_one<int64_t>(x, i)};
  }
  store_all(call.outputs[0], result);
  return {};
}

constexpr bool is_string(DType dtype) { return dtype == DType::string; }
constexpr Domain label_types{"f32, f64, i16, i32, i64, string", [](const NodeInfo& node) {
                               return four_types.accepts(node) || first_is(node, is_string) ||
                                      first_is(node, [](DType dtype) { return dtype == DType::i16; });
                             }};
constexpr Domain category_types{"f32, f64, i32, i64, string", [](const NodeInfo& node) {
                                  return four_types.accepts(node) || first_is(node, is_string);
                                }};

}  // namespace

void add_labels(KernelTable& table) {
  add<encode_labels>(table, "ai.onnx.ml.LabelEncoder", label_types);
  add<encode_labels>(table, "ai.onnx.ml.CategoryMapper", category_types);
  add<encode_one_hot>(table, "ai.onnx.ml.OneHotEncoder", category_types);
}

}  // namespace plait::reference
