#pragma once
// Sizes of ops that slide a window over space: convolution and pooling.
#include "core/graph/schema.h"

namespace plait {

/// Entry `i` of a list attribute with one entry per space dim; `fallback` if the list is absent.
inline int64_t listed(const std::vector<int64_t>& list, size_t i, int64_t fallback) {
  return i < list.size() ? list[i] : fallback;
}

/// The number of windows of `kernel` along space dim `i` of `space`, by the attributes strides, dilations, pads, auto_pad and
/// ceil_mode: (n + pads - reach) / stride + 1, rounded down, or up if the last window begins before the trailing padding.
/// SAME_* pads to ceil(n / stride). nullopt if it is data-dependent. Throws Error(bad_model).
std::optional<Dim> window_count(InferContext& context, const Dim& size, const Dim& kernel, size_t i, size_t space);

/// The size along space dim `i` of what windows scatter into (ConvTranspose, MaxUnpool): stride (n - 1) + reach - pads +
/// output_padding; SAME_* gives n stride.
Dim unpooled_size(InferContext& context, const Dim& size, const Dim& kernel, size_t i, size_t space);

/// Throws Error(bad_model) unless the list attribute is absent or has `count` entries of at least `least`.
void check_list(const InferContext& context, std::string_view name, size_t count, int64_t least);

/// " [x3] [x4]": `count` whole dims, from number `first`.
std::string space_dims(size_t first, size_t count);

}  // namespace plait
