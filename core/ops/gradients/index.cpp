// Gradients of indexed reads and writes: reads accumulate, overwritten data gets none.
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

Attributes adding(Attributes attributes) {
  attributes.set("reduction", std::string("add"));
  return attributes;
}

void of_gather(GradientContext& context) {
  context.give(
      0, context.add("plait.GatherBack", {context.gradient(), context.input(1), context.sizes(context.input(0))},
                     context.kept({"axis"})));
}

void of_gather_elements(GradientContext& context) {
  context.give(0,
               context.add("ScatterElements", {context.zeros(context.input(0)), context.input(1), context.gradient()},
                           adding(context.kept({"axis"}))));
}

/// Tuples that begin with the place in the first `count` dims, which they and the data share.
ValueId with_places(GradientContext& context, ValueId tuples, int64_t count) {
  const Dims dims = context.dims(tuples);
  const auto shared = static_cast<size_t>(count);
  Dims places(dims.begin(), dims.begin() + count), each = places, all(dims.begin(), dims.end() - 1);
  each.resize(dims.size() - 1, Dim(1));
  each.push_back(Dim(count));
  all.push_back(Dim(count));
  const ValueId ones = context.add("ConstantOfShape", {context.sizes(places)},
                                   one_attribute("value", Tensor::of_ints(std::vector<int64_t>{1})));
  const ValueId found =
      context.add("Transpose", {context.add("NonZero", {ones})}, one_attribute("perm", std::vector<int64_t>{1, 0}));
  ValueId spread = context.add("Reshape", {found, context.sizes(each)}, one_attribute("allowzero", int64_t{1}));
  if (dims.size() - 1 > shared) spread = context.add("Expand", {spread, context.sizes(all)});
  if (context.type(tuples).dtype != DType::i64)
    tuples = context.add("Cast", {tuples}, one_attribute("to", static_cast<int64_t>(DType::i64)));
  return context.add("Concat", {spread, tuples}, one_attribute("axis", int64_t{-1}));
}

void of_gather_nd(GradientContext& context) {
  const int64_t shared = context.attributes().integer("batch_dims", 0);
  const ValueId tuples = shared == 0 ? context.input(1) : with_places(context, context.input(1), shared);
  context.give(0,
               context.add("ScatterND", {context.zeros(context.input(0)), tuples, context.gradient()}, adding({})));
}

/// What is chosen, of an axis or of all elements, goes back to where it was.
void of_compress(GradientContext& context) {
  const ValueId x = context.input(0);
  const ValueId chosen = context.add("Reshape", {context.add("NonZero", {context.input(1)}), context.integers({-1})});
  if (const Attribute* axis = context.attributes().find("axis"))
    return context.give(0, context.add("plait.GatherBack", {context.gradient(), chosen, context.sizes(x)},
                                       one_attribute("axis", *axis)));
  const ValueId all = context.add("Reshape", {context.add("Size", {x}), context.integers({1})});
  const ValueId flat =
      context.add("plait.GatherBack", {context.gradient(), chosen, all}, one_attribute("axis", int64_t{0}));
  context.give(0, context.add("Reshape", {flat, context.sizes(x)}, one_attribute("allowzero", int64_t{1})));
}

/// New positions of a cache along an axis; what they replace gets no gradient.
void of_tensor_scatter(GradientContext& context) {
  const ValueId dy = context.gradient(), update = context.input(1), first = context.input(2);
  if (context.wants(0)) {
    std::vector<ValueId> inputs{dy, context.zeros(update)};
    if (first != no_value) inputs.push_back(first);
    context.give(0, context.add("TensorScatter", std::move(inputs), context.attributes()));
  }
  if (!context.wants(1)) return;
  const Dims dims = context.dims(update);
  int64_t axis = context.attributes().integer("axis", -2);
  if (axis < 0) axis += static_cast<int64_t>(dims.size());
  const auto at = static_cast<size_t>(axis);
  // Positions [batch or 1, 1.., t, 1..], for the elements of the update.
  auto scalar = [&](int64_t number) { return context.reshaped(context.integers({number}), Dims{}); };
  Dims of_axis(dims.size(), Dim(1)), of_batch = of_axis;
  of_axis[at] = dims[at];
  of_batch[0] = dims[0];
  const ValueId length = context.reshaped(context.sizes(Dims{dims[at]}), Dims{});
  ValueId places = context.reshaped(context.add("Range", {scalar(0), length, scalar(1)}), of_axis);
  if (first != no_value) {
    ValueId begin = first;
    if (context.type(first).dtype != DType::i64)
      begin = context.add("Cast", {first}, one_attribute("to", static_cast<int64_t>(DType::i64)));
    places = context.plus(places, context.reshaped(begin, of_batch));
    if (context.attributes().string("mode", "linear") == "circular")
      places = context.add("Mod", {places, context.sizes(Dims{context.dims(dy)[at]})});
  }
  context.give(1, context.add("GatherElements", {dy, context.add("Expand", {places, context.sizes(update)})},
                              one_attribute("axis", axis)));
}

