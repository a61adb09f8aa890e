#include "core/ops/plain/register.h"

#include "core/ops/image/register.h"
#include "core/ops/ml/register.h"
#include "core/ops/signal/register.h"
#include "core/ops/strings/register.h"

namespace plait {

void register_plain_ops(OpSet& ops) {
  for (auto family : {register_convolution, register_pooling, register_resize, register_boxes, register_channels_last,
                      register_windows_back, register_recurrent_layers, register_transforms, register_random,
                      register_ngrams, register_strings, register_features, register_labels, register_linear_models,
                      register_support_vectors, register_trees})
    family(ops);
}

}  // namespace plait
