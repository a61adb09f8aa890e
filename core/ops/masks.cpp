// Trilu, CumSum.
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

void register_masks(OpSet& ops) {
  ops.add({.name = "Trilu", .inputs = "input k?", .outputs = "output", .attributes = {{"upper", "int", "1"}},
           .dims = "*... [q] [k], -> ... [q] [k]", .infer = infer_same,
           .doc = "the upper or lower triangle of the last two dims, zeros elsewhere", .since = 14});
  // No rule: its axis is an operand, whose elements rules do not see.
  ops.add({.name = "CumSum", .inputs = "x axis", .outputs = "y",
           .attributes = {{"exclusive", "int", "0"}, {"reverse", "int", "0"}}, .infer = infer_same,
           .doc = "running sums along an axis", .since = 14});
  ops.add({.name = "CumProd", .inputs = "x axis", .outputs = "y",
           .attributes = {{"exclusive", "int", "0"}, {"reverse", "int", "0"}}, .infer = infer_same,
           .doc = "running products along an axis", .since = 26});
}

}  // namespace plait
