#pragma once
// Means that follow what is measured.

namespace plait {

inline constexpr double moving_weight = 1.0 / 8;

/// The exponential moving mean of a quantity; 0: not known, so the first value is the mean.
inline void follow(double& mean, double value) { mean = mean > 0 ? mean + moving_weight * (value - mean) : value; }

/// The share of events that are so, from a share that is assumed at first: 0 is a share like others.
inline void follow_share(double& share, double value) { share += moving_weight * (value - share); }

}  // namespace plait
