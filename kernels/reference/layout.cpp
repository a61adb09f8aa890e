// Ops that only move elements, of any size.
//
// They share one mechanism: an output element is the input element at the sum of one offset for each output axis,
// out[i, j, ...] = in[offset_0[i] + offset_1[j] + ...]. Transpose, Slice, Expand, Tile and Pad differ in the offsets.
#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

constexpr int64_t outside = INT64_MIN;  ///< an offset that means: fill

using Offsets = std::vector<std::vector<int64_t>>;  ///< [axis][index], in elements of the input

/// The sum of the offsets of all axes but the last, for row `row` of the output.
int64_t row_base(const Offsets& offsets, int64_t row) {
  int64_t base = 0;
  for (size_t axis = offsets.size() - 1; axis-- > 0;) {
    auto size = static_cast<int64_t>(offsets[axis].size());
    int64_t offset = offsets[axis][static_cast<size_t>(row % size)];
    if (offset == outside) return outside;
    base += offset;
    row /= size;
  }
  return base;
}

/// Rows [begin, end) of the output. Column by column: neighbouring rows of a transpose are adjacent in the input, so
/// that a cache line of it serves 16 f32 rows before it is evicted.
void move_rows(const TensorView& in, const TensorView& out, const Offsets& offsets, uint64_t fill, int64_t begin,
               int64_t end) {
  const std::vector<int64_t>& last = offsets.back();
  auto width = static_cast<int64_t>(last.size());
  std::vector<int64_t> bases;
  for (int64_t row = begin; row < end; ++row) bases.push_back(row_base(offsets, row));
  auto each = [&](auto write) {
    for (int64_t i = 0; i < width; ++i)
      for (int64_t row = begin; row < end; ++row) {
        int64_t base = bases[static_cast<size_t>(row - begin)], offset = last[static_cast<size_t>(i)];
        write(row * width + i, base == outside || offset == outside ? outside : base + offset);
      }
  };
  int bits = dtype_bits(out.dtype);
  if (bits < 8)
    return each([&](int64_t to, int64_t from) { put_bits(out, to, from == outside ? fill : get_bits(in, from)); });
  with_word(bits, [&]<class Word>(Word filler) {
    constexpr auto size = static_cast<int64_t>(sizeof(Word));
    filler = static_cast<Word>(fill);
    each([&](int64_t to, int64_t from) {
      const void* source = from == outside ? static_cast<const void*>(&filler) : in.data + from * size;
      std::memcpy(out.data + to * size, source, sizeof(Word));
    });
  });
}

/// Short rows are joined with those next to them.
void join_rows(Offsets& offsets) {
  constexpr size_t short_row = 64, most = 4096;
  while (offsets.size() > 1 && offsets.back().size() < short_row &&
         offsets.back().size() * offsets[offsets.size() - 2].size() <= most) {
    const std::vector<int64_t> last = std::move(offsets.back());
    offsets.pop_back();
    std::vector<int64_t> joined;
    for (int64_t before : offsets.back())
      for (int64_t offset : last) joined.push_back(before == outside || offset == outside ? outside : before + offset);
    offsets.back() = std::move(joined);
  }
}

/// An output element with any `outside` among its offsets gets `fill`. Bands of rows are distributed over the pool.
void move(const KernelCall& call, const TensorView& in, const TensorView& out, Offsets offsets, uint64_t fill = 0) {
  int64_t count = out.elements();
  if (count == 0) return;
  if (offsets.empty()) return copy_elements(in, 0, out, 0, 1);
  join_rows(offsets);
  const std::vector<int64_t>& last = offsets.back();
  auto width = static_cast<int64_t>(last.size()), rows = count / width;
  bool contiguous = true;
  for (size_t i = 0; i < last.size(); ++i)
    contiguous = contiguous && last[i] != outside && last[i] == last[0] + static_cast<int64_t>(i);
  constexpr int64_t band = 16;
  auto task = [&](int64_t item, int) {
    int64_t begin = item * band, end = std::min(rows, begin + band);
    if (!contiguous) return move_rows(in, out, offsets, fill, begin, end);
    for (int64_t row = begin; row < end; ++row) {
      int64_t base = row_base(offsets, row);
      if (base == outside) move_rows(in, out, offsets, fill, row, row + 1);
      else copy_elements(in, base + last[0], out, row * width, width);
    }
  };
  int64_t bands = (rows + band - 1) / band;
  // Elements of fewer than 8 bits share bytes at the rows' borders: one thread.
  if (dtype_bits(out.dtype) >= 8 && count >= 1 << 16) return call.pool.for_each(bands, task);
  for (int64_t i = 0; i < bands; ++i) task(i, 0);
}

