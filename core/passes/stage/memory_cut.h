#pragma once
// Search for a cut into pipeline stages that ranks of limited memory can hold.
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/passes/stage/stage.h"

namespace plait {

/// What a stage takes is known once it is compiled. From cuts that are measured the search estimates their neighbours: weights
/// and cache change with the units, and the rest (workspace, tables) stays.
class MemoryCutSearch {
 public:
  using Cut = std::vector<int64_t>;  ///< units of each stage
  /// By stage, bytes of a rank's weights and cache, of any cut.
  using Holds = std::function<std::vector<double>(const Cut& cut)>;

  /// `limits`: bytes of a rank, by stage.
  MemoryCutSearch(std::vector<StageUnits::Unit> units, std::vector<int64_t> limits, Holds holds)
      : units_(std::move(units)), limits_(std::move(limits)), holds_(std::move(holds)) {}

  /// Notes what the stages of a cut take.
  void add(const Cut& cut, const std::vector<int64_t>& taken);
  /// A cut that was not added, with one border elsewhere than in one that was: of those that should fit the one with the least
  /// largest work, otherwise the one that exceeds a limit least. Nothing if none comes near, or after many.
  std::optional<Cut> next() const;

 private:
  void consider(const Cut& cut, const std::vector<double>& beyond, double& best, std::optional<Cut>& out) const;

  const std::vector<StageUnits::Unit> units_;
  const std::vector<int64_t> limits_;
  const Holds holds_;
  std::map<Cut, std::vector<double>> beyond_;  ///< of added cuts what each stage takes beyond what it holds
};

}  // namespace plait
