// Ops of com.microsoft that ONNX has by now, and small ones that ONNX's ops make up.
#include <limits>

#include "importers/onnx/compose.h"
#include "importers/onnx/conversions.h"

namespace plait::onnx_import {
namespace {

// ---- ONNX's own by now ----

void convert_gather_nd(OldNode& old) { old.node.op = "GatherND"; }
void convert_trilu(OldNode& old) { old.node.op = "Trilu"; }

/// The axis is an i32 tensor of one element.
void convert_expand_dims(OldNode& old) {
  const ValueId axis = old.emit("Reshape", {old.required(1), old.ints({1})});
  old.become("Unsqueeze", {old.required(0), axis});
}

/// Images only; modes have the names of opset 16.
void convert_grid_sample(OldNode& old) {
  Attributes attributes = old.node.attributes;
  const std::string mode = attributes.string("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest" && mode != "bicubic")
    throw Error(Code::bad_model,
                cat("attribute \"mode\" is ", quote(mode), ", expected bilinear, nearest or bicubic"));
  attributes.set("mode", std::string(mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : "nearest"));
  old.become("GridSample", {old.required(0), old.required(1)}, attributes);
}

/// Pads are [2 r] or [1, 2 r], the value [] or [1].
void convert_pad(OldNode& old) {
  const ValueId pads = old.emit("Reshape", {old.required(1), old.ints({-1})});
  std::vector<ValueId> operands{old.required(0), pads};
  if (old.input(2) != no_value) operands.push_back(as_scalar(old, old.input(2)));
  old.become("Pad", std::move(operands), old.node.attributes);
}

/// Bounds are [] or [1]; the step is 1 where there is none.
void convert_range(OldNode& old) {
  const ValueId start = as_scalar(old, old.required(0));
  const ValueId step =
      old.input(2) != no_value ? as_scalar(old, old.input(2)) : old.emit("CastLike", {scalar_int(old, 1), start});
  old.become("Range", {start, as_scalar(old, old.required(1)), step});
}

/// The distinct elements in the order of their first, where each element is among them, and how often it occurs.
void convert_unique(OldNode& old) {
  const std::vector<ValueId> outputs{old.output(0), no_value, old.output(1), old.output(2)};
  old.become("Unique", {old.required(0)}, OldNode::with("sorted", 0));
  old.node.outputs = trimmed_operands(outputs);
}

// ---- Distances and windows ----

/// |a|^2 + |b|^2 - 2 a b of all rows of a [m, n] and b [k, n], or its root.
void convert_distances(OldNode& old) {
  const std::string metric = old.node.attributes.string("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean")
    throw Error(Code::unsupported,
                cat("attribute \"metric\" is ", quote(metric), ", expected sqeuclidean or euclidean"),
                "compute the distance by ONNX's own ops");
  const ValueId a = old.required(0), b = old.required(1), last = old.ints({-1});
  const auto squares = [&](ValueId x, int64_t keep) {
    return old.emit("ReduceSumSquare", {x, last}, OldNode::with("keepdims", keep));
  };
  const ValueId norms = old.emit("Add", {squares(a, 1), squares(b, 0)});
  const ValueId products = old.emit("MatMul", {a, old.emit("Transpose", {b}, permuted({1, 0}))});
  const ValueId difference = old.emit("Sub", {norms, old.emit("Mul", {products, old.scalar_like(2, products)})});
  if (metric == "sqeuclidean") return old.become("Relu", {difference});
  old.become("Sqrt", {old.emit("Relu", {difference})});
}

/// Windows of `size` elements of a dim, each `step` after the last, as a new last dim.
void convert_unfold(OldNode& old) {
  const int64_t size = old.node.attributes.integer("size"), step = old.node.attributes.integer("step", 1);
  int64_t dim = old.node.attributes.integer("dim", -1);
  if (size < 1 || step < 1 || size > (int64_t{1} << 24))
    throw Error(Code::bad_model, cat("attributes size ", size, " and step ", step, " are no sizes"));
  const ValueId x = old.required(0);
  const auto& dims = old.graph.value(x).type.dims;
  if (dim != -1 && !dims)
    throw Error(Code::unsupported, "a dim that is not the last, of an operand whose rank the file does not tell",
                "transpose the operand before, so that the dim is the last");
  const ValueId length = size_of(old, x, dim), one = scalar_int(old, 1);
  const ValueId last = old.emit("Add", {old.emit("Sub", {length, scalar_int(old, size)}), one});
  const ValueId begins =
      old.emit("Unsqueeze", {old.emit("Range", {scalar_int(old, 0), last, scalar_int(old, step)}), old.ints({1})});
  const ValueId places = old.emit("Add", {begins, numbers_below(old, scalar_int(old, size))});
  if (dim == -1) return old.become("Gather", {x, places}, OldNode::with("axis", -1));
  const auto rank = static_cast<int64_t>(dims->size());
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank)
    throw Error(Code::bad_model,
                cat("attribute \"dim\" is ", old.node.attributes.integer("dim", -1), " for rank ", rank));
  const ValueId windows = old.emit("Gather", {x, places}, OldNode::with("axis", dim));
  std::vector<int64_t> order;
  for (int64_t i = 0; i <= rank; ++i)
    if (i != dim + 1) order.push_back(i);
  order.push_back(dim + 1);
  old.become("Transpose", {windows}, permuted(std::move(order)));
}

// ---- Crops ----

/// Where the rows or columns of crops are in an image, [boxes, count].
struct CropPlaces {
  ValueId low, high;  ///< the elements around, i64
  ValueId share;      ///< of the one after, f32
  ValueId outside;    ///< bool
};

/// Places from `first` to `last`, [boxes], which are fractions of the image's extent; a crop of one row has that in the middle.
CropPlaces places_of(OldNode& old, ValueId first, ValueId last, ValueId count, ValueId extent, bool nearest) {
  const auto f32 = [&](double number) {
    const auto value = static_cast<float>(number);
    return old.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&value, 1}));
  };
  const auto product = [&](ValueId a, ValueId b) { return old.emit("Mul", {a, b}); };
  const ValueId one = scalar_int(old, 1), column = old.ints({1});
  const ValueId gaps = as_type(old, old.emit("Max", {old.emit("Sub", {count, one}), one}), DType::f32);
  const ValueId step = old.emit("Div", {product(old.emit("Sub", {last, first}), extent), gaps});
  const ValueId middle = product(product(f32(0.5), old.emit("Add", {first, last})), extent);
  const ValueId begin = old.emit("Where", {old.emit("Greater", {count, one}), product(first, extent), middle});
  const ValueId steps = as_type(old, numbers_below(old, count), DType::f32);
  const ValueId at = old.emit(
      "Add", {old.emit("Unsqueeze", {begin, column}), product(steps, old.emit("Unsqueeze", {step, column}))});
  CropPlaces out{};
  out.outside = old.emit("Or", {old.emit("Less", {at, f32(0)}), old.emit("Greater", {at, extent})});
  const auto element = [&](ValueId place) {
    return as_type(old, old.emit("Clip", {place, f32(0), extent}), DType::i64);
  };
  const ValueId floor = old.emit("Floor", {nearest ? old.emit("Add", {at, f32(0.5)}) : at});
  out.low = element(floor);
  if (nearest) return out;
  out.high = element(old.emit("Ceil", {at}));
  out.share = old.emit("Sub", {at, floor});
  return out;
}

