#include "core/train/training_engine.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/base/block.h"
#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/mesh/sharding.h"

namespace plait {
TrainingEngine::TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                               ThreadPool& pool, LoadProgress* progress, World* world)
    : training_(training), mesh_(options.mesh), pool_(pool), world_(world), first_(world ? world->rank() : 0) {
  if (world && world->size() != mesh_.ranks())
    throw Error(
        Code::invalid_argument,
        cat("the mesh ", quote(mesh_.text()), " has ", mesh_.ranks(), " ranks, and the world ", world->size()),
        "start as many processes as the mesh has ranks");
  make_ranks(graph, options, progress);
}

TrainingEngine::~TrainingEngine() = default;

void TrainingEngine::make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress) {
  const int64_t count = world_ ? 1 : mesh_.ranks();
  if (count > 1) worlds_ = make_thread_world(static_cast<int>(count));
  weights_ = count > 1 ? std::make_shared<Store>() : nullptr;
  for (int64_t i = 0; i < count; ++i)
    if (count > 1)
      pools_.push_back(std::make_unique<ThreadPool>(std::max(1, static_cast<int>(pool_.size() / count))));
  ranks_.resize(static_cast<size_t>(count));
  each([&](int64_t local) {
    CompileOptions own = options;
    own.rank = rank_number(local);
    if (local > 0) own.log = nullptr, own.dump = nullptr, own.progress = nullptr;  // the first says the same
    auto rank =
        std::make_unique<TrainingRank>(graph, own, training_, count > 1 ? *pools_[static_cast<size_t>(local)] : pool_,
                                       weights_, local > 0 ? nullptr : progress);
    rank->join(world_ ? world_ : count > 1 ? worlds_[static_cast<size_t>(local)].get() : nullptr);
    ranks_[static_cast<size_t>(local)] = std::move(rank);
  });
}

