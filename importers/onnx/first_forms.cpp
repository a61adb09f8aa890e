// Forms of ops that opset 7 and later opsets changed: broadcasting along an axis, slopes and scales by channel, training as the default.
#include <algorithm>
#include <cmath>

#include "importers/onnx/compose.h"

namespace plait::onnx_import {
namespace {

Attributes value_one() {
  Attributes out;
  out.set("value", Tensor::of_ints(std::vector<int64_t>{1}));
  return out;
}

ValueId rank_of(OldNode& old, ValueId id) { return old.emit("Shape", {old.emit("Shape", {id})}); }

/// b with dims of 1 at its end, so that its first dim meets dim `axis` of a.
ValueId aligned(OldNode& old, ValueId a, ValueId b, int64_t axis) {
  const ValueId after = axis < 0 ? old.ints({-axis}) : old.emit("Sub", {rank_of(old, a), old.ints({axis})});
  const ValueId more = old.emit("Max", {old.emit("Sub", {after, rank_of(old, b)}), old.ints({0})});
  const ValueId target = joined(old, {old.emit("Shape", {b}), old.emit("ConstantOfShape", {more}, value_one())});
  return old.emit("Reshape", {b, target}, OldNode::with("allowzero", 1));
}

/// momentum * running + (1 - momentum) * batch, as the node's output `index`, where it has that.
void track(OldNode& old, size_t index, double momentum, ValueId running, ValueId batch) {
  if (old.output(index) == no_value) return;
  const ValueId kept = old.emit("Mul", {running, old.scalar_like(momentum, running)});
  const ValueId added = old.emit("Mul", {batch, old.scalar_like(1 - momentum, running)});
  old.emit("Add", {kept, added}, {}, old.output(index));
}

/// The moments of the batch as outputs 3 and 4, where the node has those: running statistics without momentum.
void save_moments(OldNode& old) {
  if (old.output(3) == no_value && old.output(4) == no_value) return;
  Attributes attributes = OldNode::with("training_mode", 1);
  attributes.set("momentum", 0.0);
  old.emit("BatchNormalization", old.node.inputs, std::move(attributes));
  std::vector<ValueId>& made = old.graph.nodes.back().outputs;
  for (size_t k : {size_t{3}, size_t{4}}) made.push_back(old.output(k));
}

/// BatchNormalization with numbers by place: [b, s] with statistics [s].
void normalize_places(OldNode& old, bool training) {
  const ValueId x = old.required(0);
  const double epsilon = old.node.attributes.real("epsilon", 1e-5);
  ValueId mean = old.required(3), variance = old.required(4), centered;
  if (training) {
    auto over_batch = [&](ValueId of, ValueId as) {
      return old.emit("ReduceMean", {of, old.ints({0})}, OldNode::with("keepdims", 0), as);
    };
    const double momentum = old.node.attributes.real("momentum", 0.9);
    mean = over_batch(x, old.output(3));
    centered = old.emit("Sub", {x, mean});
    variance = over_batch(old.emit("Mul", {centered, centered}), old.output(4));
    track(old, 1, momentum, old.required(3), mean);
    track(old, 2, momentum, old.required(4), variance);
  } else {
    centered = old.emit("Sub", {x, mean});
  }
  const ValueId spread = old.emit("Sqrt", {old.emit("Add", {variance, old.scalar_like(epsilon, x)})});
  const ValueId normal = old.emit("Div", {centered, spread});
  old.become("Add", {old.emit("Mul", {normal, old.required(1)}), old.required(2)});
}

/// The mean of powers over windows, to the power of 1 / p, times (elements of a window)^(1 / p), is the window's norm.
void spell_power_pool(OldNode& old, double p) {
  const ValueId x = old.required(0), root = old.scalar_like(1 / p, x);
  const ValueId powers = old.emit("Pow", {old.emit("Abs", {x}), old.scalar_like(p, x)});
  ValueId mean, count;
  Attributes& attributes = old.node.attributes;
  attributes.erase("p");
  if (old.node.op == "GlobalLpPool") {
    mean = old.emit("GlobalAveragePool", {powers});
    const ValueId places = sizes_of(old, x, 2, Shape::max_rank);
    count = old.emit("CastLike", {old.emit("ReduceProd", {places}, OldNode::with("keepdims", 0)), x});
  } else {
    attributes.set("count_include_pad", int64_t{1});
    double places = 1;
    for (int64_t size : attributes.integers("kernel_shape")) places *= static_cast<double>(size);
    mean = old.emit("AveragePool", {powers}, attributes);
    count = old.scalar_like(places, x);
  }
  old.become("Mul", {old.emit("Pow", {mean, root}), old.emit("Pow", {count, root})});
}

}  // namespace

/// Before opset 7 the second operand was broadcast only on request, and aligned by `axis`.
void align_operand(OldNode& old) {
  if (old.node.attributes.integer("broadcast", 0) != 0 && old.node.attributes.has("axis"))
    old.set_input(1, aligned(old, old.required(0), old.required(1), old.node.attributes.integer("axis")));
  old.node.attributes.erase("broadcast");
  old.node.attributes.erase("axis");
}

/// Before opset 7: a slope for all channels, or one for each.
void align_slope(OldNode& old) { old.set_input(1, aligned(old, old.required(0), old.required(1), 1)); }

/// Before opset 14 there was no `training_mode`: first all trained but what `is_test` excepts, then all with more than one output. These
/// were the running mean and variance, and those of the batch. Before opset 9 numbers were by channel, or by place (`spatial` is 0).
void first_batch_normalization(OldNode& old) {
  bool several = false;
  for (size_t k = 1; k < old.node.outputs.size(); ++k) several |= old.output(k) != no_value;
  const bool training = old.opset < 7 ? old.node.attributes.integer("is_test", 0) == 0 : several;
  const bool by_channel = old.node.attributes.integer("spatial", 1) != 0;
  for (const char* name : {"is_test", "spatial", "consumed_inputs"}) old.node.attributes.erase(name);
  if (!by_channel) return normalize_places(old, training);
  if (training) {
    save_moments(old);
    old.node.attributes.set("training_mode", int64_t{1});
  }
  old.node.outputs.resize(std::min<size_t>(old.node.outputs.size(), training ? 3 : 1));
}

/// Before opset 7 attribute `is_test` asked for the operand itself; without it elements were dropped. Before opset 12 the ratio was an
/// attribute.
void first_dropout(OldNode& old) {
  const bool drops = old.node.attributes.integer("is_test", 0) == 0;
  old.node.attributes.erase("is_test");
  if (!drops) return;
  const auto ratio = static_cast<float>(old.node.attributes.real("ratio", 0.5));
  const uint8_t yes = 1;
  old.set_input(1, old.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&ratio, 1})));
  old.set_input(2, old.graph.add_constant(Tensor::of<uint8_t>(DType::boolean, Shape{}, {&yes, 1})));
  old.node.attributes.erase("ratio");
}

