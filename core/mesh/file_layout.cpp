#include "core/mesh/file_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace plait {
namespace {

/// A digit whose axis is not yet known: it moves by that many bits.
struct Piece {
  int64_t size = 1, stride = 1;
  bool operator==(const Piece&) const = default;
};
using Pieces = std::vector<Piece>;

/// Merges adjacent digits that form one range.
void merge(Pieces& pieces) {
  Pieces out;
  for (const Piece& piece : pieces) {
    if (piece.size == 1) continue;
    if (!out.empty() && out.back().stride == piece.size * piece.stride)
      out.back() = {out.back().size * piece.size, piece.stride};
    else out.push_back(piece);
  }
  pieces = std::move(out);
}

struct View {
  int64_t base = 0;
  std::vector<Pieces> dims;

  bool slice(size_t dim, int64_t begin, int64_t end) {
    Pieces& pieces = dims[dim];
    merge(pieces);
    int64_t inner = 1;
    for (const Piece& piece : pieces) inner *= piece.size;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Piece& piece = pieces[i];
      inner /= piece.size;
      base += begin / inner * piece.stride;
      if (begin % inner == 0 && end % inner == 0) {
        piece.size = (end - begin) / inner;
        return true;
      }
      if (begin / inner != (end - 1) / inner) return false;
      piece.size = 1;
      end -= begin / inner * inner;
      begin %= inner;
    }
    return true;
  }

  bool reshape(const std::vector<int64_t>& sizes) {
    Pieces all;
    for (const Pieces& pieces : dims) all.insert(all.end(), pieces.begin(), pieces.end());
    merge(all);
    dims.assign(sizes.size(), {});
    auto next = all.begin();
    for (size_t d = 0; d < sizes.size(); ++d)
      for (int64_t left = sizes[d]; left > 1;) {
        if (next == all.end()) return false;
        if (left % next->size == 0) {
          left /= next->size;
          dims[d].push_back(*next++);
        } else if (next->size % left == 0) {
          dims[d].push_back({left, next->stride * (next->size / left)});
          next->size /= left;
          left = 1;
        } else {
          return false;
        }
      }
    return next == all.end();
  }

  /// Changes the unit of the last dim from elements of `from` bits to elements of `to` bits.
  bool reinterpret(int64_t from, int64_t to) {
    Pieces& last = dims.back();
    merge(last);
    if (!last.empty() && last.back().stride != from) return false;
    if (to <= from) {
      last.push_back({from / to, to});
      return from % to == 0;
    }
    if (last.empty() || to % from || last.back().size % (to / from)) return false;
    last.back() = {last.back().size / (to / from), to};
    return true;
  }

  bool apply(const RecipeStep& step, int64_t bits) {
    const std::vector<int64_t>& n = step.numbers;
    switch (step.kind) {
      case RecipeStep::Kind::transpose: {
        std::vector<Pieces> before = std::move(dims);
        dims.clear();
        for (int64_t axis : n) dims.push_back(before[static_cast<size_t>(axis)]);
        return true;
      }
      case RecipeStep::Kind::slice: return slice(static_cast<size_t>(n[0]), n[1], n[2]);
      case RecipeStep::Kind::part: return false;
      case RecipeStep::Kind::reshape: return reshape(n);
      case RecipeStep::Kind::cast: return true;
      case RecipeStep::Kind::reinterpret: return reinterpret(bits, dtype_bits(step.dtype));
    }
    return false;
  }
};

std::optional<View> view_of(const Constant& constant, FileLayout& layout);

/// Parts adjacent in one tensor of the file form a dim of it; equal parts of one tensor each form a stack of these.
std::optional<View> view_of_parts(const std::vector<Constant>& parts, FileLayout& layout) {
  std::vector<View> views;
  std::vector<FileLayout> layouts(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    std::optional<View> one = view_of(parts[i], layouts[i]);
    if (!one) return std::nullopt;
    views.push_back(std::move(*one));
    if (views[i].dims != views[0].dims || layouts[i].sizes != layouts[0].sizes) return std::nullopt;
  }
  View view = views[0];
  layout = layouts[0];
  const auto count = static_cast<int64_t>(parts.size());
  const int64_t step = count > 1 ? views[1].base - views[0].base : 0;
  if (step == 0) {
    layout.tensors.clear();
    for (FileLayout& one : layouts)
      layout.tensors.insert(layout.tensors.end(), one.tensors.begin(), one.tensors.end());
    const int64_t each = std::accumulate(layout.sizes.begin(), layout.sizes.end(), int64_t{1}, std::multiplies<>());
    layout.sizes.insert(layout.sizes.begin(), count);
    ++layout.stacked;
    view.dims.insert(view.dims.begin(), Pieces{{count, each}});
  } else {
    view.dims.insert(view.dims.begin(), Pieces{{count, step}});
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (views[at].base != view.base + i * step || step < 0) return std::nullopt;
    if (step && (layouts[at].stacked || layouts[at].tensors[0]->initializer != layout.tensors[0]->initializer))
      return std::nullopt;
  }
  return view;
}