/// One axis: `count` offsets from `first` by `step`.
std::vector<int64_t> arithmetic(int64_t first, int64_t step, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = first + i * step;
  return out;
}

/// Identity, Reshape, Squeeze, Unsqueeze, Flatten: the same bytes.
KernelStatus copy(const KernelCall& call) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  if (in.data != out.data) copy_elements(in, 0, out, 0, in.elements());
  return {};
}

struct TransposeAttributes {
  explicit TransposeAttributes(const NodeInfo& node) : order(node.attributes.integers("perm")) {}
  std::vector<int64_t> order;  ///< empty: reversed
};

KernelStatus transpose(const KernelCall& call, const TransposeAttributes& attributes) {
  const TensorView& in = call.inputs[0];
  Shape strides = strides_of(in.shape);
  Offsets offsets;
  for (int i = 0; i < in.shape.rank(); ++i) {
    int axis = attributes.order.empty() ? in.shape.rank() - 1 - i
                                        : static_cast<int>(attributes.order[static_cast<size_t>(i)]);
    offsets.push_back(arithmetic(0, strides[axis], in.shape[axis]));
  }
  move(call, in, call.outputs[0], offsets);
  return {};
}

struct AxisAttribute {
  explicit AxisAttribute(const NodeInfo& node) : axis(node.attributes.integer("axis", 0)) {}
  int64_t axis;
};

KernelStatus concat(const KernelCall& call, const AxisAttribute& attribute) {
  const TensorView& out = call.outputs[0];
  int axis = positive_axis(attribute.axis, out.shape.rank());
  int64_t outer = out.shape.elements(0, axis), pitch = out.shape.elements(axis, out.shape.rank()), begin = 0;
  for (const TensorView& in : call.inputs) {
    int64_t width = in.shape.elements(axis, in.shape.rank());
    for (int64_t i = 0; i < outer; ++i) copy_elements(in, i * width, out, i * pitch + begin, width);
    begin += width;
  }
  return {};
}

/// Splits by the outputs' sizes.
KernelStatus split(const KernelCall& call, const AxisAttribute& attribute) {
  const TensorView& in = call.inputs[0];
  int axis = positive_axis(attribute.axis, in.shape.rank());
  int64_t outer = in.shape.elements(0, axis), pitch = in.shape.elements(axis, in.shape.rank()), begin = 0;
  std::vector<int64_t> sizes;
  if (input(call, 1).present()) sizes = to_ints(call.inputs[1]);
  // An unused output has no shape: without a `split` operand all but the last have one size.
  auto parts = static_cast<int64_t>(call.outputs.size());
  int64_t even = (in.shape[axis] + parts - 1) / parts;
  int64_t inner = in.shape.elements(axis + 1, in.shape.rank());
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const TensorView& out = call.outputs[k];
    int64_t width = (k < sizes.size() ? sizes[k] : even) * inner;
    if (out.present()) {
      width = out.shape.elements(axis, out.shape.rank());
      if (begin + width > pitch) return {KernelCode::index_out_of_range, 1, width};
      for (int64_t i = 0; i < outer; ++i) copy_elements(in, i * pitch + begin, out, i * width, width);
    }
    begin += width;
  }
  return {};
}

