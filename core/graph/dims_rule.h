#pragma once
// The dims rule: one string per op that names every dimension. Sharding, local shapes, FLOP counts, the gradients of
// multilinear ops and the tests of every legal sharding read it in the parsed form below.
//
//   rule    := [operand ("," operand)*] "->" result ("," result)*
//   operand := ["*" | "+"] dim*        "*": the op is linear in only this operand, with the others fixed;
//                                      "+": linear in all "+" operands together (a sum, not a product)
//   result  := dim* ["{" kind "}"]     how a result is partial when a factor that no result has is sharded: sum
//                                      (default), max, min, "=" (equal on all ranks); "all": a sum, over every factor
//                                      that this result lacks, even if another has it (a weight's gradient sums rows)
//   dim     := factor | "(" factor+ ")" | "1" | "..."
//   factor  := name                    may be sharded
//            | "[" name "]"            must be whole here
//            | "@" name                may be sharded: the kernel gets its shard's offset
//            | integer                 fixed size, whole
//            | name "~"                jagged: sizes differ by row; whole, with an expected size
//
// A compound dim "(g r d)" is the row-major product of its factors. "..." are leading or trailing row dims of any
// rank, aligned right among the operands, which broadcast as in NumPy: `expand` replaces it once the operands' dims
// are known. An absent operand, or a scalar, is empty: "..., , -> ...". After Mesh-TensorFlow's named dimensions and
// Shardy's factor rules; einsum is the special case with "*" on every operand.
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
  int64_t fixed = 0;    ///< the size of an integer factor, otherwise 0
  bool whole = false;   ///< "[b]", and every fixed or jagged one
  bool offset = false;  ///< "@b"
  bool jagged = false;  ///< "b~"
  bool operator==(const Factor&) const = default;
};

struct RuleDim {
  std::vector<Factor> factors;  ///< in row-major order; empty: a dim of size 1, or "..."
  bool ellipsis = false;
  bool operator==(const RuleDim&) const = default;
};

enum class Linearity { none, alone, together };   ///< "", "*", "+"
enum class PendingKind { sum, max, min, equal };  ///< "{sum}", "{max}", "{min}", "{=}"

struct RuleTensor {
  std::vector<RuleDim> dims;
  Linearity linear = Linearity::none;      ///< of operands
  PendingKind pending = PendingKind::sum;  ///< of results
  bool all = false;                        ///< of results: also sums over factors that other results have
  bool operator==(const RuleTensor&) const = default;
};

struct DimsRule {
  std::vector<RuleTensor> operands;
  std::vector<RuleTensor> results;
  bool operator==(const DimsRule&) const = default;
};

/// Throws Error(invalid_argument) with the rule, the position and what was expected there.
DimsRule parse_dims_rule(std::string_view text);

/// The inverse: parse_dims_rule(text(rule)) == rule, except that a single empty operand reads back as no operand.
/// "{sum}" is only written for scalar results.
std::string text(const DimsRule& rule);

/// A factor over all its uses: whole, offset or jagged if any of them is.
struct FactorUse {
  Factor factor;
  bool in_operands = false;
  bool in_results = false;
  /// Sharding it makes results partial.
  bool contracted() const { return in_operands && !in_results; }
};
/// All factors, in order of first use.
std::vector<FactorUse> factors(const DimsRule& rule);

/// The dims of each operand or result; null if it is absent or its rank is unknown.
using DimsList = std::vector<const Dims*>;

/// Replaces "..." by factors. Missing dims on an operand's left are absent; a constant size of 1 prints as 1 (a
/// symbol never broadcasts). `operands` has one entry per operand. Throws Error(bad_model) if a rank is too small.
DimsRule expand(const DimsRule& rule, const DimsList& operands);

/// Unifies two sizes that must be equal: a constant wins; of two symbolic ones that with older symbols (the inputs'
/// own symbols are older than those made for unknown sizes). nullopt for two different constants.
std::optional<Dim> unify(const Dim& a, const Dim& b);

using FactorSizes = std::map<std::string, Dim, std::less<>>;

/// The sizes of an expanded rule's factors. A compound dim determines a factor if all others in it are known; unknown
/// factors are left out. Absent dims (null) are ignored. Throws Error(bad_model), naming operand (by `schema`'s names
/// if given), factor and both sizes, for two different constants, and for a rank other than the rule's.
FactorSizes factor_sizes(const DimsRule& rule, const DimsList& operands, const DimsList& results = {},
                         const OpSchema* schema = nullptr);

/// The dims of result `index`; nullopt if `sizes` lacks one of its factors.
std::optional<Dims> result_dims(const DimsRule& rule, const FactorSizes& sizes, size_t index = 0);

/// Whether `sizes` assume that differently written sizes are equal (see unify), which only a run can confirm.
bool takes_for_equal(const DimsRule& rule, const DimsList& operands, const FactorSizes& sizes);

/// Floating point operations of one run. Operands are contracted from the left, pair by pair; a pair that shares a
/// factor which no result has costs twice the product of the pair's factors (a multiply and an add; operands of a
/// sum, "+", are not multiplied), after which factors that no later operand or result needs are dropped. So a matmul
/// is 2 b s h f, attention 2 b q g r k (d + e). Ops without such a pair cost one per element of result 0. Factors
/// without a size count as 1. An upper bound if a kernel skips work (causal masks, pages of other segments).
Dim flops(const DimsRule& rule, const FactorSizes& sizes);

/// For a rule before expansion: the factors that `expand` makes of "..." for which operands have several symbolic
/// sizes. Each size may be 1, so the result's size is any of them.
std::vector<std::string> open_rows(const DimsRule& rule, const DimsList& operands);

/// The rule of one node as in `rule_of`, before expansion.
std::optional<DimsRule> written_rule(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                                     const std::vector<Type>& outputs);

/// The expanded rule of one node, with exactly as many operands and results as the node has inputs and outputs (an
/// absent one is empty). `inputs` and `outputs` are their types, Type{} for absent ones. nullopt if the op has no
/// rule, or it depends on an unknown rank: such a node gets whole inputs.
std::optional<DimsRule> rule_of(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                                const std::vector<Type>& outputs);

/// The dims of types, as input of `expand` and `factor_sizes`. The types must outlive the list.
DimsList dims_list(const std::vector<Type>& types);

/// "input 1 (weights)", for messages.
std::string operand_label(const OpSchema* schema, size_t index);

}  // namespace plait