/// The constant as a view of its tensors; sets the axes of `layout`: stacked ones, then a tensor's and its bits.
std::optional<View> view_of(const Constant& constant, FileLayout& layout) {
  std::optional<View> view;
  int64_t bits = 0;
  if (constant.parts.empty()) {
    bits = dtype_bits(constant.source.dtype());
    layout.tensors = {&constant};
    layout.sizes.assign(constant.source.shape().begin(), constant.source.shape().end());
    int64_t stride = bits * constant.source.elements();
    view.emplace();
    for (int64_t size : layout.sizes) view->dims.push_back({{size, stride /= size}});
    layout.sizes.push_back(bits);
  } else {
    view = view_of_parts(constant.parts, layout);
    bits = dtype_bits(constant.parts[0].dtype());
  }
  for (const RecipeStep& step : constant.steps) {
    if (!view || !view->apply(step, bits)) return std::nullopt;
    if (step.dtype != DType::none) bits = dtype_bits(step.dtype);
  }
  return view;
}

/// Splits a piece into digits, each along one axis; `strides`: of the axes, in bits.
bool place(const Piece& piece, const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes,
           std::vector<FileLayout::Digit>& out) {
  const auto found = std::find_if(strides.begin(), strides.end(), [&](int64_t one) { return one <= piece.stride; });
  if (found == strides.end() || piece.stride % *found) return false;
  const auto axis = static_cast<size_t>(found - strides.begin());
  const int64_t limit = *found * sizes[axis];
  if (piece.stride * piece.size <= limit) {
    out.push_back({piece.size, axis, piece.stride / *found});
    return true;
  }
  const int64_t inner = limit / piece.stride;
  if (limit % piece.stride || axis == 0) return false;
  if (!place({(piece.size + inner - 1) / inner, limit}, strides, sizes, out)) return false;
  if (inner > 1) out.push_back({inner, axis, piece.stride / *found});
  return true;
}

}  // namespace

std::optional<FileLayout> file_layout(const Constant& constant) {
  if (constant.shape().elements() == 0) return std::nullopt;
  FileLayout out;
  std::optional<View> view = view_of(constant, out);
  if (!view) return std::nullopt;
  out.shape = constant.shape();
  std::vector<int64_t> strides(out.sizes.size(), 1);
  for (size_t k = out.sizes.size() - 1; k-- > 0;) strides[k] = strides[k + 1] * out.sizes[k + 1];
  std::vector<int64_t> last;
  for (size_t k = 0; k < out.sizes.size(); ++k) out.base.push_back(view->base / strides[k] % out.sizes[k]);
  last = out.base;
  for (Pieces& pieces : view->dims) {
    merge(pieces);
    out.dims.emplace_back();
    for (const Piece& piece : pieces)
      if (!place(piece, strides, out.sizes, out.dims.back())) return std::nullopt;
    for (const FileLayout::Digit& digit : out.dims.back()) last[digit.axis] += (digit.size - 1) * digit.stride;
  }
  for (size_t k = 0; k < last.size(); ++k)
    if (last[k] >= out.sizes[k]) return std::nullopt;
  return out;
}

std::optional<std::vector<CutAxis>> cut_in_file(const FileLayout& layout, const Sharding& sharding,
                                                const Mesh& mesh) {
  struct Label {
    FileLayout::Digit digit;
    AxisId by = -1;  ///< the mesh axis that cuts the digit into single positions
  };
  std::vector<std::vector<Label>> labels(layout.sizes.size());
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    std::vector<FileLayout::Digit> digits = layout.dims[d];
    int64_t places = 1;
    for (const FileLayout::Digit& digit : digits) places *= digit.size;
    if (!sharding.dims[d].empty() && places != layout.shape[static_cast<int>(d)]) return std::nullopt;
    auto next = digits.begin();
    for (AxisId axis : sharding.dims[d]) {
      while (next != digits.end() && next->size == 1) ++next;
      const int64_t parts = mesh.size(axis);
      if (next == digits.end() || next->size % parts) return std::nullopt;
      next->size /= parts;
      labels[next->axis].push_back({{parts, next->axis, next->stride * next->size}, axis});
    }
    for (const FileLayout::Digit& digit : digits) labels[digit.axis].push_back({digit, -1});
  }
  std::vector<CutAxis> out;
  for (size_t k = 0; k < labels.size(); ++k) {
    std::stable_sort(labels[k].begin(), labels[k].end(),
                     [](const Label& a, const Label& b) { return a.digit.stride > b.digit.stride; });
    CutAxis axis;
    std::vector<std::pair<int64_t, int32_t>> places{{layout.base[k], 0}};  // and their blocks
    for (const Label& label : labels[k]) {
      if (label.by >= 0) axis.axes.push_back(label.by);
      std::vector<std::pair<int64_t, int32_t>> more;
      for (const auto& [place, block] : places)
        for (int64_t i = 0; i < label.digit.size; ++i)
          more.emplace_back(place + i * label.digit.stride,
                            label.by < 0 ? block : static_cast<int32_t>(block * label.digit.size + i));
      places = std::move(more);
    }
    if (k + 1 == labels.size()) {
      if (!axis.axes.empty()) return std::nullopt;
      break;
    }
    axis.blocks.assign(static_cast<size_t>(layout.sizes[k]), -1);
    for (const auto& [place, block] : places) axis.blocks[static_cast<size_t>(place)] = block;
    out.push_back(std::move(axis));
  }
  return out;
}

}  // namespace plait
