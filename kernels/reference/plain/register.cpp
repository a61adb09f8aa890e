#include "kernels/reference/plain/register.h"

#include "kernels/reference/image/register.h"
#include "kernels/reference/ml/register.h"
#include "kernels/reference/signal/register.h"
#include "kernels/reference/strings/register.h"

namespace plait::reference {

void add_plain(KernelTable& table) {
  add_convolve(table);
  add_deform(table);
  add_pooling(table);
  add_resize(table);
  add_sampling(table);
  add_regions(table);
  add_boxes(table);
  add_channels_last(table);
  add_windows_back(table);
  add_recurrent_layers(table);
  add_recurrent_back(table);
  add_transforms(table);
  add_random(table);
  add_ngrams(table);
  add_string_joins(table);
  add_string_splits(table);
  add_string_normalizer(table);
  add_string_patterns(table);
  add_features(table);
  add_labels(table);
  add_linear_models(table);
  add_support_vectors(table);
  add_trees(table);
}

}  // namespace plait::reference
