#include "core/generate/engine.h"

namespace plait {

int64_t Sequence::next_position(GivenList given) const {
  for (; counted_ < tokens_.size(); ++counted_) advanced_ += place_of(given, tokens_[counted_]).advance;
  return prefix() + advanced_;
}

}  // namespace plait
