#pragma once
// Progress and cancellation of a load.
#include <atomic>
#include <cstdint>

namespace plait {

/// One thread loads and reports; any thread may read or cancel. Loading is divided into stages with estimated shares;
/// within a stage the fraction is proportional to the work done. It never decreases.
class LoadProgress {
 public:
  /// Starts a stage that ends at the fraction `until` (0 to 1), in `units` equal parts. Throws like `check`.
  void stage(double until, int64_t units);
  /// Completes `units` parts of the stage; excess ones are ignored. Throws like `check`.
  void advance(int64_t units = 1);
  /// Throws Error(cancelled) if cancelled. Long loops call it.
  void check() const;

  double fraction() const { return fraction_; }
  void cancel() { cancelled_ = true; }

 private:
  // The loading thread only.
  double from_ = 0, until_ = 0;
  int64_t units_ = 1, done_ = 0;

  std::atomic<double> fraction_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace plait
