// Convolutions over any number of space dims: plain, transposed, deformable, and of quantized numbers.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"
#include "core/ops/image/register.h"
#include "core/ops/image/windows.h"

namespace plait {

namespace {

/// Operands x, w of a convolution with sizes known by rank.
bool checked_ranks(const Dims* x, const Dims* w) {
  if (!x || !w) return false;
  if (x->size() < 3 || w->size() != x->size())
    InferContext::fail(cat("x has rank ", x->size(), " and w rank ", w->size(), ", expected the same, at least 3"));
  return true;
}

/// w [.., .., kernel...]
void check_kernel(const InferContext& context, const Dims& w) {
  if (const int64_t group = context.attributes().integer("group", 1); group < 1)
    InferContext::fail(cat("attribute \"group\" is ", group, ", expected at least 1"));
  for (size_t i = 2; i < w.size(); ++i)
    if (w[i].is_constant() && w[i].constant() < 1)
      InferContext::fail(
          cat("w has size ", w[i].constant(), " in dimension ", i, ", expected a kernel of at least 1"));
}

/// [b, m, out...] for x, w at these operands.
void infer_windows(InferContext& context, int x_at, int w_at) {
  const Dims *x = context.dims(x_at), *w = context.dims(w_at);
  if (!checked_ranks(x, w)) return;
  check_kernel(context, *w);
  const size_t space = x->size() - 2;
  Dims out{(*x)[0], (*w)[0]};
  for (size_t i = 0; i < space; ++i) {
    std::optional<Dim> count = window_count(context, (*x)[i + 2], (*w)[i + 2], i, space);
    out.push_back(count ? *count : context.unknown("conv"));
  }
  context.set_dims(0, std::move(out));
}

void infer_conv(InferContext& context) {
  context.set_type(0, context.dtype(0));
  infer_windows(context, 0, 1);
}

void infer_conv_integer(InferContext& context) {
  context.set_type(0, DType::i32);
  infer_windows(context, 0, 1);
}

void infer_qlinear_conv(InferContext& context) {
  context.set_type(0, context.dtype(7));
  infer_windows(context, 0, 3);
}

/// w [c, m / group, kernel...]; the attribute output_shape determines the pads.
void infer_conv_transpose(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *w = context.dims(1);
  if (!checked_ranks(x, w)) return;
  check_kernel(context, *w);
  const size_t space = x->size() - 2;
  check_list(context, "output_shape", space, 0);
  const std::vector<int64_t> wanted = context.attributes().integers("output_shape");
  Dims out{(*x)[0], Dim(context.attributes().integer("group", 1)) * (*w)[1]};
  for (size_t i = 0; i < space; ++i) {
    const Dim size = unpooled_size(context, (*x)[i + 2], (*w)[i + 2], i, space);  // checks the attributes too
    out.push_back(wanted.empty() ? size : Dim(wanted[i]));
  }
  context.set_dims(0, std::move(out));
}

/// The rule of a product of x [b, c, space] with w, whose dims are (m, c) or, transposed, (c, m).
std::string product_dims(const Node& node, const std::vector<Type>& in, size_t w_at, size_t bias_at, bool transposed,
                         std::string_view star) {
  const size_t space = rank_of(in[0]) - 2;
  const bool bias = !is_absent(in, bias_at), grouped = node.attributes.integer("group", 1) != 1;
  const std::string c = bias || star.empty() ? "[c]" : "c", own_star(bias ? "" : star);
  const std::string outer =
      grouped ? (transposed ? cat("(g ", c, ") m") : cat("(g m) ", c)) : (transposed ? cat(c, " m") : cat("m ", c));
  std::vector<std::string> operands(std::max(in.size(), w_at + 1));
  operands[0] = cat(own_star, "b ", grouped ? cat("(g ", c, ")") : c, space_dims(0, space));
  operands[w_at] = cat(own_star, outer, space_dims(space, space));
  const std::string m = grouped ? "(g m)" : "m";
  if (bias) operands[bias_at] = m;
  return rule_text(operands, {cat("b ", m, space_dims(2 * space, space))});
}

std::string conv_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  return product_dims(node, in, 1, 2, false, "*");
}

std::string conv_transpose_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  return product_dims(node, in, 1, 2, true, "*");
}

