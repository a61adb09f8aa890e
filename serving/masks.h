#pragma once
// What grammars allow next, computed on a thread of its own while the engine runs a step.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "core/text/constraint.h"

namespace plait {

/// A sample's state in its grammar. Its owner is one thread, which leaves it to MaskThread between `order` and `take`.
struct MaskState {
  explicit MaskState(Constraint start) : constraint(std::move(start)) {}

  Constraint constraint;

 private:
  friend class MaskThread;
  enum class Phase { here, ordered, computing, done };
  Phase phase = Phase::here;  ///< with MaskThread's mutex
  NextTokens next;
  std::optional<Error> error;
};

struct MaskStats {
  int64_t masks = 0;        ///< states whose next tokens were computed
  double seconds = 0;       ///< computing them
  double wait_seconds = 0;  ///< of the thread that takes them: what the step did not hide
};

/// The thread begins with the first order. One thread orders and takes.
class MaskThread {
 public:
  MaskThread() = default;
  ~MaskThread();

  /// The state is not touched until it is taken.
  void order(const std::shared_ptr<MaskState>& state);
  /// The state's next tokens: at once if they are computed, by this thread if the other has not begun with them. May be called
  /// without an order. Throws Constraint::next's error.
  const NextTokens& take(const std::shared_ptr<MaskState>& state);
  MaskStats stats() const;

 private:
  void loop();
  void compute(MaskState& state);

  mutable std::mutex mutex_;
  std::condition_variable ordered_, done_;
  std::deque<std::shared_ptr<MaskState>> queue_;
  bool stopping_ = false;
  MaskStats stats_;
  std::thread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
