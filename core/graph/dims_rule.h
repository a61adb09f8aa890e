#pragma once
// The dims rule: one string per op that names every dimension. Sharding, local shapes, FLOP counts, the gradients of
// multilinear ops and the tests that run every legal sharding all read it in the parsed form below.
//
//   rule    := [operand ("," operand)*] "->" result ("," result)*
//   operand := ["*" | "+"] dim*        "*": the op is linear in this operand alone, the others held;
//                                      "+": linear in all "+" operands together (a sum, not a product)
//   result  := dim* ["{" kind "}"]     what is pending where a factor that no result has was sharded: sum (default), max,
//                                      min, "=" (equal on all ranks); "all": a sum, where one was that this result
//                                      lacks, also if another has it (the gradient of a weight is a sum over rows)
//   dim     := factor | "(" factor+ ")" | "1" | "..."
//   factor  := name                    may be sharded
//            | "[" name "]"            must be whole here
//            | "@" name                may be sharded: the kernel is told its shard's offset
//            | integer                 fixed size, whole
//            | name "~"                jagged: sizes differ by row, whole, an expected size is given
//
// A compound dim "(g r d)" is the row-major product of its factors. "..." stands for leading or trailing rows of any
// rank, aligned right among the operands, and broadcasts as NumPy does: `expand` replaces it once the operands' dims
// are known. An operand that is absent, or a scalar, is empty text: "..., , -> ...".
// After Mesh-TensorFlow's named dimensions and Shardy's factor rules; einsum is the special case where every operand
// is "*".
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

struct Factor {
  std::string name;     ///< "b"; the digits of a fixed one
  int64_t fixed = 0;    ///< the size of an integer factor, else 0
  bool whole = false;   ///< "[b]", and every fixed or jagged one
  bool offset = false;  ///< "@b"
  bool jagged = false;  ///< "b~"
  bool operator==(const Factor&) const = default;
};

struct RuleDim {
  std::vector<Factor> factors;  ///< in row-major order; none: a dim of size 1, or "..."
  bool ellipsis = false;
  bool operator==(const RuleDim&) const = default;
};

enum class Linearity { none, alone, together };   ///< "", "*", "+"
enum class PendingKind { sum, max, min, equal };  ///< "{sum}", "{max}", "{min}", "{=}"

struct RuleTensor {
  std::vector<RuleDim> dims;
  Linearity linear = Linearity::none;      ///< of operands
  PendingKind pending = PendingKind::sum;  ///< of results
  bool all = false;                        ///< of results: what others have is summed, too
  bool operator==(const RuleTensor&) const = default;
};

struct DimsRule {
  std::vector<RuleTensor> operands;
  std::vector<RuleTensor> results;
  bool operator==(const DimsRule&) const = default;
};

/// Throws Error(invalid_argument) with the rule, the position and what was expected there.
DimsRule parse_dims_rule(std::string_view text);

/// The inverse: parse_dims_rule(text(rule)) == rule, except that a lone empty operand reads back as no operand.
/// "{sum}" is written for scalar results only.
std::string text(const DimsRule& rule);

/// A factor over all its places: whole, offset or jagged if it is so anywhere.
struct FactorUse {
  Factor factor;
  bool in_operands = false;
  bool in_results = false;
  /// Sharded, it leaves results pending.
  bool contracted() const { return in_operands && !in_results; }
};
/// All factors, in order of their first place.
std::vector<FactorUse> factors(const DimsRule& rule);

/// The dims of each operand or result; null where it is absent or its rank is not known.
using DimsList = std::vector<const Dims*>;

/// Replaces "..." by factors. A dim that an operand lacks on the left is absent; a constant size of 1 prints as 1 (a
/// symbol never broadcasts). `operands` has one entry an operand. Throws Error(bad_model) when a rank is too small.
DimsRule expand(const DimsRule& rule, const DimsList& operands);

/// Two sizes that must be one: the constant of the two; of two symbolic ones that whose symbols were made first (the
/// inputs' own symbols come before those made for sizes that inference could not follow). nullopt: two different
/// constants.
std::optional<Dim> unify(const Dim& a, const Dim& b);

using FactorSizes = std::map<std::string, Dim, std::less<>>;

/// The sizes of the factors of an expanded rule. A compound dim gives a factor its size when all others in it have
/// theirs; what cannot be told is left out. Absent dims (null) say nothing. Throws Error(bad_model), naming operand
/// (by `schema`'s names when given), factor and both sizes, on two different constants, and on a rank that is not the
/// rule's.
FactorSizes factor_sizes(const DimsRule& rule, const DimsList& operands, const DimsList& results = {},
                         const OpSchema* schema = nullptr);

/// The dims of result `index`; nullopt when the size of a factor of it is not in `sizes`.
std::optional<Dims> result_dims(const DimsRule& rule, const FactorSizes& sizes, size_t index = 0);

/// Whether `sizes` were found by taking sizes for one that are written differently (see unify): then only a run can tell
/// that they are.
bool takes_for_equal(const DimsRule& rule, const DimsList& operands, const FactorSizes& sizes);

/// Floating point operations of one run: operands are contracted from the left, pair by pair, each pair that shares a
/// factor which no result has costing twice the product of the pair's factors (a multiply and an add; the operands of a
/// sum, "+", are not multiplied), after which factors that nothing to the right needs are gone. So a matmul is 2 b s h f,
/// attention 2 b q g r k (d + e). Ops without such a pair cost one for each element of result 0. Factors without a size
/// count as 1. An upper bound where a kernel skips work (causal masks, pages that are not the segment's).
Dim flops(const DimsRule& rule, const FactorSizes& sizes);

/// Of a rule that is not expanded: the factors that `expand` makes of "..." for which operands have several sizes, none of them
/// a number. Each may be 1, so that the result's size is any of them.
std::vector<std::string> open_rows(const DimsRule& rule, const DimsList& operands);

/// The rule of one node as `rule_of` has it, before it is expanded.
std::optional<DimsRule> written_rule(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                                     const std::vector<Type>& outputs);

/// The rule of one node, expanded, with exactly as many operands and results as the node has inputs and outputs (an
/// absent one is empty). `inputs` and `outputs` are their types, Type{} for absent ones. nullopt when the op has no
/// rule, or when it depends on a rank that is not known: such a node gets whole inputs.
std::optional<DimsRule> rule_of(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                                const std::vector<Type>& outputs);

/// The dims of types, as `expand` and `factor_sizes` take them. The types must outlive the list.
DimsList dims_list(const std::vector<Type>& types);

/// "input 1 (weights)": for messages.
std::string operand_label(const OpSchema* schema, size_t index);

}  // namespace plait