/// Zero points are subtracted before the product, so channels are whole where there are some.
std::string conv_integer_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  if (is_absent(in, 2) && is_absent(in, 3)) return product_dims(node, in, 1, 4, false, "*");
  if (!is_absent(in, 3) && !in[3].dims->empty()) return "";
  return product_dims(node, in, 1, 4, false, "");
}

/// Offsets [b, 2 offset_group taps, out...] and mask [b, offset_group taps, out...].
void infer_deform_conv(InferContext& context) { infer_conv(context); }

/// Operands w, offset, bias?, mask? of a DeformConv after `x`, in a rule whose factor of output channels is `made`.
std::vector<std::string> deformed_operands(const std::vector<Type>& in, size_t first, size_t bias_at, size_t mask_at,
                                           std::string_view made, const std::string& places) {
  const size_t space = rank_of(in[first]) - 2;
  std::vector<std::string> out(in.size());
  out[first] = cat("b [c]", space_dims(0, space));
  out[first + 1] = cat(made, " [d]", space_dims(space, space));
  out[first + 2] = cat("b [o]", places);
  if (!is_absent(in, bias_at)) out[bias_at] = made;
  if (!is_absent(in, mask_at)) out[mask_at] = cat("b [e]", places);
  return out;
}

/// The batch is free, and output channels are without groups.
std::string deform_conv_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t space = rank_of(in[0]) - 2;
  const std::string places = space_dims(2 * space, space),
                    made = node.attributes.integer("group", 1) == 1 ? "m" : "[m]";
  return rule_text(deformed_operands(in, 0, 3, 4, made, places), {cat("b ", made, places)});
}

/// The batch is free; the gradient of w is a sum over it.
std::string deform_back_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const size_t space = rank_of(in[1]) - 2, none = in.size();
  const std::string places = space_dims(2 * space, space);
  std::vector<std::string> operands = deformed_operands(in, 1, none, 4, "[m]", places);
  operands[0] = cat("*b [m]", places);
  std::vector<std::string> results{operands[1], operands[2] + " {all}", operands[3],
                                   in.size() > 4 ? operands[4] : ""};
  results.resize(std::min(results.size(), out.size()));
  for (size_t k = 0; k < results.size(); ++k)
    if (out[k].dtype == DType::none) results[k].clear();
  return rule_text(operands, results);
}

/// All operands are arrays over space.
void infer_deform_back(InferContext& context) {
  infer_gradients<1, 2, 3, 4>(context);
  const Dims* dy = context.dims(0);
  for (int k = 1; dy && k < context.inputs(); ++k)
    if (const Dims* own = context.has(k) ? context.dims(k) : nullptr; own && own->size() != dy->size())
      InferContext::fail(cat("operand ", k, " has rank ", own->size(), ", expected ", dy->size()));
}

/// x [b, c taps, n], the columns that a convolution multiplies: added where each window read them.
void infer_col2im(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *image = context.contents(1), *block = context.contents(2);
  std::optional<size_t> space = known_length(context.dims(1));
  if (!x || !space) return;
  check_list(context, "strides", *space, 1);
  check_list(context, "dilations", *space, 1);
  check_list(context, "pads", 2 * *space, 0);
  std::optional<Dim> channels = block ? known_quotient((*x)[1], product(*block)) : std::nullopt;
  Dims out{(*x)[0], channels ? *channels : context.unknown("channels")};
  for (size_t i = 0; i < *space; ++i)
    out.push_back(image && i < image->size() ? (*image)[i] : context.unknown("image"));
  context.set_dims(0, std::move(out));
}

}  // namespace

