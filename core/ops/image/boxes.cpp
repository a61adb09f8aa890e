// Boxes and crops: NonMaxSuppression, CenterCropPad.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/image/register.h"

namespace plait {

namespace {

/// How many boxes remain depends on them: [count, 3], of image, class and box.
void infer_suppression(InferContext& context) { context.set(0, DType::i64, {context.unknown("selected"), Dim(3)}); }

/// The listed axes have the sizes of operand 1.
void infer_crop_pad(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *shape = context.contents(1);
  if (!x) return;
  std::vector<int64_t> axes = context.attributes().integers("axes");
  if (!context.attributes().has("axes"))
    for (size_t i = 0; i < x->size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (shape && shape->size() != axes.size())
    InferContext::fail(cat("shape has ", shape->size(), " entries for ", axes.size(), " axes"));
  Dims out = *x;
  for (size_t k = 0; k < axes.size(); ++k)
    out[checked_axis(axes[k], x->size())] = shape ? (*shape)[k] : context.unknown("crop");
  context.set_dims(0, std::move(out));
}

}  // namespace

void register_boxes(OpSet& ops) {
  ops.add({.name = "NonMaxSuppression",
           .inputs = "boxes scores max_output_boxes_per_class? iou_threshold? score_threshold?",
           .outputs = "selected_indices",
           .attributes = {{"center_point_box", "int", "0"}},
           .ranks = "3, 3, 0-1, 0-1, 0-1",
           .infer = infer_suppression,
           .doc = "the best boxes of each class that overlap none better",
           .since = 11});
  ops.add({.name = "CenterCropPad",
           .inputs = "input_data shape",
           .outputs = "output_data",
           .attributes = {{"axes", "ints", ""}},
           .ranks = ", 1",
           .infer = infer_crop_pad,
           .doc = "cropped, or padded with zeros, around the centre",
           .since = 18});
}

}  // namespace plait
