#include "core/base/load_progress.h"

#include <algorithm>

#include "core/base/error.h"

namespace plait {

void LoadProgress::stage(double until, int64_t units) {
  check();
  from_ = fraction_;
  until_ = std::clamp(until, from_, 1.0);
  units_ = std::max<int64_t>(units, 1);
  done_ = 0;
}

void LoadProgress::advance(int64_t units) {
  check();
  done_ = std::min(done_ + units, units_);
  fraction_ = from_ + (until_ - from_) * (static_cast<double>(done_) / static_cast<double>(units_));
}

void LoadProgress::check() const {
  if (cancelled_) throw Error(Code::cancelled, "the loading was cancelled");
}

}  // namespace plait
