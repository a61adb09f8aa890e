#pragma once
// Shared by layer normalisations of all domains.
#include <string>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// `dims` with 1 from `axis` on: of means and inverse deviations.
Dims statistics_dims(const Dims& dims, int64_t axis);

/// The rule of an op that normalises input 0 from `axis` on: those dims are whole. Inputs before `same_as_first` have
/// input 0's dims (a skip), the others are aligned right with it (scale, bias), the first of them with `linear_scale`
/// before it. Result 0 is like input 0, others are statistics.
std::string normalized_dims(const std::vector<Type>& in, int64_t axis, size_t same_as_first, const char* linear_scale,
                            size_t outputs);

}  // namespace plait