/// The elements that a Slice of `whole` takes, with `part` elements per axis: starts, ends, axes?, steps? are the
/// operands from `at` on.
KernelStatus sliced(const KernelCall& call, size_t at, const Shape& whole, const Shape& part, Offsets& offsets) {
  std::vector<int64_t> starts = to_ints(call.inputs[at]), axes, steps;
  if (input(call, at + 2).present()) axes = to_ints(call.inputs[at + 2]);
  else axes = arithmetic(0, 1, static_cast<int64_t>(starts.size()));
  if (input(call, at + 3).present()) steps = to_ints(call.inputs[at + 3]);
  Shape strides = strides_of(whole), first = whole, step = whole;
  for (int i = 0; i < whole.rank(); ++i) first[i] = 0, step[i] = 1;
  for (size_t k = 0; k < axes.size(); ++k) {
    int axis = positive_axis(axes[k], whole.rank());
    int64_t size = whole[axis], start = starts[k] < 0 ? std::max<int64_t>(starts[k], -size - 1) + size : starts[k];
    // Steps beyond the size are equivalent, and clamped ones cannot overflow in products.
    step[axis] = steps.empty() ? 1 : std::clamp(steps[k], -size - 1, size + 1);
    if (step[axis] == 0) return {KernelCode::bad_value, static_cast<int32_t>(at + 3), 0};
    first[axis] = std::max<int64_t>(0, std::min(start, step[axis] < 0 ? size - 1 : size));
  }
  for (int i = 0; i < whole.rank(); ++i) {
    int64_t last = first[i] + (part[i] - 1) * step[i];
    if (part[i] > 0 && (last < 0 || last >= whole[i]))
      return {KernelCode::index_out_of_range, static_cast<int32_t>(at), last};
    // A single element's step may be any number, and its product with a stride would overflow.
    offsets.push_back(arithmetic(first[i] * strides[i], part[i] > 1 ? step[i] * strides[i] : 0, part[i]));
  }
  return {};
}

/// Slice: data, starts, ends, axes?, steps?.
KernelStatus slice(const KernelCall& call) {
  Offsets offsets;
  const KernelStatus status = sliced(call, 1, call.inputs[0].shape, call.outputs[0].shape, offsets);
  if (status.code == KernelCode::ok) move(call, call.inputs[0], call.outputs[0], offsets);
  return status;
}

/// plait.SliceBack: dy, sizes, starts, ends, axes?, steps?: dy at the sliced elements, zeros elsewhere.
KernelStatus slice_back(const KernelCall& call) {
  const TensorView &dy = call.inputs[0], &out = call.outputs[0];
  if (dy.shape.rank() != out.shape.rank()) return {KernelCode::bad_value, 0, dy.shape.rank()};
  Offsets offsets;
  const KernelStatus status = sliced(call, 2, out.shape, dy.shape, offsets);
  if (status.code != KernelCode::ok) return status;
  std::fill_n(out.data, out.bytes(), std::byte{0});
  if (offsets.empty()) copy_elements(dy, 0, out, 0, 1);
  const int64_t width = offsets.empty() ? 0 : static_cast<int64_t>(offsets.back().size());
  for (int64_t row = 0; width > 0 && row < dy.elements() / width; ++row) {
    const int64_t base = row_base(offsets, row);
    for (int64_t i = 0; i < width; ++i)
      copy_elements(dy, row * width + i, out, base + offsets.back()[static_cast<size_t>(i)], 1);
  }
  return {};
}

KernelStatus expand(const KernelCall& call) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  for (int i = 1; i <= in.shape.rank(); ++i)  // symbolic sizes are known to fit only now
    if (in.shape.back(i) != 1 && in.shape.back(i) != out.shape.back(i))
      return {KernelCode::bad_value, 1, out.shape.back(i)};
  Shape strides = broadcast_strides(in.shape, out.shape);
  Offsets offsets;
  for (int i = 0; i < out.shape.rank(); ++i) offsets.push_back(arithmetic(0, strides[i], out.shape[i]));
  move(call, in, out, offsets);
  return {};
}

