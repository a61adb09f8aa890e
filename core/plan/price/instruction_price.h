#pragma once
// What an instruction of a program costs on a machine.
#include <vector>

#include "core/exec/program.h"
#include "core/graph/schema.h"
#include "core/plan/machine/machine.h"

namespace plait {

/// How a program's instructions are counted.
struct PriceTerms {
  const OpSet& ops;
  const Machine& machine;
  /// The type in which the machine multiplies, keeps and sends what the program has as f32; none: as the program has it.
  DType work = DType::none;
  /// Tokens of a sample: attention reads those of its own only. 0: a row is one sample.
  int64_t sequence = 0;
  /// Programs of two data ranks stand for those of so many, each of `tensor` ranks: a group along data has all of them. 0: a
  /// program's groups are as they are. What is sharded over data is then smaller than in the program.
  int64_t data = 0, tensor = 1;
  /// Rows that all tensor ranks have alike, such as norms and residual sums, are cut over them (sequence parallelism, Korthikanti et
  /// al. 2022); collectives then move as many bytes as without. Size of the residual stream; 0: they are not cut.
  int64_t cut_hidden = 0;
  /// Attention's gradient finds scores of the forward pass although the program does not compute them.
  bool scores_kept = false;
};

struct InstructionPrice {
  double flops = 0;  ///< of products
  double bytes = 0;  ///< read and written in memory
  double sent = 0;   ///< bytes that the rank sends, of a collective
  double seconds = 0;
};

/// `sizes`: a value of each of the program's symbols. A product takes max(flops / what the device reaches at its least dim,
/// bytes / bandwidth); flops are those of the op's dims rule. Of causal attention that keeps its scores on the chip half of the
/// products count. Throws Error(invalid_argument) for a type without a peak.
InstructionPrice price_of(const Instruction& instruction, const Program& program, const std::vector<int64_t>& sizes,
                          const PriceTerms& terms);

/// Seconds of a collective among `ranks`, of `bytes` in a rank before all_reduce, reduce_scatter and all_to_all, or after all_gather:
/// what a bandwidth-optimal algorithm sends (Chan et al. 2007), over what the group has of the outermost level that it spans; the
/// ranks of a node that belong to other groups do the same at the same time.
/// Latency counts by the logarithm of the group's size (trees), once to reduce and once to spread.
double collective_seconds(CollectiveKind kind, const std::vector<int32_t>& ranks, double bytes,
                          const Machine& machine);

/// Bytes that a rank sends; `bytes` as above.
double sent_bytes(CollectiveKind kind, size_t ranks, double bytes);

/// Bytes of a buffer, as `terms` count them.
double buffer_bytes(const Buffer& buffer, const std::vector<int64_t>& sizes, const PriceTerms& terms);

/// Bytes of an array of the Store, in the same way.
double entry_bytes(const StoreEntry& entry, const std::vector<int64_t>& sizes, const PriceTerms& terms);

/// A value of each symbol: `tokens` for a row's tokens, `rows` for those with labels or logits, the bound for others.
std::vector<int64_t> symbol_sizes(const Program& program, int64_t tokens, int64_t rows);

}  // namespace plait
