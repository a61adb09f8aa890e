#include "core/base/attributes.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

std::string_view attribute_kind(const Attribute& attribute) {
  static constexpr std::string_view kinds[] = {"int", "float", "string", "ints", "floats", "strings", "tensor"};
  return kinds[attribute.index()];
}

void Attributes::erase(std::string_view name) {
  auto found = items_.find(name);
  if (found != items_.end()) items_.erase(found);
}

const Attribute* Attributes::find(std::string_view name) const {
  auto found = items_.find(name);
  return found == items_.end() ? nullptr : &found->second;
}

template <class Kind>
static const Kind* typed(const Attribute* attribute, std::string_view name, std::string_view expected) {
  if (!attribute) return nullptr;
  if (auto* value = std::get_if<Kind>(attribute)) return value;
  throw Error(Code::bad_model,
              cat("attribute ", quote(name), " is of kind ", attribute_kind(*attribute), ", expected ", expected));
}

int64_t Attributes::integer(std::string_view name, int64_t fallback) const {
  auto* value = typed<int64_t>(find(name), name, "int");
  return value ? *value : fallback;
}

int64_t Attributes::integer(std::string_view name) const {
  auto* value = typed<int64_t>(find(name), name, "int");
  if (!value) throw Error(Code::bad_model, cat("attribute ", quote(name), " is missing"));
  return *value;
}

double Attributes::real(std::string_view name, double fallback) const {
  const Attribute* found = find(name);
  if (found && std::holds_alternative<int64_t>(*found)) return static_cast<double>(std::get<int64_t>(*found));
  auto* value = typed<double>(found, name, "float");
  return value ? *value : fallback;
}

std::string Attributes::string(std::string_view name, std::string_view fallback) const {
  auto* value = typed<std::string>(find(name), name, "string");
  return value ? *value : std::string(fallback);
}

std::vector<int64_t> Attributes::integers(std::string_view name) const {
  auto* value = typed<std::vector<int64_t>>(find(name), name, "ints");
  return value ? *value : std::vector<int64_t>{};
}

}  // namespace plait
