#include "core/plan/machine/quantity.h"

#include <cmath>
#include <cstdio>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

struct Prefix {
  std::string_view text;
  double factor;
};
constexpr Prefix no_prefix[] = {{"", 1}};
constexpr Prefix small_prefixes[] = {{"", 1}, {"m", 1e-3}, {"u", 1e-6}, {"n", 1e-9}};
constexpr Prefix large_prefixes[] = {
    {"", 1},     {"k", 1e3},     {"M", 1e6},        {"G", 1e9},           {"T", 1e12},
    {"P", 1e15}, {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0}};

struct UnitRow {
  Unit unit;
  std::string_view text, bits;  ///< `bits`: the same in bits; "" if there is none
  std::string_view examples;
};
constexpr UnitRow units[] = {{Unit::bytes, "B", "", "\"80 GB\", \"80 GiB\""},
                             {Unit::bytes_per_second, "B/s", "b/s", "\"2 TB/s\", \"200 Gb/s\""},
                             {Unit::flops_per_second, "FLOP/s", "", "\"312 TFLOP/s\""},
                             {Unit::seconds, "s", "", "\"5 us\", \"0.1 ms\""},
                             {Unit::count, "", "", "\"512\""}};

const UnitRow& row_of(Unit unit) { return units[static_cast<size_t>(unit)]; }

std::span<const Prefix> prefixes_of(Unit unit) {
  if (unit == Unit::count) return no_prefix;
  if (unit == Unit::seconds) return small_prefixes;
  return large_prefixes;
}

}  // namespace

double parse_quantity(std::string_view text, Unit unit) {
  const UnitRow& row = row_of(unit);
  const std::string_view all = trimmed(text);
  const size_t end = std::min(all.find_first_not_of("0123456789.eE+-"), all.size());
  double number = 0;
  const std::string_view name = trimmed(all.substr(end));
  if (parse_double(all.substr(0, end), number) && std::isfinite(number) && number >= 0)
    for (const Prefix& prefix : prefixes_of(unit)) {
      if (name == cat(prefix.text, row.text)) return number * prefix.factor;
      if (!row.bits.empty() && name == cat(prefix.text, row.bits)) return number * prefix.factor / 8;
    }
  throw Error(Code::invalid_argument,
              cat(quote(text), " is no number", unit == Unit::count ? "" : " with a unit of ", row.text),
              cat("for example ", row.examples));
}

std::string quantity_text(double value, Unit unit) {
  const UnitRow& row = row_of(unit);
  Prefix best{"", 1};
  for (const Prefix& prefix : prefixes_of(unit)) {
    if (prefix.text.size() > 1) continue;  // powers of 1024
    const bool fits = value >= prefix.factor;
    const bool closer = best.factor > value || prefix.factor > best.factor;
    if (value > 0 && ((fits && closer) || (best.factor > value && prefix.factor < best.factor))) best = prefix;
  }
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.4g", value / best.factor);
  return unit == Unit::count ? digits : cat(digits, " ", best.text, row.text);
}

}  // namespace plait