/// CropAndResize: images [n, c, h, w], boxes [k, 4] of begins and ends as fractions, the image of each, the crops' height and width.
void convert_crop_and_resize(OldNode& old) {
  const std::string mode = old.node.attributes.string("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest")
    throw Error(Code::bad_model, cat("attribute \"mode\" is ", quote(mode), ", expected bilinear or nearest"));
  const bool nearest = mode == "nearest";
  const ValueId x = old.required(0), boxes = as_type(old, old.required(1), DType::f32),
                crop = as_type(old, old.required(3), DType::i64);
  const ValueId height = size_of(old, x, 2), width = size_of(old, x, 3), one = scalar_int(old, 1);
  const auto extent = [&](ValueId size) { return as_type(old, old.emit("Sub", {size, one}), DType::f32); };
  const auto side = [&](int64_t k) {
    return old.emit("Gather", {boxes, scalar_int(old, k)}, OldNode::with("axis", 1));
  };
  const auto count = [&](int64_t k) {
    return old.emit("Gather", {crop, scalar_int(old, k)}, OldNode::with("axis", 0));
  };
  const CropPlaces rows = places_of(old, side(0), side(2), count(0), extent(height), nearest);
  const CropPlaces columns = places_of(old, side(1), side(3), count(1), extent(width), nearest);
  // Elements of all images as rows of channels. A number below 0 becomes one beyond the last, which is an error.
  const ValueId pixels = old.emit("Reshape", {old.emit("Transpose", {x}, permuted({0, 2, 3, 1})),
                                              joined(old, {old.ints({-1}), sizes_of(old, x, 1, 2)})});
  const ValueId image = as_type(old, old.required(2), DType::i64);
  const ValueId own = old.emit("Where", {old.emit("Less", {image, scalar_int(old, 0)}), size_of(old, x, 0), image});
  const ValueId base =
      old.emit("Unsqueeze", {old.emit("Mul", {old.emit("Mul", {own, height}), width}), old.ints({1, 2})});
  const auto down = [&](ValueId id) { return old.emit("Unsqueeze", {id, old.ints({2})}); };
  const auto across = [&](ValueId id) { return old.emit("Unsqueeze", {id, old.ints({1})}); };
  const auto pixel = [&](ValueId row, ValueId column) {
    const ValueId place = old.emit("Add", {old.emit("Mul", {down(row), width}), across(column)});
    return old.emit("Gather", {pixels, old.emit("Add", {base, place})}, OldNode::with("axis", 0));
  };
  const auto between = [&](ValueId a, ValueId b, ValueId share) {
    return old.emit("Add", {a, old.emit("Mul", {old.emit("Sub", {b, a}), share})});
  };
  ValueId y = pixel(rows.low, columns.low);
  if (!nearest) {
    const auto wide = [&](ValueId share) {
      return old.emit("CastLike", {old.emit("Unsqueeze", {share, old.ints({3})}), x});
    };
    const ValueId right = wide(across(columns.share));
    const ValueId top = between(y, pixel(rows.low, columns.high), right);
    const ValueId bottom = between(pixel(rows.high, columns.low), pixel(rows.high, columns.high), right);
    y = between(top, bottom, wide(down(rows.share)));
  }
  const ValueId outside =
      old.emit("Unsqueeze", {old.emit("Or", {down(rows.outside), across(columns.outside)}), old.ints({3})});
  const ValueId filled =
      old.emit("Where", {outside, old.scalar_like(old.node.attributes.real("extrapolation_value", 0), y), y});
  old.become("Transpose", {filled}, permuted({0, 3, 1, 2}));
}

