#include "core/graph/roles.h"

#include <array>

namespace plait {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool of_encoder(const Value& input) { return contains(input.name, "encoder") || contains(input.name, "cross"); }

}  // namespace

std::vector<std::string> present_names(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> habits = {
      {{"past_key_values", "present"},
       {"past_key_values", "present_key_values"},
       {"past", "present"},
       {"input.", "output."},
       {"input.", ""}}};
  std::vector<std::string> out;
  for (const auto& [from, to] : habits)
    if (size_t at = name.find(from); at != std::string::npos) {
      std::string present = name;
      present.replace(at, from.size(), to);
      out.push_back(std::move(present));
    }
  return out;
}

bool is_encoded(const Value& input) {
  return of_encoder(input) && is_float(input.type.dtype) && input.type.dims && input.type.dims->size() >= 3;
}

bool is_encoded_mask(const Value& input) {
  return of_encoder(input) && contains(input.name, "mask") && !is_encoded(input);
}

}  // namespace plait
