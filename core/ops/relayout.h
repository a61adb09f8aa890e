#pragma once
// The dims rule of ops that keep the elements' order: compound factors from the dims before and after.
#include <string>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// The rule of operand 0 -> result 0, both row-major orders of the same elements: `*b s (g d) -> b s g d`. Other
/// operands (axes, shapes) are whole. Dims whose factors the sizes do not show (6 4 -> 4 6, or different symbols) are
/// whole on both sides. "" if the dims are unknown.
std::string relayout_rule(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out);

}  // namespace plait
