#pragma once
// The attributes of a node: named constants of a few kinds, those of ONNX without subgraphs (a node holds these
// itself). Read by shape rules and, once, by a kernel's `prepare`; never in a hot loop.
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, Tensor>;

/// "int", "float", "string", "ints", "floats", "strings", "tensor".
std::string_view attribute_kind(const Attribute& attribute);

/// Ordered by name, so that two equal nodes print alike.
class Attributes {
 public:
  bool has(std::string_view name) const { return items_.find(name) != items_.end(); }
  void set(std::string name, Attribute value) { items_.insert_or_assign(std::move(name), std::move(value)); }
  void erase(std::string_view name);
  const Attribute* find(std::string_view name) const;

  /// The value, or `fallback` when absent. Throw Error(bad_model) when the attribute is of another kind.
  int64_t integer(std::string_view name, int64_t fallback) const;
  double real(std::string_view name, double fallback) const;  ///< an int reads as a float
  std::string string(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> integers(std::string_view name) const;  ///< empty when absent
  /// Throws Error(bad_model) when absent.
  int64_t integer(std::string_view name) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }

 private:
  std::map<std::string, Attribute, std::less<>> items_;
};

}  // namespace plait
