#include "core/train/training_engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "core/base/block.h"
#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/mesh/sharding.h"

namespace plait {
namespace {

/// Rows `begin` to `begin + count` of f32 [..., n, width].
TensorView rows_of(const TensorView& all, int64_t begin, int64_t count) {
  const int64_t width = all.shape[all.shape.rank() - 1];
  return {all.data + begin * width * static_cast<int64_t>(sizeof(float)), all.dtype, {count, width}};
}

ByteWriter with_number(std::span<const PackedRow> rows, double number) {
  ByteWriter out = as_bytes(rows);
  out.put(number);
  return out;
}

}  // namespace

TrainingEngine::TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                               ThreadPool& pool, LoadProgress* progress, World* world)
    : training_(training), mesh_(options.mesh), pool_(pool), world_(world), first_(world ? world->rank() : 0) {
  if (world && world->size() != mesh_.ranks())
    throw Error(
        Code::invalid_argument,
        cat("the mesh ", quote(mesh_.text()), " has ", mesh_.ranks(), " ranks, and the world ", world->size()),
        "start as many processes as the mesh has ranks");
  std::optional<Error> failure;
  try {
    make_ranks(graph, options, progress);
  } catch (...) {
    if (!leads()) throw;
    failure = current_error();
  }
  if (leads()) agree(std::move(failure));
  if (!world_) join();
}

TrainingEngine::~TrainingEngine() {
  try {
    tell(TrainingCall::end);
  } catch (...) {  // they have heard otherwise
  }
}

/// Compiles, and loads; ranks have nothing to say to each other yet.
void TrainingEngine::make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress) {
  const int64_t count = world_ ? 1 : mesh_.ranks();
  if (count > 1) worlds_ = make_thread_world(static_cast<int>(count));
  weights_ = count > 1 ? std::make_shared<Store>() : nullptr;
  for (int64_t i = 0; i < count; ++i)
    if (count > 1)
      pools_.push_back(std::make_unique<ThreadPool>(std::max(1, static_cast<int>(pool_.size() / count))));
  ranks_.resize(static_cast<size_t>(count));
  std::vector<LoadProgress> others(static_cast<size_t>(count));
  on_ranks([&](int64_t local) {
    const auto i = static_cast<size_t>(local);
    CompileOptions own = options;
    own.rank = rank_number(local);
    // The first says the same as all, and hears for all that the load is to end.
    LoadProgress* const its = local > 0 ? &others[i] : progress;
    if (local > 0) own.log = nullptr, own.dump = nullptr, own.progress = its;
    try {
      ranks_[i] =
          std::make_unique<TrainingRank>(graph, own, training_, count > 1 ? *pools_[i] : pool_, weights_, its);
    } catch (...) {
      for (LoadProgress& other : others) other.cancel();
      throw;
    }
  });
}

void TrainingEngine::join() {
  each([&](int64_t local) {
    World* world = world_ ? world_ : worlds_.empty() ? nullptr : worlds_[static_cast<size_t>(local)].get();
    ranks_[static_cast<size_t>(local)]->join(world);
  });
}