/// The values of TopK; the choice has no gradient.
void of_top_k(GradientContext& context) {
  Attributes attributes;
  attributes.set("axis", context.attributes().integer("axis", -1));
  context.give(
      0, context.add("ScatterElements", {context.zeros(context.input(0)), context.output(1), context.gradient()},
                     adding(std::move(attributes))));
}

/// y = data with updates written at indices, or put together with what is there by addition, product, maximum or minimum. Data that
/// is overwritten gets no gradient. Of several updates to one place the last counts: the standard leaves open which.
class Scattered {
 public:
  Scattered(GradientContext& context, const char* scatter, const char* gather)
      : context_(context),
        scatter_(scatter),
        gather_(gather),
        data_(context.input(0)),
        indices_(context.input(1)),
        updates_(context.input(2)),
        dy_(context.gradient()) {}

  void run() {
    const std::string reduction = context_.attributes().string("reduction", "none");
    if (reduction == "mul") return of_product();
    if (reduction == "max" || reduction == "min") return of_extreme();
    if (context_.wants(0))
      context_.give(0, reduction == "add" ? dy_ : scattered(dy_, context_.zeros(updates_), "none"));
    if (context_.wants(2)) context_.give(2, gathered(dy_));
  }

 private:
  /// dy times the product of the others; of several factors of 0 in a place none gets any.
  void of_product() {
    const ValueId ones = context_.add("Expand", {context_.number(1, data_), context_.sizes(data_)});
    if (context_.wants(0)) context_.give(0, context_.times(dy_, scattered(ones, updates_, "mul")));
    if (!context_.wants(2)) return;
    const ValueId is_zero = context_.add("Equal", {updates_, context_.number(0, updates_)});
    const ValueId one = context_.number(1, updates_), zero = context_.number(0, updates_);
    const ValueId factors = context_.add("Where", {is_zero, one, updates_});  // without zeros
    const ValueId zeros = gathered(scattered(context_.zeros(data_), context_.cast(is_zero, data_), "add"));
    const ValueId others = context_.over(gathered(context_.times(dy_, scattered(data_, factors, "mul"))), factors);
    const ValueId own = context_.cast(is_zero, data_);  // the zeros of a place have to be this update's own
    context_.give(2, context_.add("Where", {context_.add("Equal", {zeros, own}), others, zero}));
  }

  /// Those that are the extreme of a place share its gradient.
  void of_extreme() {
    const ValueId y = context_.output();
    const ValueId in_data = context_.cast(context_.add("Equal", {data_, y}), data_);
    const ValueId in_updates = context_.cast(context_.add("Equal", {updates_, gathered(y)}), data_);
    const ValueId share = context_.over(dy_, scattered(in_data, in_updates, "add"));
    if (context_.wants(0)) context_.give(0, context_.times(share, in_data));
    if (context_.wants(2)) context_.give(2, context_.times(gathered(share), in_updates));
  }

  ValueId gathered(ValueId a) { return context_.add(gather_, {a, indices_}, context_.kept({"axis"})); }
  ValueId scattered(ValueId a, ValueId updates, const char* reduction) {
    Attributes attributes = context_.kept({"axis"});
    attributes.set("reduction", std::string(reduction));
    return context_.add(scatter_, {a, indices_, updates}, std::move(attributes));
  }

  GradientContext& context_;
  const char *scatter_, *gather_;
  const ValueId data_, indices_, updates_, dy_;
};

void of_scatter_nd(GradientContext& context) { Scattered(context, "ScatterND", "GatherND").run(); }
void of_scatter_elements(GradientContext& context) { Scattered(context, "ScatterElements", "GatherElements").run(); }

/// y = values[0] off the index, values[1] on it.
void of_one_hot(GradientContext& context) {
  const ValueId dy = context.gradient(), values = context.input(2);
  if (!context.wants(2)) return;
  const Attributes first = one_attribute("axis", int64_t{0});
  const ValueId ends = context.add("Concat",
                                   {context.reshaped(context.number(0, values), Dims{Dim(1)}),
                                    context.reshaped(context.number(1, values), Dims{Dim(1)})},
                                   first);
  const ValueId on = context.add("OneHot", {context.input(0), context.input(1), ends}, context.attributes());
  auto total = [&](ValueId x) {
    std::vector<int64_t> axes(context.dims(x).size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    return context.reshaped(context.sum(x, std::move(axes)), Dims{Dim(1)});
  };
  const ValueId of_on = total(context.times(dy, on)), of_all = total(dy);
  context.give(2, context.add("Concat", {context.minus(of_all, of_on), of_on}, first));
}

}  // namespace

void register_index_gradients(OpSet& ops) {
  ops.differentiate("Gather", of_gather);
  ops.differentiate("GatherElements", of_gather_elements);
  ops.differentiate("GatherND", of_gather_nd);
  ops.differentiate("Compress", of_compress);
  ops.differentiate("TensorScatter", of_tensor_scatter);
  ops.differentiate("TopK", of_top_k);
  ops.differentiate("OneHot", of_one_hot);
  ops.differentiate("ScatterND", of_scatter_nd);
  ops.differentiate("ScatterElements", of_scatter_elements);
}

}  // namespace plait