/// In opset 1 `p` was a number of any kind; in the present form it is an integer.
void first_power_pool(OldNode& old) {
  const Attribute* found = old.node.attributes.find("p");
  const double p = found && std::holds_alternative<double>(*found) ? std::get<double>(*found) : 2.0;
  if (!(p > 0)) throw Error(Code::bad_model, cat("attribute p is ", p, ", expected a power above 0"));
  if (p != std::floor(p) || p > 1e6) return spell_power_pool(old, p);
  old.node.attributes.set("p", static_cast<int64_t>(p));
}

/// Before opset 21 a scale and a bias for each group.
void first_group_normalization(OldNode& old) {
  const ValueId groups = old.ints({old.node.attributes.integer("num_groups")});
  const ValueId each = old.emit("Div", {sizes_of(old, old.required(0), 1, 2), groups});
  for (size_t k : {size_t{1}, size_t{2}}) {
    const ValueId columns = old.emit("Unsqueeze", {old.required(k), old.ints({1})});
    const ValueId spread = old.emit("Expand", {columns, joined(old, {groups, each})});
    old.set_input(k, old.emit("Reshape", {spread, old.ints({-1})}));
  }
}

/// In opset 1 one axis is repeated; its number and the count are of the operand's type.
void first_tile(OldNode& old) {
  const ValueId x = old.required(0);
  auto whole = [&](size_t k) {
    return old.emit("Reshape", {as_type(old, old.required(k), DType::i64), old.ints({1})});
  };
  const ValueId ones = old.emit("ConstantOfShape", {rank_of(old, x)}, value_one());
  const ValueId repeats = old.emit("ScatterElements", {ones, whole(2), whole(1)}, OldNode::with("axis", 0));
  old.node.inputs = {x, repeats};
}

/// In opset 1 the scales of height and width are attributes.
void first_upsample(OldNode& old) {
  Attributes& attributes = old.node.attributes;
  if (!attributes.has("height_scale") || !attributes.has("width_scale")) return;
  const float scales[] = {1, 1, static_cast<float>(attributes.real("height_scale", 1)),
                          static_cast<float>(attributes.real("width_scale", 1))};
  old.set_input(1, old.graph.add_constant(Tensor::of<float>(DType::f32, Shape{4}, scales)));
  attributes.erase("height_scale");
  attributes.erase("width_scale");
  if (attributes.string("mode", "nearest") == "bilinear") attributes.set("mode", std::string("linear"));
}

}  // namespace plait::onnx_import
