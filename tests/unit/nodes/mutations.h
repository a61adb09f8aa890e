#pragma once
// Dims rules that lack one flag, and who notices. A flag that may be dropped unseen is needless, or not tested.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/nodes/sharded.h"

namespace plait::test {

struct Mutation {
  enum class Kind {
    brackets,   ///< a factor need not be whole, wherever it stands: one pair of brackets is enough to keep it so
    offset,     ///< kernels are not told of an "@" factor's offset
    linearity,  ///< an operand's "*" or "+" is lost
    extra,      ///< an operand has a "*" more
    all         ///< a result does not owe what others have
  };
  Kind kind;
  std::string what;  ///< "[k]", "@v", "* of input 0", "no * of input 1"
  DimsRule rule;
};
std::vector<Mutation> mutations(const DimsRule& rule);

/// What became of each mutation of each rule.
class Mutants {
 public:
  struct Fate {
    Mutation::Kind kind;
    int more = 0;       ///< placements, and sums that pass, beyond those of the rule
    int wrong = 0;      ///< results that were not those of the whole
    bool less = false;  ///< fewer of them, which the counts in goldens/ show
    /// "wrong results", "fewer placements", or why no test notices.
    const char* seen_by() const;
    bool survives() const { return !wrong && !less; }
  };

  /// Runs a node with each mutation of its rule on each of the meshes.
  void run(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands,
           const std::vector<std::string>& meshes, double slack);
  /// "op | rule | mutation | seen by", a line each. With PLAIT_MUTATIONS in the environment all of them are added to the
  /// file of that name.
  std::string survivors() const;

 private:
  std::string line(const std::tuple<std::string, std::string, std::string>& key, const Fate& fate) const;

  std::map<std::tuple<std::string, std::string, std::string>, Fate> fates_;
};

}  // namespace plait::test