KernelStatus tile(const KernelCall& call) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  Shape strides = strides_of(in.shape);
  Offsets offsets;
  for (int i = 0; i < out.shape.rank(); ++i) {
    offsets.push_back(arithmetic(0, 1, out.shape[i]));
    for (int64_t& index : offsets.back()) index = index % in.shape[i] * strides[i];
  }
  move(call, in, out, offsets);
  return {};
}

enum class PadMode { constant, reflect, edge, wrap };

struct PadAttributes {
  explicit PadAttributes(const NodeInfo& node) {
    static constexpr std::string_view names[] = {"constant", "reflect", "edge", "wrap"};
    std::string name = node.attributes.string("mode", "constant");
    auto found = std::find(std::begin(names), std::end(names), name);
    if (found == std::end(names))
      throw Error(Code::bad_model, cat("Pad: mode is ", quote(name), ", expected constant, reflect, edge or wrap"));
    mode = static_cast<PadMode>(found - std::begin(names));
  }
  PadMode mode;
};

/// Where position `index` (may be outside) of an axis of `size` elements is read, or `outside`.
int64_t padded_index(int64_t index, int64_t size, PadMode mode) {
  if (index >= 0 && index < size) return index;
  if (size == 0 || mode == PadMode::constant) return outside;
  if (mode == PadMode::edge) return std::clamp<int64_t>(index, 0, size - 1);
  auto modulo = [](int64_t a, int64_t b) { return (a % b + b) % b; };
  if (mode == PadMode::wrap) return modulo(index, size);
  if (size == 1) return 0;
  int64_t folded = modulo(index, 2 * (size - 1));  // reflect: the edge itself is not repeated
  return folded < size ? folded : 2 * (size - 1) - folded;
}

/// Pad: data, pads [2 x axes] (negative ones cut), constant_value?, axes?.
KernelStatus pad(const KernelCall& call, const PadAttributes& attributes) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  std::vector<int64_t> pads = to_ints(call.inputs[1]), axes;
  if (input(call, 3).present()) axes = to_ints(call.inputs[3]);
  else axes = arithmetic(0, 1, in.shape.rank());
  if (pads.size() != 2 * axes.size()) return {KernelCode::bad_value, 1, static_cast<int64_t>(pads.size())};
  Shape before = in.shape, strides = strides_of(in.shape);
  for (int i = 0; i < before.rank(); ++i) before[i] = 0;
  for (size_t k = 0; k < axes.size(); ++k) before[positive_axis(axes[k], before.rank())] = pads[k];
  Offsets offsets;
  for (int i = 0; i < out.shape.rank(); ++i) {
    offsets.push_back(arithmetic(-before[i], 1, out.shape[i]));
    for (int64_t& index : offsets.back()) {
      index = padded_index(index, in.shape[i], attributes.mode);
      if (index != outside) index *= strides[i];
    }
  }
  move(call, in, out, offsets, input(call, 2).present() ? get_bits(call.inputs[2], 0) : 0);
  return {};
}

struct BlockAttributes {
  explicit BlockAttributes(const NodeInfo& node) : size(node.attributes.integer("blocksize", 0)) {
    std::string mode = node.attributes.string("mode", "DCR");
    if (mode != "DCR" && mode != "CRD")
      throw Error(Code::bad_model, cat(node.op, ": mode is ", quote(mode), ", expected DCR or CRD"));
    if (size < 1 || size > 1 << 20) throw Error(Code::bad_model, cat(node.op, ": blocksize is ", size));
    depth_first = mode == "DCR";
  }
  int64_t size;
  bool depth_first;  ///< DCR: channels are (i j c), otherwise (c i j), for row i and column j inside a block
};