// ---- Generation ----

/// NGramRepeatBlock: ids [b, l], scores [b, v] -> the scores, -infinity for a token that would repeat n tokens of the row.
void convert_ngram_block(OldNode& old) {
  const int64_t n = old.node.attributes.integer("ngram_size");
  if (n < 1 || n > (int64_t{1} << 20))
    throw Error(Code::bad_model, cat("attribute \"ngram_size\" is ", n, ", expected at least 1"));
  const ValueId ids = old.required(0), scores = old.required(1), axis = old.ints({1}), zero = scalar_int(old, 0);
  const ValueId length = size_of(old, ids, 1), before = scalar_int(old, n - 1);
  const ValueId count = old.emit("Max", {old.emit("Sub", {length, before}), zero});
  const ValueId begins = old.emit("Unsqueeze", {numbers_below(old, count), axis});
  const ValueId places = old.emit("Add", {begins, numbers_below(old, before)});
  const ValueId windows = old.emit("Gather", {ids, places}, OldNode::with("axis", 1));
  const ValueId first = old.emit("Reshape", {old.emit("Max", {old.emit("Sub", {length, before}), zero}), axis});
  const ValueId tail = old.emit("Slice", {ids, first, old.ints({INT64_MAX}), axis});
  // Too short a row has no windows, but a tail of fewer tokens: that is cut to n - 1, or filled with the row's own zeros.
  const ValueId full = old.emit(
      "Pad",
      {tail, joined(old, {old.ints({0, 0, 0}), old.emit("Sub", {old.ints({n - 1}), sizes_of(old, tail, 1, 2)})})});
  const ValueId differs =
      as_type(old, old.emit("Not", {old.emit("Equal", {windows, old.emit("Unsqueeze", {full, axis})})}), DType::i64);
  const ValueId same =
      old.emit("Equal", {old.emit("ReduceSum", {differs, old.ints({2})}, OldNode::with("keepdims", 0)), zero});
  const ValueId next = old.emit("Slice", {ids, old.ints({n - 1}), old.ints({INT64_MAX}), axis});
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const ValueId blocked =
      old.emit("Where", {same, old.scalar_like(-infinity, scores), old.scalar_like(infinity, scores)});
  Attributes least = OldNode::with("axis", 1);
  least.set("reduction", std::string("min"));
  old.become("ScatterElements", {scores, next, blocked}, std::move(least));
}

constexpr Conversion rows_of_tensors[] = {
    {"com.microsoft.CDist", convert_distances},
    {"com.microsoft.CropAndResize", convert_crop_and_resize},
    {"com.microsoft.ExpandDims", convert_expand_dims},
    {"com.microsoft.GatherND", convert_gather_nd},
    {"com.microsoft.GridSample", convert_grid_sample},
    {"com.microsoft.NGramRepeatBlock", convert_ngram_block},
    {"com.microsoft.Pad", convert_pad},
    {"com.microsoft.Range", convert_range},
    {"com.microsoft.Trilu", convert_trilu},
    {"com.microsoft.UnfoldTensor", convert_unfold},
    {"com.microsoft.Unique", convert_unique},
};

}  // namespace

std::span<const Conversion> tensor_conversions() { return rows_of_tensors; }

}  // namespace plait::onnx_import
