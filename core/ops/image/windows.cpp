#include "core/ops/image/windows.h"

#include "core/base/text.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

/// Checks the lists of one entry per space dim, and returns stride, dilation and both pads of dim `i`.
struct Step {
  Step(const InferContext& context, size_t i, size_t space) {
    const Attributes& attributes = context.attributes();
    check_list(context, "strides", space, 1);
    check_list(context, "dilations", space, 1);
    check_list(context, "pads", 2 * space, INT32_MIN);
    stride = listed(attributes.integers("strides"), i, 1);
    dilation = listed(attributes.integers("dilations"), i, 1);
    automatic = attributes.string("auto_pad", "NOTSET");
    if (automatic != "NOTSET" && automatic != "VALID" && !automatic.starts_with("SAME"))
      InferContext::fail(cat("attribute \"auto_pad\" is ", quote(automatic)));
    if (automatic != "NOTSET") return;
    before = listed(attributes.integers("pads"), i, 0);
    after = listed(attributes.integers("pads"), i + space, 0);
  }
  bool same() const { return automatic.starts_with("SAME"); }
  Dim reach(const Dim& kernel) const { return Dim(dilation) * (kernel - Dim(1)) + Dim(1); }

  int64_t stride, dilation, before = 0, after = 0;
  std::string automatic;
};

}  // namespace

void check_list(const InferContext& context, std::string_view name, size_t count, int64_t least) {
  const std::vector<int64_t> list = context.attributes().integers(name);
  if (!list.empty() && list.size() != count)
    InferContext::fail(cat("attribute ", quote(name), " has ", list.size(), " entries, expected ", count));
  for (int64_t entry : list)
    if (entry < least || entry > INT32_MAX)
      InferContext::fail(
          cat("attribute ", quote(name), " has the entry ", entry, ", expected ", least, " to ", INT32_MAX));
}

std::optional<Dim> window_count(InferContext& context, const Dim& size, const Dim& kernel, size_t i, size_t space) {
  const Step step(context, i, space);
  if (step.same()) return known_ceiling(size, Dim(step.stride));
  const Dim span = size + Dim(step.before + step.after) - step.reach(kernel);
  const bool up = context.attributes().integer("ceil_mode", 0) != 0;
  std::optional<Dim> steps = up ? known_ceiling(span, Dim(step.stride)) : known_floor(span, Dim(step.stride));
  if (!steps) return std::nullopt;
  // The last window has to begin within the input or the padding before it.
  if (up && steps->is_constant() && size.is_constant() &&
      steps->constant() * step.stride >= size.constant() + step.before)
    return steps;
  return *steps + Dim(1);
}

Dim unpooled_size(InferContext& context, const Dim& size, const Dim& kernel, size_t i, size_t space) {
  const Step step(context, i, space);
  check_list(context, "output_padding", space, 0);
  if (step.same()) return size * Dim(step.stride);
  return (size - Dim(1)) * Dim(step.stride) + step.reach(kernel) - Dim(step.before + step.after) +
         Dim(listed(context.attributes().integers("output_padding"), i, 0));
}

std::string space_dims(size_t first, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += cat(" [x", first + i, "]");
  return out;
}

}  // namespace plait
