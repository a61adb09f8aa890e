#include "core/train/rank_batch.h"

#include <algorithm>
#include <numeric>

#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

int64_t MicroBatch::tokens() const {
  int64_t out = 0;
  for (const PackedRow& row : rows) out += row.tokens();
  return out;
}

TensorView rows_of(const TensorView& all, int64_t begin, int64_t count) {
  const int64_t width = all.shape[all.shape.rank() - 1];
  return {all.data + begin * width * static_cast<int64_t>(sizeof(float)), all.dtype, {count, width}};
}

/// Returns the number of tokens to which rows are padded: of the longest, and what ranks can share.
int64_t BatchSplitter::check(std::span<const PackedRow> rows) const {
  if (static_cast<int64_t>(rows.size()) != data_ranks_)
    throw Error(Code::invalid_argument, cat("a micro-batch has ", rows.size(), " rows, the mesh ", data_ranks_,
                                            " places along the axis data"));
  const int64_t vocabulary = model_.decoder.vocabulary;
  auto known = [&](int64_t id) { return vocabulary <= 0 || id < vocabulary; };
  int64_t longest = 0;
  for (const PackedRow& row : rows) {
    if (row.tokens() > training_.row_tokens)
      throw Error(Code::invalid_argument,
                  cat("a row has ", row.tokens(), " tokens, at most ", training_.row_tokens, " were planned for"));
    for (int32_t id : row.ids)
      if (id < 0 || !known(id))
        throw Error(Code::invalid_argument, cat("token ", id, " is not in the vocabulary of ", vocabulary));
    for (int32_t id : row.labels)
      if (!known(id))
        throw Error(Code::invalid_argument, cat("label ", id, " is not in the vocabulary of ", vocabulary));
    longest = std::max(longest, row.tokens());
  }
  const int64_t multiple = model_.token_multiple;
  return (longest + multiple - 1) / multiple * multiple;
}

std::vector<RankBatch> BatchSplitter::split(const MicroBatch& batch, bool dropout) const {
  if (!training_.loss.empty()) return split_inputs(batch);
  const int64_t tokens = check(batch.rows);
  std::vector<RankBatch> out;
  size_t targets = 0;
  for (const PackedRow& row : batch.rows) {
    TrainingRow& one = out.emplace_back(RankBatch{.row = {.row = row}, .last = batch.last}).row;
    for (size_t i = 0; i < row.labels.size(); ++i)
      if (row.labels[i] >= 0) {
        one.rows.push_back(static_cast<int32_t>(i));
        one.labels.push_back(row.labels[i]);
      }
    one.weights.assign(one.rows.size(), static_cast<float>(batch.weight));
    targets = std::max(targets, one.rows.size());
  }
  if (targets == 0) return {};
  pad(out, tokens, dropout);
  for (RankBatch& part : out) {
    part.row.rows.resize(targets, 0);
    part.row.labels.resize(targets, 0);
    part.row.weights.resize(targets, 0);
  }
  return out;
}

std::vector<RankBatch> BatchSplitter::split_for_logits(std::span<const PackedRow> rows) const {
  const int64_t tokens = check(rows);
  std::vector<RankBatch> out;
  for (const PackedRow& row : rows) {
    TrainingRow& one = out.emplace_back(RankBatch{.row = {.row = row}}).row;
    one.rows.resize(static_cast<size_t>(tokens));
    std::iota(one.rows.begin(), one.rows.end(), 0);
  }
  pad(out, tokens, training_.gradients);
  return out;
}

RankBatch BatchSplitter::with_gradient(const RankBatch& part, const MicroBatch& batch, int64_t data,
                                       Tensor& memory) const {
  RankBatch out = part;
  int64_t begin = 0;
  const auto number = static_cast<size_t>(data);
  for (size_t i = 0; i < number; ++i) begin += batch.rows[i].tokens();
  const int64_t tokens = batch.rows[number].tokens(), padded = part.row.row.tokens();
  out.gradient = rows_of(batch.gradient, begin, tokens);
  if (tokens < padded) {
    memory = Tensor(DType::f32, {padded, batch.gradient.shape[1]});
    std::fill(std::copy_n(out.gradient.data, out.gradient.bytes(), memory.data()), memory.data() + memory.bytes(),
              std::byte{});
    out.gradient = memory.view();
  }
  out.gradient.shape = {1, out.gradient.shape[0], out.gradient.shape[1]};
  return out;
}

/// Pads the rows to the longest, with all per-token inputs.
void BatchSplitter::pad(std::vector<RankBatch>& parts, int64_t tokens, bool dropout) const {
  size_t places = 0;
  for (RankBatch& part : parts) {
    TrainingRow& one = part.row;
    pad_row(one.row, tokens);
    one.keys =
        dropout && training_.lora.dropout != 0 ? dropout_keys(one.row) : std::vector<int64_t>(one.row.ids.size(), -1);
    if (training_.prefix.tokens) one.places = places_of(one.row, training_.prefix.tokens);
    places = std::max(places, one.places.tokens.size());
  }
  for (RankBatch& part : parts) part.row.places.pad(places);
}

/// Keys by a token's index in the step, independent of the rank that computes it. A host's own rows may have no
/// samples.
std::vector<int64_t> BatchSplitter::dropout_keys(const PackedRow& row) const {
  std::vector<int64_t> out(row.ids.size());
  const uint64_t step = mixed_bits(training_.lora.seed, static_cast<uint64_t>(step_));
  for (size_t i = 0; i < out.size(); ++i) {
    const int32_t document = i < row.samples.size() ? row.samples[i] : row.segments[i];
    const uint64_t place = uint64_t{static_cast<uint32_t>(document)} << 32 | static_cast<uint32_t>(row.positions[i]);
    out[i] = static_cast<int64_t>(mixed_bits(step, place) >> 1);
  }
  return out;
}

void BatchSplitter::check(const NamedInputs& inputs) const {
  const auto staged = model_.sections.find(TrainingProgram::evaluate);
  std::vector<std::string> names = staged == model_.sections.end()
                                       ? model_.program(TrainingProgram::evaluate).input_names
                                       : staged->second[0].program->input_names;
  std::erase(names, loss_weight_input);
  for (const std::string& name : names)
    if (!inputs.contains(name)) throw Error(Code::invalid_argument, cat("the input ", quote(name), " is missing"));
  for (const auto& [name, given] : inputs) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw Error(Code::invalid_argument, cat("the loss does not depend on an input ", quote(name)));
    if (!model_.spread_inputs.contains(name)) continue;
    if (given.shape.rank() == 0 || given.shape[0] % data_ranks_)
      throw Error(Code::invalid_argument,
                  cat("the input ", quote(name), " is ", given.shape.text(),
                      ", whose first size is to be shared out over ", data_ranks_, " ranks"),
                  "give a batch that is a multiple of the mesh's data ranks");
  }
}

std::vector<RankBatch> BatchSplitter::split_inputs(const MicroBatch& batch) const {
  check(batch.inputs);
  std::vector<RankBatch> out;
  for (int64_t data = 0; data < data_ranks_; ++data) {
    RankBatch& part = out.emplace_back(RankBatch{.inputs = batch.inputs, .weight = batch.weight, .last = batch.last});
    for (auto& [name, view] : part.inputs) {
      if (!model_.spread_inputs.contains(name)) continue;
      view.shape[0] /= data_ranks_;
      view.data += data * view.bytes();
    }
  }
  return out;
}

}  // namespace plait
