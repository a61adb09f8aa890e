#include "core/mesh/mesh.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// Slowest first.
constexpr std::string_view axis_names[] = {"pipeline", "data", "tensor"};
/// Larger than any machine; keeps products from overflowing.
constexpr int64_t most_ranks = 1 << 20;

std::vector<int64_t> primes(int64_t number) {
  std::vector<int64_t> out;
  for (int64_t p = 2; p * p <= number; ++p)
    for (; number % p == 0; number /= p) out.push_back(p);
  if (number > 1) out.push_back(number);
  return out;
}

Error bad_mesh(std::string_view text, const std::string& why) {
  return Error(Code::invalid_argument, cat("mesh ", quote(text), ": ", why),
               "a mesh is written as \"data=2,tensor=4\"; its axes are pipeline, data and tensor");
}

}  // namespace

Mesh Mesh::parse(std::string_view text) {
  std::vector<int64_t> sizes(std::size(axis_names), 0);
  for (const std::string& part : split(text, ',')) {
    if (trimmed(text).empty()) break;
    const size_t equals = part.find('=');
    const std::string_view name = trimmed(std::string_view(part).substr(0, equals));
    const auto* known = std::find(std::begin(axis_names), std::end(axis_names), name);
    if (known == std::end(axis_names)) throw bad_mesh(text, cat("there is no axis ", quote(name)));
    int64_t& size = sizes[static_cast<size_t>(known - std::begin(axis_names))];
    if (size) throw bad_mesh(text, cat("axis ", name, " is named twice"));
    if (equals == std::string::npos || !parse_int(trimmed(std::string_view(part).substr(equals + 1)), size))
      throw bad_mesh(text, cat("axis ", name, " has no size"));
    if (size < 1 || size > most_ranks) throw bad_mesh(text, cat("axis ", name, " has size ", size));
  }
  Mesh mesh;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i]) continue;
    Axis axis{std::string(axis_names[i]), sizes[i], {}};
    for (int64_t prime : primes(axis.size)) {
      axis.parts.push_back(mesh.sub_axes());
      mesh.sizes_.push_back(prime);
    }
    mesh.ranks_ *= axis.size;
    if (mesh.ranks_ > most_ranks) throw bad_mesh(text, cat("more than ", most_ranks, " ranks"));
    mesh.axes_.push_back(std::move(axis));
  }
  return mesh;
}

void Mesh::require_axes(std::initializer_list<std::string_view> allowed, std::string_view user) const {
  for (const Axis& axis : axes_)
    if (axis.size > 1 && std::find(allowed.begin(), allowed.end(), axis.name) == allowed.end())
      throw Error(Code::unsupported,
                  cat("the mesh ", quote(text()), " has an axis ", axis.name, ", which ", user, " cannot use"),
                  cat("use the axes ", join({allowed.begin(), allowed.end()}, " and ")));
}

AxisList Mesh::parts(std::string_view axis) const {
  for (const Axis& one : axes_)
    if (one.name == axis) return one.parts;
  return {};
}

int64_t Mesh::blocks(std::span<const AxisId> axes) const {
  int64_t out = 1;
  for (AxisId axis : axes) out *= size(axis);
  return out;
}

int64_t Mesh::stride(AxisId axis) const {
  int64_t out = 1;
  for (AxisId faster = axis + 1; faster < sub_axes(); ++faster) out *= size(faster);
  return out;
}

int64_t Mesh::coordinate(int64_t rank, AxisId axis) const { return rank / stride(axis) % size(axis); }

int64_t Mesh::block(int64_t rank, std::span<const AxisId> axes) const {
  int64_t out = 0;
  for (AxisId axis : axes) out = out * size(axis) + coordinate(rank, axis);
  return out;
}

std::vector<int64_t> Mesh::group(int64_t rank, std::span<const AxisId> axes) const {
  int64_t first = rank;
  for (AxisId axis : axes) first -= coordinate(rank, axis) * stride(axis);
  std::vector<int64_t> out{first};
  for (AxisId axis : axes) {
    std::vector<int64_t> next;
    for (int64_t one : out)
      for (int64_t i = 0; i < size(axis); ++i) next.push_back(one + i * stride(axis));
    out = std::move(next);
  }
  return out;
}

std::string Mesh::text() const {
  std::vector<std::string> out;
  for (const Axis& axis : axes_) out.push_back(cat(axis.name, "=", axis.size));
  return join(out, ",");
}

std::string Mesh::name(AxisId axis) const {
  for (const Axis& one : axes_) {
    auto part = std::find(one.parts.begin(), one.parts.end(), axis);
    if (part == one.parts.end()) continue;
    return one.parts.size() == 1 ? one.name : cat(one.name, ".", part - one.parts.begin());
  }
  return cat("?", axis);
}

std::string Mesh::text(std::span<const AxisId> axes) const {
  if (axes.empty()) return "-";
  std::vector<std::string> out;
  for (size_t i = 0; i < axes.size();) {
    auto whole = std::find_if(axes_.begin(), axes_.end(), [&](const Axis& one) {
      return !one.parts.empty() && one.parts.size() <= axes.size() - i &&
             std::equal(one.parts.begin(), one.parts.end(), axes.begin() + static_cast<std::ptrdiff_t>(i));
    });
    out.push_back(whole == axes_.end() ? name(axes[i]) : whole->name);
    i += whole == axes_.end() ? 1 : whole->parts.size();
  }
  return join(out, " ");
}

AxisList Mesh::parse_axes(std::string_view text) const {
  AxisList out;
  if (trimmed(text).empty() || trimmed(text) == "-") return out;
  for (const std::string& one : split(trimmed(text), ' ')) {
    if (one.empty()) continue;
    AxisList found = parts(one);
    for (AxisId axis = 0; found.empty() && axis < sub_axes(); ++axis)
      if (name(axis) == one) found = {axis};
    if (found.empty())
      throw Error(Code::invalid_argument, cat("the mesh ", quote(this->text()), " has no axis ", quote(one)));
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

}  // namespace plait