/// Calls task(local) for each rank of this process, on as many threads, and throws the error that came first.
template <class Task>
void TrainingEngine::each(const Task& task) const {
  std::vector<std::exception_ptr> errors(ranks_.size());
  auto run = [&](int64_t local) {
    try {
      task(local);
    } catch (...) {
      errors[static_cast<size_t>(local)] = std::current_exception();
      World* world = world_ ? world_ : worlds_.empty() ? nullptr : worlds_[static_cast<size_t>(local)].get();
      if (!world) return;
      try {
        throw;
      } catch (const std::exception& error) {
        world->communicator().abort(error.what());
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t local = 1; local < local_ranks(); ++local) threads.emplace_back(run, local);
    run(0);
  }
  const int failed = worlds_.empty() ? 0 : std::max(worlds_[0]->communicator().failed_rank(), 0);
  if (errors[static_cast<size_t>(failed)]) std::rethrow_exception(errors[static_cast<size_t>(failed)]);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

int64_t TrainingEngine::data_ranks() const { return mesh_.blocks(mesh_.parts("data")); }
int64_t TrainingEngine::row_of(int64_t local) const { return mesh_.block(rank_number(local), mesh_.parts("data")); }

void TrainingEngine::check(const PackedRow& row) const {
  if (row.tokens() > training_.row_tokens)
    throw Error(Code::invalid_argument,
                cat("a row has ", row.tokens(), " tokens, at most ", training_.row_tokens, " were planned for"));
  const int64_t vocabulary = model().decoder.vocabulary;
  auto known = [&](int64_t id) { return vocabulary <= 0 || id < vocabulary; };
  for (int32_t id : row.ids)
    if (id < 0 || !known(id))
      throw Error(Code::invalid_argument, cat("token ", id, " is not in the vocabulary of ", vocabulary));
  for (int32_t id : row.labels)
    if (!known(id))
      throw Error(Code::invalid_argument, cat("label ", id, " is not in the vocabulary of ", vocabulary));
}

/// All rows with as many tokens and targets as the longest: what is added counts for nothing. None where nothing counts.
std::vector<TrainingRow> TrainingEngine::aligned(std::span<const PackedRow> rows, double weight, bool drops) const {
  if (static_cast<int64_t>(rows.size()) != data_ranks())
    throw Error(Code::invalid_argument, cat("a micro-batch has ", rows.size(), " rows, the mesh ", data_ranks(),
                                            " places along the axis data"));
  std::vector<TrainingRow> out;
  int64_t tokens = 0;
  size_t targets = 0;
  for (const PackedRow& row : rows) {
    check(row);
    TrainingRow& one = out.emplace_back(TrainingRow{row, {}, {}, {}, {}});
    for (size_t i = 0; i < row.labels.size(); ++i)
      if (row.labels[i] >= 0) {
        one.rows.push_back(static_cast<int32_t>(i));
        one.labels.push_back(row.labels[i]);
      }
    one.weights.assign(one.rows.size(), static_cast<float>(weight));
    tokens = std::max(tokens, row.tokens());
    targets = std::max(targets, one.rows.size());
  }
  if (targets == 0) return {};
  for (TrainingRow& one : out) {
    pad_row(one.row, tokens);
    one.keys = keys_of(one.row, drops);
    one.rows.resize(targets, 0);
    one.labels.resize(targets, 0);
    one.weights.resize(targets, 0);
  }
  return out;
}

/// By a token's place in the step, wherever it is computed. A host's own rows may say nothing of samples.
std::vector<int64_t> TrainingEngine::keys_of(const PackedRow& row, bool drops) const {
  const LoraOptions& lora = training_.lora;
  std::vector<int64_t> out(row.ids.size(), -1);
  if (!drops || lora.dropout == 0) return out;
  const uint64_t step = mixed_bits(lora.seed, static_cast<uint64_t>(steps_));
  for (size_t i = 0; i < out.size(); ++i) {
    const int32_t document = i < row.samples.size() ? row.samples[i] : row.segments[i];
    const uint64_t place = uint64_t{static_cast<uint32_t>(document)} << 32 | static_cast<uint32_t>(row.positions[i]);
    out[i] = static_cast<int64_t>(mixed_bits(step, place) >> 1);
  }
  return out;
}

double TrainingEngine::accumulate(std::span<const PackedRow> rows, double weight, bool last) {
  const std::vector<TrainingRow> all = aligned(rows, weight, true);
  if (all.empty()) return 0;
  norm_ = -1;
  std::vector<double> sums(ranks_.size()), norms(ranks_.size(), -1);
  each([&](int64_t local) {
    const auto i = static_cast<size_t>(local);
    const TrainingRow& row = all[static_cast<size_t>(row_of(local))];
    sums[i] = last ? ranks_[i]->accumulate_last(row, norms[i]) : ranks_[i]->accumulate(row);
  });
  norm_ = norms[0];
  return sums[0];
}

std::string TrainingEngine::find_fault(std::span<const PackedRow> rows, double weight) {
  const std::vector<TrainingRow> all = aligned(rows, weight, true);
  std::vector<std::string> faults(ranks_.size());
  if (!all.empty())
    each([&](int64_t local) {
      faults[static_cast<size_t>(local)] =
          ranks_[static_cast<size_t>(local)]->find_fault(all[static_cast<size_t>(row_of(local))]);
    });
  for (const std::string& fault : faults)
    if (!fault.empty()) return fault;
  return {};
}

double TrainingEngine::evaluate(std::span<const PackedRow> rows, std::vector<float>* losses) {
  if (losses) losses->clear();
  const std::vector<TrainingRow> all = aligned(rows, 1, false);
  if (all.empty()) return 0;
  std::vector<double> sums(ranks_.size());
  each([&](int64_t local) {
    sums[static_cast<size_t>(local)] =
        ranks_[static_cast<size_t>(local)]->evaluate(all[static_cast<size_t>(row_of(local))]);
  });
  if (losses) {
    const float* loss = ranks_[0]->losses().as<float>();
    for (const TrainingRow& row : all)
      for (float weight : row.weights) {
        if (weight != 0) losses->push_back(*loss);
        ++loss;
      }
  }
  return sums[0];
}

/// A row that asks for all of its tokens.
TrainingRow TrainingEngine::whole(const PackedRow& row) const {
  check(row);
  TrainingRow out{row, {}, {}, {}, keys_of(row, training_.gradients)};
  for (int64_t i = 0; i < row.tokens(); ++i) out.rows.push_back(static_cast<int32_t>(i));
  return out;
}

Tensor TrainingEngine::logits(const PackedRow& row) {
  const TensorView view = ranks_[0]->logits(whole(row));
  Tensor out(DType::f32, {row.tokens(), view.shape[2]});
  std::memcpy(out.data(), view.data, static_cast<size_t>(out.bytes()));
  return out;
}

void TrainingEngine::accumulate(const PackedRow& row, const TensorView& given) {
  TensorView gradients = given;
  gradients.shape = {1, given.shape[0], given.shape[1]};
  norm_ = -1;
  ranks_[0]->accumulate(whole(row), gradients);
}

double TrainingEngine::gradient_norm() {
  if (norm_ >= 0) return norm_;
  std::vector<double> norms(ranks_.size());
  each([&](int64_t local) {
    norms[static_cast<size_t>(local)] = ranks_[static_cast<size_t>(local)]->gradient_norm();
  });
  return norm_ = norms[0];
}

void TrainingEngine::update(double scale, double rate) {
  if (mesh_.ranks() > 1) gradient_norm();
  ++steps_;
  each([&](int64_t local) { ranks_[static_cast<size_t>(local)]->update(scale, rate, steps_); });
  norm_ = -1;
}

void TrainingEngine::clear_gradients() {
  for (const auto& rank : ranks_)
    if (rank) rank->clear_gradients();
  norm_ = -1;
}

std::vector<std::string> TrainingEngine::arrays(const TrainedParameter& parameter) const {
  std::vector<std::string> out{parameter.key};
  for (const OptimizerState& state : optimizer_states(training_.optimizer.kind, parameter.shape.rank()))
    out.push_back(parameter.key + state.suffix);
  return out;
}

ArrayBlock TrainingEngine::block(int64_t local, const std::string& key) const {
  const TrainingRank& rank = *ranks_[static_cast<size_t>(local)];
  const Tensor part = rank.array(key);
  ArrayBlock out{key, part.shape(), part.shape(), part.view()};
  const auto& places = rank.model().places;
  auto place = places.find(key);
  for (int d = 0; d < out.whole.rank(); ++d) {
    const AxisList axes = place == places.end() ? AxisList{} : place->second.dims[static_cast<size_t>(d)];
    out.begin[d] = part.shape()[d] * mesh_.block(rank_number(local), axes);
    out.whole[d] = part.shape()[d] * mesh_.blocks(axes);
  }
  return out;
}

bool TrainingEngine::is_first(int64_t local, const std::string& key) const {
  const auto& places = model().places;
  auto place = places.find(key);
  if (place == places.end()) return true;
  const AxisList cut = place->second.axes();
  for (AxisId axis = 0; axis < mesh_.sub_axes(); ++axis)
    if (std::find(cut.begin(), cut.end(), axis) == cut.end() && mesh_.coordinate(rank_number(local), axis))
      return false;
  return true;
}

Tensor TrainingEngine::array(const std::string& key) const {
  if (mesh_.ranks() == 1) return ranks_[0]->array(key);
  std::string from = key;
  if (const size_t sum = key.rfind(".gradient"); sum != std::string::npos)
    if (std::string reduced = key.substr(0, sum) + ".reduced"; ranks_[0]->has(reduced)) from = std::move(reduced);
  Tensor out;
  for (int64_t local = 0; local < local_ranks(); ++local) {
    const ArrayBlock part = block(local, from);
    if (local == 0) {
      out = Tensor(part.part.dtype, part.whole);
      std::memset(out.data(), 0, static_cast<size_t>(out.bytes()));
    }
    if (is_first(local, from)) put_block(out.view(), part.begin, part.part);
  }
  if (world_) world_->communicator().all_reduce(out.view(), Reduction::sum);
  return out;
}

int64_t TrainingEngine::store_bytes() const {
  int64_t sum = weights_ ? weights_->bytes() : 0;
  for (const auto& rank : ranks_) sum += rank->store_bytes();
  return sum;
}

int64_t TrainingEngine::run_bytes() const {
  int64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->run_bytes();
  return sum;
}

int64_t TrainingEngine::state_bytes(int64_t local) const {
  const TrainingRank& rank = *ranks_[static_cast<size_t>(local)];
  int64_t sum = 0;
  for (const TrainedParameter& parameter : parameters()) {
    std::vector<std::string> keys = arrays(parameter);
    for (const char* what : {".gradient", ".reduced"}) keys.push_back(parameter.key + what);
    for (const std::string& key : keys)
      if (rank.has(key)) sum += rank.array(key).bytes();
  }
  return sum;
}

}  // namespace plait