void register_convolution(OpSet& ops) {
  const std::vector<AttributeRow> sliding{
      {"auto_pad", "string", "NOTSET"}, {"dilations", "ints", "1"}, {"group", "int", "1", "g"},
      {"kernel_shape", "ints", ""},     {"pads", "ints", "0"},      {"strides", "ints", "1"}};
  std::vector<AttributeRow> unsliding = sliding;
  unsliding.push_back({"output_padding", "ints", "0"});
  unsliding.push_back({"output_shape", "ints", ""});
  ops.add({.name = "Conv",
           .inputs = "x w b?",
           .outputs = "y",
           .attributes = sliding,
           .dims = "b [c] [x], m [c] [k], m -> b m [y]",
           .dims_of = conv_dims,
           .infer = infer_conv,
           .doc = "a kernel slid over space, each group of channels by itself",
           .since = 22});
  ops.add({.name = "ConvTranspose",
           .inputs = "x w b?",
           .outputs = "y",
           .attributes = unsliding,
           .dims = "b [c] [x], [c] m [k], m -> b m [y]",
           .dims_of = conv_transpose_dims,
           .ranks = "3-, 3-, 1",
           .infer = infer_conv_transpose,
           .doc = "the transpose of Conv: each element spread by a kernel",
           .since = 22});
  ops.add({.name = "ConvInteger",
           .inputs = "x w x_zero_point? w_zero_point?",
           .outputs = "y",
           .attributes = sliding,
           .dims = "b [c] [x], m [c] [k], , -> b m [y]",
           .dims_of = conv_integer_dims,
           .ranks = "3-, 3-, 0-1, 0-1",
           .infer = infer_conv_integer,
           .doc = "Conv of 8-bit integers less their zero points, in i32",
           .since = 10});
  ops.add({.name = "QLinearConv",
           .inputs = "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point b?",
           .outputs = "y",
           .attributes = sliding,
           .ranks = "3-, 0-1, 0-1, 3-, 0-1, 0-1, 0-1, 0-1, 1",
           .infer = infer_qlinear_conv,
           .doc = "Conv of quantized numbers, quantized again",
           .since = 10});
  std::vector<AttributeRow> deformed(sliding.begin() + 1, sliding.end());
  deformed.push_back({"offset_group", "int", "1"});
  ops.add({.name = "DeformConv",
           .inputs = "x w offset b? mask?",
           .outputs = "y",
           .attributes = deformed,
           .dims = "b [c] [x], m [d] [k], b [o] [y], m, b [e] [y] -> b m [y]",
           .dims_of = deform_conv_dims,
           .ranks = "3-, 3-, 3-, 1, 3-",
           .infer = infer_deform_conv,
           .doc = "Conv whose kernel positions are moved by offsets (Dai et al. 2017, Zhu et al. 2019)",
           .since = 22});
  ops.add({.name = "plait.DeformConvBack",
           .inputs = "dy x w offset mask?",
           .outputs = "dx? dw? doffset? dmask?",
           .attributes = deformed,
           .dims = "*b [m] [y], b [c] [x], [m] [d] [k], b [o] [y], b [e] [y] -> b [c] [x], [m] [d] [k] {all}, b [o] "
                   "[y], b [e] [y]",
           .dims_of = deform_back_dims,
           .ranks = "3-, 3-, 3-, 3-, 3-",
           .infer = infer_deform_back,
           .doc = "the gradients of DeformConv"});
  ops.add({.name = "Col2Im",
           .inputs = "input image_shape block_shape",
           .outputs = "output",
           .attributes = {{"dilations", "ints", "1"}, {"pads", "ints", "0"}, {"strides", "ints", "1"}},
           .ranks = "3, 1, 1",
           .infer = infer_col2im,
           .doc = "the columns of a convolution added into an image",
           .since = 18});
}

}  // namespace plait