/// DepthToSpace: [b, (i j c) or (c i j), y, x] -> [b, c, (y i), (x j)].
KernelStatus depth_to_space(const KernelCall& call, const BlockAttributes& a) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  Shape strides = strides_of(in.shape);
  int64_t channels = out.shape[1], block_step = a.depth_first ? channels : 1;  // of channels, from column to column
  Offsets offsets{arithmetic(0, strides[0], in.shape[0]),
                  arithmetic(0, (a.depth_first ? 1 : a.size * a.size) * strides[1], channels),
                  arithmetic(0, 1, out.shape[2]), arithmetic(0, 1, out.shape[3])};
  for (int64_t& y : offsets[2]) y = y / a.size * strides[2] + y % a.size * a.size * block_step * strides[1];
  for (int64_t& x : offsets[3]) x = x / a.size * strides[3] + x % a.size * block_step * strides[1];
  move(call, in, out, offsets);
  return {};
}

/// SpaceToDepth: [b, c, (y i), (x j)] -> [b, (i j c) or (c i j), y, x].
KernelStatus space_to_depth(const KernelCall& call, const BlockAttributes& a) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  Shape strides = strides_of(in.shape);
  int64_t channels = in.shape[1];
  Offsets offsets{arithmetic(0, strides[0], in.shape[0]), arithmetic(0, 1, out.shape[1]),
                  arithmetic(0, a.size * strides[2], out.shape[2]), arithmetic(0, a.size * strides[3], out.shape[3])};
  for (int64_t& depth : offsets[1]) {
    const int64_t block = a.depth_first ? depth / channels : depth % (a.size * a.size);
    const int64_t channel = a.depth_first ? depth % channels : depth / (a.size * a.size);
    depth = channel * strides[1] + block / a.size * strides[2] + block % a.size * strides[3];
  }
  move(call, in, out, offsets);
  return {};
}

struct SequenceAttributes {
  explicit SequenceAttributes(const NodeInfo& node)
      : time(node.attributes.integer("time_axis", 0)), batch(node.attributes.integer("batch_axis", 1)) {
    if ((time != 0 && time != 1) || batch != 1 - time)
      throw Error(Code::bad_model,
                  cat(node.op, ": time_axis ", time, " and batch_axis ", batch, ", expected 0 and 1 or 1 and 0"));
  }
  int64_t time, batch;
};

/// ReverseSequence: reverses the first `length` elements of each sequence.
KernelStatus reverse_sequence(const KernelCall& call, const SequenceAttributes& a) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  if (in.shape.rank() < 2) return {KernelCode::bad_value, 0, in.shape.rank()};
  std::vector<int64_t> lengths = to_ints(call.inputs[1]);
  int64_t steps = in.shape[static_cast<int>(a.time)], batches = in.shape[static_cast<int>(a.batch)];
  int64_t inner = in.shape.elements(2, in.shape.rank());
  int64_t by_time = a.time == 0 ? batches * inner : inner, by_batch = a.batch == 0 ? steps * inner : inner;
  if (static_cast<int64_t>(lengths.size()) != batches)
    return {KernelCode::bad_value, 1, static_cast<int64_t>(lengths.size())};
  for (int64_t b = 0; b < batches; ++b) {
    int64_t length = lengths[static_cast<size_t>(b)];
    if (length < 0 || length > steps) return {KernelCode::index_out_of_range, 1, length};
    for (int64_t t = 0; t < steps; ++t) {
      int64_t from = t < length ? length - 1 - t : t;
      copy_elements(in, from * by_time + b * by_batch, out, t * by_time + b * by_batch, inner);
    }
  }
  return {};
}

}  // namespace

void add_layout(KernelTable& table) {
  for (const char* op : {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}) add<copy>(table, op, anything, 0);
  add<transpose>(table, "Transpose", anything);
  add<concat>(table, "Concat", anything);
  add<split>(table, "Split", anything);
  add<slice>(table, "Slice", anything);
  add<slice_back>(table, "plait.SliceBack", floats);
  add<expand>(table, "Expand", anything);
  add<tile>(table, "Tile", anything);
  add<pad>(table, "Pad", anything);
  add<depth_to_space>(table, "DepthToSpace", anything);
  add<space_to_depth>(table, "SpaceToDepth", anything);
  add<reverse_sequence>(table, "ReverseSequence", anything);
}

}  // namespace plait::reference
