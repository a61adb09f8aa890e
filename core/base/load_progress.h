#pragma once
// How far a load has come, and the wish that it end.
#include <atomic>
#include <cstdint>

namespace plait {

/// One thread loads and reports; any thread may look, or cancel. The whole is cut into stages, whose shares of it are
/// estimates; within a stage the fraction grows with the work done. It never falls.
class LoadProgress {
 public:
  /// What is done next takes the load up to the share `until` (0 to 1), in `units` equal parts. Throws like `check`.
  void stage(double until, int64_t units);
  /// `units` parts of the stage are done; more than it has count for nothing. Throws like `check`.
  void advance(int64_t units = 1);
  /// Throws Error(cancelled) once the load was cancelled. Long loops call it.
  void check() const;

  double fraction() const { return fraction_; }
  void cancel() { cancelled_ = true; }

 private:
  // The loading thread's alone.
  double from_ = 0, until_ = 0;
  int64_t units_ = 1, done_ = 0;

  std::atomic<double> fraction_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace plait
