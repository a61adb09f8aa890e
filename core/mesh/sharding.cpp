#include "core/mesh/sharding.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

Sharding Sharding::cut(size_t rank, size_t dim, AxisList axes) {
  Sharding out = replicated(rank);
  out.dims[dim] = std::move(axes);
  return out;
}

bool Sharding::is_replicated() const {
  return pending.empty() && std::all_of(dims.begin(), dims.end(), [](const AxisList& dim) { return dim.empty(); });
}

bool Sharding::owes(AxisId axis) const {
  return std::any_of(pending.begin(), pending.end(), [&](const Pending& one) { return one.axis == axis; });
}

AxisList Sharding::axes() const {
  AxisList out;
  for (const AxisList& dim : dims) out.insert(out.end(), dim.begin(), dim.end());
  return out;
}

namespace {

constexpr std::pair<PendingKind, std::string_view> kinds[] = {
    {PendingKind::sum, "sum"}, {PendingKind::max, "max"}, {PendingKind::min, "min"}, {PendingKind::equal, "="}};

}  // namespace

std::string text(const Sharding& sharding, const Mesh& mesh) {
  std::vector<std::string> dims;
  for (const AxisList& dim : sharding.dims) dims.push_back(mesh.text(dim));
  std::string out = cat("[", join(dims, ", "), "]");
  for (const auto& [kind, name] : kinds) {
    AxisList owed;
    for (const Pending& one : sharding.pending)
      if (one.kind == kind) owed.push_back(one.axis);
    if (!owed.empty()) out += cat(" ", name, "(", mesh.text(owed), ")");
  }
  return out;
}

Sharding parse_sharding(std::string_view text, const Mesh& mesh) {
  auto malformed = [&] {
    return Error(Code::invalid_argument, cat("a sharding reads ", quote(text)),
                 "expected one like \"[data, -, tensor] sum(tensor)\"");
  };
  Sharding out;
  std::string_view rest = trimmed(text);
  const size_t close = rest.find(']');
  if (rest.empty() || rest[0] != '[' || close == std::string_view::npos) throw malformed();
  if (const std::string_view inner = rest.substr(1, close - 1); !trimmed(inner).empty())
    for (const std::string& dim : split(inner, ',')) out.dims.push_back(mesh.parse_axes(dim));
  for (rest = trimmed(rest.substr(close + 1)); !rest.empty();) {
    const size_t begin = rest.find('('), end = rest.find(')');
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) throw malformed();
    const std::string_view name = trimmed(rest.substr(0, begin));
    const auto* kind =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& row) { return row.second == name; });
    if (kind == std::end(kinds)) throw malformed();
    for (AxisId axis : mesh.parse_axes(rest.substr(begin + 1, end - begin - 1)))
      out.pending.push_back({axis, kind->first});
    rest = trimmed(rest.substr(end + 1));
  }
  std::sort(out.pending.begin(), out.pending.end(),
            [](const Pending& a, const Pending& b) { return a.axis < b.axis; });
  AxisList all = out.axes();
  for (const Pending& one : out.pending) all.push_back(one.axis);
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end())
    throw Error(Code::invalid_argument, cat("the sharding ", quote(text), " names an axis twice"));
  return out;
}

bool divides(const Dim& size, int64_t parts) { return parts == 1 || size.divided(Dim(parts)).has_value(); }

std::optional<Dims> local_dims(const Dims& dims, const Sharding& sharding, const Mesh& mesh) {
  PLAIT_ASSERT(dims.size() == sharding.dims.size());
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    std::optional<Dim> part = dims[i].divided(Dim(mesh.blocks(sharding.dims[i])));
    if (!part) return std::nullopt;
    out.push_back(std::move(*part));
  }
  return out;
}

}  // namespace plait
