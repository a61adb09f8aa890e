#include "bindings/cli/json_tensor.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

namespace plait::cli {
namespace {

/// The elements in order, and the lengths of the lists around them.
class JsonElements {
 public:
  JsonElements(const nlohmann::json& value, const std::string& operand) : operand_(operand) {
    for (const nlohmann::json* list = &value; list->is_array(); list = &list->front()) {
      dims_.push_back(static_cast<int64_t>(list->size()));
      if (list->empty()) break;
    }
    add(value, 0);
  }
  const std::vector<int64_t>& dims() const { return dims_; }
  const std::vector<const nlohmann::json*>& list() const { return list_; }

 private:
  void add(const nlohmann::json& value, size_t depth) {
    if (value.is_array() != (depth < dims_.size()) ||
        (value.is_array() && static_cast<int64_t>(value.size()) != dims_[depth]))
      throw UsageError("input " + operand_ + ": lists of one depth have different lengths");
    if (!value.is_array()) return list_.push_back(&value);
    for (const nlohmann::json& one : value) add(one, depth + 1);
  }
  const std::string& operand_;
  std::vector<int64_t> dims_;
  std::vector<const nlohmann::json*> list_;
};

[[noreturn]] void refuse_json(const std::string& operand, const nlohmann::json& value, const char* expected) {
  throw UsageError("input " + operand + ": " + value.dump() + " is no " + expected);
}

template <class T>
plait_api::Tensor json_numbers(plait_dtype dtype, const JsonElements& elements, const std::string& operand) {
  std::vector<T> out;
  for (const nlohmann::json* value : elements.list()) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!value->is_number()) refuse_json(operand, *value, "number");
      out.push_back(value->get<T>());
    } else {
      const bool fits = value->is_number_unsigned()
                            ? value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max())
                            : value->is_number_integer() && std::is_signed_v<T> &&
                                  value->get<int64_t>() >= static_cast<int64_t>(std::numeric_limits<T>::min());
      if (!fits) refuse_json(operand, *value, "integer of the input's type");
      out.push_back(value->get<T>());
    }
  }
  return plait_api::Tensor::copy(dtype, elements.dims(), out.data(), static_cast<int64_t>(out.size() * sizeof(T)));
}

}  // namespace

bool is_json(const std::string& text) {
  return !text.empty() &&
         (text[0] == '[' || text[0] == '"' || text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) &&
         nlohmann::json::accept(text) && !std::filesystem::exists(text);
}

plait_api::Tensor tensor_of_json(const std::string& text, plait_dtype dtype, const std::string& operand) {
  const nlohmann::json value = nlohmann::json::parse(text);
  const JsonElements elements(value, operand);
  switch (dtype) {
    case PLAIT_F32: return json_numbers<float>(dtype, elements, operand);
    case PLAIT_F64: return json_numbers<double>(dtype, elements, operand);
    case PLAIT_I64: return json_numbers<int64_t>(dtype, elements, operand);
    case PLAIT_I32: return json_numbers<int32_t>(dtype, elements, operand);
    case PLAIT_I16: return json_numbers<int16_t>(dtype, elements, operand);
    case PLAIT_I8: return json_numbers<int8_t>(dtype, elements, operand);
    case PLAIT_U64: return json_numbers<uint64_t>(dtype, elements, operand);
    case PLAIT_U32: return json_numbers<uint32_t>(dtype, elements, operand);
    case PLAIT_U16: return json_numbers<uint16_t>(dtype, elements, operand);
    case PLAIT_U8: return json_numbers<uint8_t>(dtype, elements, operand);
    case PLAIT_STRING: {
      std::vector<std::string> out;
      for (const nlohmann::json* one : elements.list()) {
        if (!one->is_string()) refuse_json(operand, *one, "string");
        out.push_back(one->get<std::string>());
      }
      return plait_api::Tensor::of_strings(out, elements.dims());
    }
    case PLAIT_BOOL: {
      std::vector<uint8_t> out;
      for (const nlohmann::json* one : elements.list()) {
        if (!one->is_boolean()) refuse_json(operand, *one, "boolean");
        out.push_back(one->get<bool>());
      }
      return plait_api::Tensor::copy(dtype, elements.dims(), out.data(), static_cast<int64_t>(out.size()));
    }
    default: throw UsageError("input " + operand + ": its type is not written as JSON; use an .npy file");
  }
}

}  // namespace plait::cli