/// Calls task(local) for each rank of this process, on as many threads, and throws the error that came first.
template <class Task>
void TrainingEngine::on_ranks(const Task& task) const {
  std::vector<std::exception_ptr> errors(ranks_.size());
  auto run = [&](int64_t local) {
    try {
      task(local);
    } catch (...) {
      errors[static_cast<size_t>(local)] = std::current_exception();
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

/// The same where ranks wait for each other: what one of them throws ends it for all.
template <class Task>
void TrainingEngine::each(const Task& task) const {
  on_ranks([&](int64_t local) {
    try {
      task(local);
    } catch (...) {
      World* world = world_ ? world_ : worlds_.empty() ? nullptr : worlds_[static_cast<size_t>(local)].get();
      if (world) world->communicator().abort(current_error().message());
      throw;
    }
  });
}

/// What `task(rank, local)` returns for each rank of this process.
template <class Task>
auto TrainingEngine::gather(const Task& task) const {
  std::vector<decltype(task(*ranks_[0], 0))> out(ranks_.size());
  each([&](int64_t local) {
    const auto i = static_cast<size_t>(local);
    out[i] = task(*ranks_[i], local);
  });
  return out;
}

int64_t TrainingEngine::data_ranks() const { return mesh_.blocks(mesh_.parts("data")); }
int64_t TrainingEngine::row_of(int64_t local) const { return mesh_.block(rank_number(local), mesh_.parts("data")); }

/// Returns the number of tokens of the longest row.
int64_t TrainingEngine::check(std::span<const PackedRow> rows) const {
  if (static_cast<int64_t>(rows.size()) != data_ranks())
    throw Error(Code::invalid_argument, cat("a micro-batch has ", rows.size(), " rows, the mesh ", data_ranks(),
                                            " places along the axis data"));
  const int64_t vocabulary = model().decoder.vocabulary;
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
  return longest;
}

/// All rows with as many tokens and targets as the longest: what is added counts for nothing. None where nothing counts.
std::vector<TrainingRow> TrainingEngine::aligned(std::span<const PackedRow> rows, double weight, bool drops) const {
  const int64_t tokens = check(rows);
  std::vector<TrainingRow> out;
  size_t targets = 0;
  for (const PackedRow& row : rows) {
    TrainingRow& one = out.emplace_back(TrainingRow{row, {}, {}, {}, {}, {}});
    for (size_t i = 0; i < row.labels.size(); ++i)
      if (row.labels[i] >= 0) {
        one.rows.push_back(static_cast<int32_t>(i));
        one.labels.push_back(row.labels[i]);
      }
    one.weights.assign(one.rows.size(), static_cast<float>(weight));
    targets = std::max(targets, one.rows.size());
  }
  if (targets == 0) return {};
  fill_up(out, tokens, drops);
  for (TrainingRow& one : out) {
    one.rows.resize(targets, 0);
    one.labels.resize(targets, 0);
    one.weights.resize(targets, 0);
  }
  return out;
}

/// Makes the rows as long as the longest, with what goes by token.
void TrainingEngine::fill_up(std::vector<TrainingRow>& rows, int64_t tokens, bool drops) const {
  size_t places = 0;
  for (TrainingRow& one : rows) {
    pad_row(one.row, tokens);
    one.keys = keys_of(one.row, drops);
    if (training_.prefix.tokens) one.places = places_of(one.row, training_.prefix.tokens);
    places = std::max(places, one.places.tokens.size());
  }
  for (TrainingRow& one : rows) one.places.pad(places);
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
  ByteWriter out = with_number(rows, weight);
  out.put(last);
  tell(TrainingCall::accumulate, std::move(out));
  norm_ = -1;
  std::vector<double> norms(ranks_.size(), -1);
  const double sum = gather([&](TrainingRank& rank, int64_t local) {
    const TrainingRow& row = all[static_cast<size_t>(row_of(local))];
    return last ? rank.accumulate_last(row, norms[static_cast<size_t>(local)]) : rank.accumulate(row);
  })[0];
  norm_ = norms[0];
  return sum;
}

std::string TrainingEngine::find_fault(std::span<const PackedRow> rows, double weight) {
  const std::vector<TrainingRow> all = aligned(rows, weight, true);
  if (all.empty()) return {};
  tell(TrainingCall::find_fault, with_number(rows, weight));
  return first_fault(gather(
      [&](TrainingRank& rank, int64_t local) { return rank.find_fault(all[static_cast<size_t>(row_of(local))]); }));
}

/// Of all ranks: other processes report theirs.
std::string TrainingEngine::first_fault(std::vector<std::string> faults) const {
  for (int rank = 1; leads() && rank < world_->size(); ++rank)
    faults.push_back(read_report(world_->next_report(rank, false), rank).get_text());
  for (const std::string& fault : faults)
    if (!fault.empty()) return fault;
  return {};
}

double TrainingEngine::evaluate(std::span<const PackedRow> rows, std::vector<float>* losses) {
  if (losses) losses->clear();
  const std::vector<TrainingRow> all = aligned(rows, 1, false);
  if (all.empty()) return 0;
  tell(TrainingCall::evaluate, as_bytes(rows));
  const double sum = gather(
      [&](TrainingRank& rank, int64_t local) { return rank.evaluate(all[static_cast<size_t>(row_of(local))]); })[0];
  if (losses) {
    const std::vector<float> found = ranks_[0]->losses();
    auto loss = found.begin();
    for (const TrainingRow& row : all)
      for (float weight : row.weights) {
        if (weight != 0) losses->push_back(*loss);
        ++loss;
      }
  }
  return sum;
}

/// All rows with as many tokens as the longest, all of which they ask for.
std::vector<TrainingRow> TrainingEngine::whole(std::span<const PackedRow> rows) const {
  const int64_t tokens = check(rows);
  std::vector<TrainingRow> out;
  for (const PackedRow& row : rows) {
    TrainingRow& one = out.emplace_back(TrainingRow{row, {}, {}, {}, {}, {}});
    one.rows.resize(static_cast<size_t>(tokens));
    std::iota(one.rows.begin(), one.rows.end(), 0);
  }
  fill_up(out, tokens, training_.gradients);
  return out;
}

Tensor TrainingEngine::logits(std::span<const PackedRow> rows) {
  const std::vector<TrainingRow> all = whole(rows);
  tell(TrainingCall::logits, as_bytes(rows));
  const TensorView made = gather(
      [&](TrainingRank& rank, int64_t local) { return rank.logits(all[static_cast<size_t>(row_of(local))]); })[0];
  int64_t tokens = 0;
  for (const PackedRow& row : rows) tokens += row.tokens();
  Tensor out(DType::f32, {tokens, made.shape[2]});
  std::byte* to = out.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const TensorView part = rows_of(made, static_cast<int64_t>(i) * all[i].row.tokens(), rows[i].tokens());
    to = std::copy_n(part.data, part.bytes(), to);
  }
  return out;
}

void TrainingEngine::accumulate(std::span<const PackedRow> rows, const TensorView& given) {
  const std::vector<TrainingRow> all = whole(rows);
  tell(TrainingCall::backward, as_bytes(rows));
  if (world_) world_->communicator().broadcast({given.data, given.dtype, {given.elements()}}, 0);
  norm_ = -1;
  each([&](int64_t local) {
    const auto row = static_cast<size_t>(row_of(local));
    int64_t begin = 0;
    for (size_t i = 0; i < row; ++i) begin += rows[i].tokens();
    TensorView part = rows_of(given, begin, rows[row].tokens());
    Tensor filled;
    if (rows[row].tokens() < all[row].row.tokens()) {
      filled = Tensor(DType::f32, {all[row].row.tokens(), given.shape[1]});
      std::fill(std::copy_n(part.data, part.bytes(), filled.data()), filled.data() + filled.bytes(), std::byte{});
      part = filled.view();
    }
    part.shape = {1, part.shape[0], part.shape[1]};
    ranks_[static_cast<size_t>(local)]->accumulate(all[row], part);
  });
}

/// That each process's programs can take these.
void TrainingEngine::check(const NamedInputs& inputs) const {
  const Program& program = *model().evaluate;
  for (const std::string& name : program.input_names)
    if (!inputs.contains(name)) throw Error(Code::invalid_argument, cat("the input ", quote(name), " is missing"));
  for (const auto& [name, given] : inputs) {
    if (std::find(program.input_names.begin(), program.input_names.end(), name) == program.input_names.end())
      throw Error(Code::invalid_argument, cat("the loss does not depend on an input ", quote(name)));
    if (!model().spread_inputs.contains(name)) continue;
    if (given.shape.rank() == 0 || given.shape[0] % data_ranks())
      throw Error(Code::invalid_argument,
                  cat("the input ", quote(name), " is ", given.shape.text(),
                      ", whose first size is to be "
                      "shared out over ",
                      data_ranks(), " ranks"),
                  "give a batch that is a multiple of the mesh's data ranks");
  }
  ranks_[0]->check(part_of(inputs, 0));  // one rank's parts are as large as another's
}

NamedInputs TrainingEngine::part_of(const NamedInputs& inputs, int64_t local) const {
  NamedInputs out = inputs;
  for (auto& [name, view] : out) {
    if (!model().spread_inputs.contains(name)) continue;
    view.shape[0] /= data_ranks();
    view.data += row_of(local) * view.bytes();
  }
  return out;
}

double TrainingEngine::accumulate(const NamedInputs& inputs) {
  check(inputs);
  tell(TrainingCall::accumulate_inputs, as_bytes(inputs));
  norm_ = -1;
  std::vector<double> norms(ranks_.size(), -1);
  const double loss = gather([&](TrainingRank& rank, int64_t local) {
    return rank.accumulate_last(part_of(inputs, local), norms[static_cast<size_t>(local)]);
  })[0];
  norm_ = norms[0];
  return loss;
}

double TrainingEngine::evaluate(const NamedInputs& inputs) {
  check(inputs);
  tell(TrainingCall::evaluate_inputs, as_bytes(inputs));
  return gather([&](TrainingRank& rank, int64_t local) { return rank.evaluate(part_of(inputs, local)); })[0];
}

std::string TrainingEngine::find_fault(const NamedInputs& inputs) {
  check(inputs);
  tell(TrainingCall::find_fault_in_inputs, as_bytes(inputs));
  return first_fault(
      gather([&](TrainingRank& rank, int64_t local) { return rank.find_fault(part_of(inputs, local)); }));
}

double TrainingEngine::gradient_norm() {
  if (norm_ >= 0) return norm_;
  tell(TrainingCall::gradient_norm);
  return norm_ = gather([](TrainingRank& rank, int64_t) { return rank.gradient_norm(); })[0];
}

void TrainingEngine::update(double scale, double rate) {
  if (mesh_.ranks() > 1) gradient_norm();
  ByteWriter out;
  out.put(scale);
  out.put(rate);
  tell(TrainingCall::update, std::move(out));
  ++steps_;
  each([&](int64_t local) { ranks_[static_cast<size_t>(local)]->update(scale, rate, steps_); });
  norm_ = -1;
}

void TrainingEngine::set_steps(int64_t steps) {
  ByteWriter out;
  out.put(steps);
  tell(TrainingCall::set_steps, std::move(out));
  steps_ = steps;
}

void TrainingEngine::clear_gradients() {
  tell(TrainingCall::clear_gradients);
  for (const auto& rank : ranks_)
    if (rank) rank->clear_gradients();
  norm_ = -1;
}

std::vector<std::string> TrainingEngine::arrays(const TrainedParameter& parameter) const {
  std::vector<std::string> out{parameter.key};
  if (!training_.gradients) return out;  // and no optimizer
  for (const OptimizerState& state : optimizer_states(training_.optimizer.kind, parameter.shape.rank()))
    out.push_back(parameter.key + state.suffix);
  return out;
}

std::vector<std::string> TrainingEngine::arrays() const {
  std::vector<std::string> out;
  for (const TrainedParameter& parameter : parameters()) {
    const std::vector<std::string> kept = arrays(parameter);
    out.insert(out.end(), kept.begin(), kept.end());
  }
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
  ByteWriter name;
  name.put_text(key);
  tell(TrainingCall::array, std::move(name));
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
