#pragma once
// Numbers with units, as people write them: "80 GiB", "200 Gb/s", "5 us", "312 TFLOP/s".
#include <string>
#include <string_view>

namespace plait {

enum class Unit { bytes, bytes_per_second, flops_per_second, seconds, count };

/// The number in bytes, bytes a second, floating point operations a second, or seconds, or as it is (count). Prefixes: n, u, m of seconds;
/// k, M, G, T, P (powers of 1000) and Ki, Mi, Gi, Ti (of 1024) of the others. "b" is a bit, "B" a byte.
/// Throws Error(invalid_argument) for text that is no such quantity, with the units that fit, and for one that is negative or not
/// finite.
double parse_quantity(std::string_view text, Unit unit);

/// The inverse, rounded to four digits.
std::string quantity_text(double value, Unit unit);

}  // namespace plait
