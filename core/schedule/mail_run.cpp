#include "core/schedule/mail_run.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

void MailRun::wake(int32_t rank) {
  Rank& one = ranks_[index(rank)];
  if (one.queued || is_done(rank)) return;
  one.queued = true;
  queue_.push_back(rank);
}

bool MailRun::finishes(int32_t places) {
  places_ = places;
  most_aside_ = 0;
  pairs_.assign(plan_.pairs.size(), {});
  ranks_.assign(plan_.ranks.size(), {});
  present_.assign(plan_.meetings.size(), {});
  for (size_t rank = 0; rank < ranks_.size(); ++rank) wake(static_cast<int32_t>(rank));
  while (!queue_.empty()) {
    const int32_t rank = queue_.back();
    queue_.pop_back();
    ranks_[index(rank)].queued = false;
    while (!is_done(rank) && step(rank)) ++ranks_[index(rank)].at;
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!is_done(static_cast<int32_t>(rank))) return false;
  return true;
}

/// False if the rank has to wait.
bool MailRun::step(int32_t rank) {
  const MailOp& op = next(rank);
  switch (op.what) {
    case MailOp::What::run: return true;
    case MailOp::What::take: return take(rank, op);
    case MailOp::What::give: return give(op);
    case MailOp::What::arrive: return arrive(rank, op);
  }
  return true;
}

bool MailRun::take(int32_t rank, const MailOp& op) {
  Pair& pair = pairs_[index(op.pair)];
  Rank& own = ranks_[index(rank)];
  const int32_t sender = plan_.pairs[index(op.pair)].from;
  if (op.number < pair.taken) {  // set aside before
    if (places_) --own.aside;
    return true;
  }
  if (!places_) {  // the sender completes it: see give()
    wake(sender);
    return false;
  }
  // It takes what comes before, too, and sets it aside.
  const int32_t upto = std::min(pair.given, op.number + 1);
  const bool come = pair.given > op.number;
  own.aside += upto - pair.taken - come;
  most_aside_ = std::max(most_aside_, own.aside);
  if (upto > pair.taken) wake(sender);
  pair.taken = upto;
  return come;
}

bool MailRun::give(const MailOp& op) {
  Pair& pair = pairs_[index(op.pair)];
  const int32_t receiver = plan_.pairs[index(op.pair)].to;
  if (!places_) {
    const bool wanted = !is_done(receiver) && next(receiver).what == MailOp::What::take &&
                        next(receiver).pair == op.pair && next(receiver).number == op.number;
    if (!wanted) return false;
    pair.given = pair.taken = op.number + 1;
  } else {
    if (pair.given - pair.taken >= places_) return false;
    ++pair.given;
  }
  wake(receiver);
  return true;
}

bool MailRun::arrive(int32_t rank, const MailOp& op) {
  auto& present = present_[index(op.pair)];
  if (std::find(present.begin(), present.end(), rank) == present.end()) {
    present.push_back(rank);
    if (static_cast<int32_t>(present.size()) == plan_.meetings[index(op.pair)].seats)
      for (const int32_t other : present) wake(other);
  }
  return static_cast<int32_t>(present.size()) == plan_.meetings[index(op.pair)].seats;
}

/// The rank that a waiting rank waits for.
int32_t MailRun::awaited(int32_t rank) const {
  const MailOp& op = next(rank);
  if (op.what == MailOp::What::take) return plan_.pairs[index(op.pair)].from;
  if (op.what == MailOp::What::give) return plan_.pairs[index(op.pair)].to;
  // A meeting: another rank that has not arrived, and so waits elsewhere.
  const auto& present = present_[index(op.pair)];
  for (size_t other = 0; other < ranks_.size(); ++other) {
    const auto one = static_cast<int32_t>(other);
    if (is_done(one) || std::find(present.begin(), present.end(), one) != present.end()) continue;
    const auto& ops = plan_.ranks[other];
    if (std::any_of(ops.begin(), ops.end(),
                    [&](const MailOp& its) { return its.what == MailOp::What::arrive && its.pair == op.pair; }))
      return one;
  }
  return rank;
}

std::string MailRun::cycle(const Schedule& schedule) const {
  int32_t rank = 0;
  while (is_done(rank)) ++rank;
  std::vector<int32_t> path;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    rank = awaited(rank);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
  auto action = [&](int32_t of, int32_t position) { return schedule.ranks[index(of)][index(position)].text(); };
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const MailOp& op = next(path[i]);
    const std::string own = action(path[i], op.position);
    append(out, i ? ", which " : cat("rank ", path[i], ", action ", op.position, " (", own, "), "));
    if (op.what == MailOp::What::take) {
      const MailPair& pair = plan_.pairs[index(op.pair)];
      append(out, cat("waits for ", action(pair.from, pair.makers[index(op.number)]), " of rank ", pair.from));
    } else if (op.what == MailOp::What::give) {
      append(out, cat("waits for a place to send ", own, " to rank ", plan_.pairs[index(op.pair)].to));
    } else {
      append(out, cat("waits for ", own, " of rank ", awaited(path[i])));
    }
  }
  return out;
}

}  // namespace plait
