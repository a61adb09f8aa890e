#include "importers/decoder/yarn.h"

#include <algorithm>
#include <cmath>

namespace plait::decoder {

void set_yarn(Rope& rope, const Yarn& yarn) {
  const auto dims = static_cast<double>(rope.dims);
  const auto place = [&](double turns) {
    return dims * std::log(yarn.context / (turns * 2 * M_PI)) / (2 * std::log(rope.base));
  };
  double low = place(yarn.fast), high = place(yarn.slow);
  if (yarn.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  rope.factors.clear();
  for (int64_t i = 0; i < rope.dims / 2; ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    rope.factors.push_back(static_cast<float>(1 / (divided / yarn.factor + 1 - divided)));
  }
}

double yarn_amplitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

}  // namespace plait::decoder
