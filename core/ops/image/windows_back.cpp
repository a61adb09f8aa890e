// What gradients of convolution and pooling need.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/image/register.h"
#include "core/ops/image/windows.h"

namespace plait {

namespace {

void infer_conv_weight(InferContext& context) {
  context.set_type(0, context.dtype(1));
  if (const Dims* sizes = context.contents(2)) context.set_dims(0, *sizes);
  else if (const Dims* x = context.dims(1)) context.set_dims(0, unknown_dims(context, x->size(), "weight"));
}

std::string conv_weight_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t space = rank_of(in[1]) - 2;
  const bool grouped = node.attributes.integer("group", 1) != 1;
  return rule_text({cat("*b ", grouped ? "(g m)" : "m", space_dims(0, space)),
                    cat("*b ", grouped ? "(g c)" : "c", space_dims(space, space)), whole("n")},
                   {cat(grouped ? "(g m)" : "m", " c", space_dims(2 * space, space))});
}

void infer_pool_back(InferContext& context) {
  context.set_type(0, context.dtype(1));
  const Dims* x = context.dims(1);
  if (!x) return;
  const size_t space = x->size() - 2;
  for (const char* name : {"kernel_shape", "strides", "dilations"}) check_list(context, name, space, 1);
  check_list(context, "pads", 2 * space, INT32_MIN);
  context.set_dims(0, *x);
}

std::string pool_back_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t space = rank_of(in[1]) - 2;
  const std::string x = cat("b c", space_dims(space, space));
  return rule_text({cat("*b c", space_dims(0, space)), x}, {x});
}

/// A window of all of space leaves sizes of 1.
std::string power_pool_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!node.attributes.integers("kernel_shape").empty()) return pool_back_dims(node, in, out);
  const std::string x = cat("b c", space_dims(0, rank_of(in[1]) - 2));
  std::string dy = "*b c";
  for (size_t i = 2; i < rank_of(in[1]); ++i) dy += " 1";
  return rule_text({dy, x}, {x});
}

}  // namespace

void register_windows_back(OpSet& ops) {
  ops.add({.name = "plait.ConvWeight",
           .inputs = "dy x sizes",
           .outputs = "dw",
           .attributes = {{"dilations", "ints", "1"},
                          {"group", "int", "1", "g"},
                          {"pads", "ints", "0"},
                          {"strides", "ints", "1"}},
           .dims = "*b m [y], *b c [x], [n] -> m c [k]",
           .dims_of = conv_weight_dims,
           .target = 2,
           .ranks = "3-, 3-, 1",
           .infer = infer_conv_weight,
           .doc = "the gradient of a convolution's weight"});
  const std::vector<AttributeRow> sliding{{"auto_pad", "string", "NOTSET"},
                                          {"ceil_mode", "int", "0"},
                                          {"count_include_pad", "int", "0"},
                                          {"dilations", "ints", "1"},
                                          {"kernel_shape", "ints", "required"},
                                          {"pads", "ints", "0"},
                                          {"strides", "ints", "1"}};
  ops.add({.name = "plait.MaxPoolBack",
           .inputs = "dy x",
           .outputs = "dx",
           .attributes = sliding,
           .dims = "*b c [y], b c [x] -> b c [x]",
           .dims_of = pool_back_dims,
           .ranks = "3-, 3-",
           .infer = infer_pool_back,
           .doc = "the gradient of MaxPool: to the greatest of each window"});
  ops.add({.name = "plait.AveragePoolBack",
           .inputs = "dy x",
           .outputs = "dx",
           .attributes = sliding,
           .dims = "*b c [y], b c [x] -> b c [x]",
           .dims_of = pool_back_dims,
           .ranks = "3-, 3-",
           .infer = infer_pool_back,
           .doc = "the gradient of AveragePool: shared by each window"});
  std::vector<AttributeRow> powers;
  for (AttributeRow row : sliding) {
    if (row.name == "count_include_pad") continue;
    if (row.name == "kernel_shape") row.default_text.clear();
    powers.push_back(std::move(row));
  }
  powers.push_back({"p", "int", "2"});
  ops.add({.name = "plait.LpPoolBack",
           .inputs = "dy x",
           .outputs = "dx",
           .attributes = std::move(powers),
           .dims = "*b c [y], b c [x] -> b c [x]",
           .dims_of = power_pool_back_dims,
           .ranks = "2-, 2-",
           .infer = infer_pool_back,
           .doc = "the gradient of LpPool, and without kernel_shape of GlobalLpPool"});
}

}  // namespace plait
