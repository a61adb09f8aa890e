#include "core/passes/stage/memory_cut.h"

#include <algorithm>
#include <numeric>

namespace plait {

void MemoryCutSearch::add(const Cut& cut, const std::vector<int64_t>& taken) {
  const std::vector<double> held = holds_(cut);
  std::vector<double>& beyond = beyond_[cut];
  for (size_t stage = 0; stage < cut.size(); ++stage)
    beyond.push_back(static_cast<double>(taken[stage]) - held[stage]);
}

std::optional<MemoryCutSearch::Cut> MemoryCutSearch::next() const {
  constexpr size_t most = 24;
  if (beyond_.size() >= most) return std::nullopt;
  double best = 0;
  std::optional<Cut> out;
  for (const auto& [cut, beyond] : beyond_)
    for (size_t left = 0; left + 1 < cut.size(); ++left) {
      const int64_t both = cut[left] + cut[left + 1];
      for (int64_t count = 1; count < both; ++count) {
        Cut other = cut;
        other[left] = count;
        other[left + 1] = both - count;
        const int64_t border =
            std::accumulate(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(left) + 1, int64_t{0});
        if (!units_[static_cast<size_t>(border)].joined) consider(other, beyond, best, out);
      }
    }
  return out;
}

void MemoryCutSearch::consider(const Cut& cut, const std::vector<double>& beyond, double& best,
                               std::optional<Cut>& out) const {
  constexpr double hopeless = 1.5;  // of an estimate
  if (beyond_.contains(cut)) return;
  const std::vector<double> held = holds_(cut);
  double use = 0, work = 0, all = 0;
  for (const StageUnits::Unit& unit : units_) all += unit.work;
  size_t unit = 0;
  for (size_t stage = 0; stage < cut.size(); ++stage) {
    double of_stage = 0;
    for (int64_t count = 0; count < cut[stage]; ++count) of_stage += units_[unit++].work;
    work = std::max(work, of_stage);
    use = std::max(use, (held[stage] + beyond[stage]) / static_cast<double>(limits_[stage]));
  }
  if (use > hopeless) return;
  const double cost = use > 1 ? 1 + use : work / std::max(all, 1.0);  // fitting ones first, by work
  if (out && cost >= best) return;
  best = cost;
  out = cut;
}

}  // namespace plait
