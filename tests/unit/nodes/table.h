#pragma once
// docs/ops.md: what Plait claims of the standard, as a table.
#include <map>
#include <string>
#include <vector>

#include "core/graph/schema.h"
#include "core/passes/base/pass.h"

namespace plait::test {

/// Node tests, of all and by op: those within the claims, and those there are.
struct Count {
  int claimed = 0, all = 0;
};
struct CaseCounts {
  Count cases;
  std::map<std::string, Count> by_op;  ///< ops of the standard's own domain
  std::map<std::string, int> refused;  ///< refused cases by what they need: an op that is not claimed, or strings
};

/// Counted from the cases at hand.
CaseCounts count_cases(const CompileOptions& options);

/// The counts that a table states; what it does not state is 0.
CaseCounts counts_in(const std::string& table);

/// The whole of docs/ops.md.
std::string ops_table(const OpSet& ops, const CaseCounts& counts);

/// The part about com.microsoft.
std::string microsoft_table(const OpSet& ops);
/// Ops of that part that are neither in the schema nor missing for a stated reason, or both.
std::vector<std::string> faults_of_microsoft_table(const OpSet& ops);

}  // namespace plait::test
