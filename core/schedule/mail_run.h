#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/schedule/mail_plan.h"

namespace plait {

/// Runs a plan without time: whether it finishes, with how many places, and who waits for whom if it does not.
class MailRun {
 public:
  explicit MailRun(const MailPlan& plan) : plan_(plan) {}

  static constexpr int32_t no_limit = INT32_MAX;
  /// `places`: untaken messages that a pair may have; 0: a send waits until its receiver takes that message next.
  bool finishes(int32_t places);
  /// Of the last run: the most messages that a rank had set aside.
  int32_t set_aside() const { return most_aside_; }
  /// Of the last run, which did not finish: ranks that wait for each other.
  std::string cycle(const Schedule& schedule) const;

 private:
  struct Pair {
    int32_t given = 0, taken = 0;
  };
  struct Rank {
    size_t at = 0;
    int32_t aside = 0;
    bool queued = false;
  };
  bool step(int32_t rank);
  bool take(int32_t rank, const MailOp& op);
  bool give(const MailOp& op);
  bool arrive(int32_t rank, const MailOp& op);
  bool is_done(int32_t rank) const { return ranks_[index(rank)].at == plan_.ranks[index(rank)].size(); }
  const MailOp& next(int32_t rank) const { return plan_.ranks[index(rank)][ranks_[index(rank)].at]; }
  void wake(int32_t rank);
  int32_t awaited(int32_t rank) const;
  static size_t index(int32_t i) { return static_cast<size_t>(i); }

  const MailPlan& plan_;
  int32_t places_ = no_limit;
  int32_t most_aside_ = 0;
  std::vector<Pair> pairs_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<int32_t>> present_;  ///< by meeting: the ranks that have arrived
  std::vector<int32_t> queue_;                 ///< ranks that may be able to move
};

}  // namespace plait
