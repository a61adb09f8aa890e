#include "core/train/batch_inputs.h"

#include <cstring>

namespace plait {
namespace {

template <class T>
Tensor row_of(DType dtype, const std::vector<T>& values) {
  return Tensor::of<T>(dtype, {1, static_cast<int64_t>(values.size())}, values);
}

/// Length of each token's document with its prefix; 1 for padding.
std::vector<int32_t> lengths_of(const PackedRow& row, int64_t prefix) {
  std::map<int32_t, int32_t> lengths;
  for (int32_t segment : row.segments) ++lengths[segment];
  std::vector<int32_t> out;
  for (int32_t segment : row.segments)
    out.push_back(segment < 0 ? 1 : lengths[segment] + static_cast<int32_t>(prefix));
  return out;
}

/// Position of each token in its document, counting the prefix.
std::vector<int32_t> positions_of(const PackedRow& row, int64_t prefix) {
  std::vector<int32_t> out = row.positions;
  for (size_t i = 0; i < out.size(); ++i)
    if (row.segments[i] >= 0) out[i] += static_cast<int32_t>(prefix);
  return out;
}

}  // namespace

Tensor copy_as(const TensorView& view, DType dtype) {
  Tensor out(view.dtype, view.shape);
  std::memcpy(out.data(), view.data, static_cast<size_t>(out.bytes()));
  if (view.dtype == dtype) return out;
  return materialize({{}, std::move(out), {{RecipeStep::Kind::cast, {}, dtype}}});
}

BatchInputs::BatchInputs(const RankBatch& batch, int64_t prefix)
    : given_(batch.inputs), weight_(batch.weight) {
  if (!given_.empty()) return;
  const TrainingRow& row = batch.row;
  const Places& places = row.places;
  add("ids", row_of<int64_t>(DType::i64, {row.row.ids.begin(), row.row.ids.end()}));
  ids_ = views_.at("ids");
  views_.erase("ids");  // the input with the file's name
  add("positions", row_of(DType::i32, positions_of(row.row, prefix)));
  add("segments", row_of(DType::i32, row.row.segments));
  add("lengths", row_of(DType::i32, lengths_of(row.row, prefix)));
  add("rows", row_of(DType::i32, row.rows));
  add("keys", row_of(DType::i64, row.keys));
  add("labels", row_of(DType::i32, row.labels));
  add("weights", row_of(DType::f32, row.weights));
  add("place_tokens", row_of(DType::i32, places.tokens));
  add("place_prefixes", row_of(DType::i32, places.prefixes));
  add("place_segments", row_of(DType::i32, places.segments));
  add("token_places", row_of(DType::i32, places.of_tokens));
  const auto count = static_cast<int64_t>(places.is_prefix.size());
  add("place_is_prefix", Tensor::of<uint8_t>(DType::boolean, {1, count, 1, 1}, places.is_prefix));
  if (batch.gradient.present()) views_["gradients"] = batch.gradient;
}

void BatchInputs::add(std::string_view name, Tensor tensor) {
  Tensor& kept = rows_[name] = std::move(tensor);
  views_[name] = kept.view();
}

std::vector<TensorView> BatchInputs::of(const Program& program) {
  std::vector<TensorView> out;
  converted_.clear();
  for (size_t i = 0; i < program.input_names.size(); ++i) {
    const std::string& name = program.input_names[i];
    const DType dtype = program.buffers[static_cast<size_t>(program.inputs[i])].dtype;
    if (name == loss_weight_input) {
      const Tensor weight = Tensor::of<double>(DType::f64, Shape(), {&weight_, 1});
      converted_.push_back(copy_as(weight.view(), dtype));
      out.push_back(converted_.back().view());
      continue;
    }
    if (!given_.empty()) {
      out.push_back(given_.find(name)->second);
      continue;
    }
    const auto found = views_.find(name);
    TensorView view = found == views_.end() ? ids_ : found->second;
    if (is_float(dtype) && view.dtype != dtype) {
      converted_.push_back(copy_as(view, dtype));
      view = converted_.back().view();
    }
    out.push_back(view);
  }
  return out;
}

}  // namespace plait
