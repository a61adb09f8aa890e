#include "core/train/async_window.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/exec/store_keys.h"

namespace plait {
namespace {

// Mail between stages in addition to the runner's, whose tags are positive.
enum class Mail : int64_t { squares, sum, total };
int64_t tag_of(Mail what, int64_t step, size_t parameter = 0) {
  return -1 - ((3 * step + static_cast<int64_t>(what)) * (int64_t{1} << 20) + static_cast<int64_t>(parameter));
}

bool is_backward(Action::Kind kind) { return kind == Action::Kind::backward || kind == Action::Kind::weight_gradient; }

}  // namespace

AsyncWindow::AsyncWindow(const Schedule& schedule, const TrainingModel& model, const WindowOptions& options,
                         std::vector<bool> empty, StageSections& sections, Store& store, Communicator& pipeline,
                         Communicator& control, Optimizer optimizer)
    : model_(model),
      options_(options),
      empty_(std::move(empty)),
      sections_(sections),
      store_(store),
      pipeline_(pipeline),
      control_(control),
      optimizer_(std::move(optimizer)),
      consistent_(schedule.is_consistent()),
      rank_(pipeline.rank()),
      squares_(options.rates.size(), 0),
      norms_(options.rates.size(), std::numeric_limits<double>::quiet_NaN()) {
  for (const TrainedParameter& one : model.parameters)
    if (model.holds(one, rank_)) own_.push_back(one);
  plan(schedule.ranks[static_cast<size_t>(rank_)]);
}

/// Which version each micro-batch reads.
void AsyncWindow::plan(const std::vector<Action>& list) {
  version_of_.assign(empty_.size(), 0);
  int64_t updates = 0;
  for (const Action& action : list) {
    if (action.kind == Action::Kind::update) ++updates;
    if (action.kind != Action::Kind::forward || empty_[static_cast<size_t>(action.micro_batch)]) continue;
    const int64_t version = action.version < 0 ? updates : action.version;
    version_of_[static_cast<size_t>(action.micro_batch)] = version;
    ++uses_[version];
  }
  last_of_.assign(options_.rates.size(), -1);
  for (size_t k = 0; k < empty_.size(); ++k)
    if (!empty_[k]) last_of_[k / static_cast<size_t>(options_.micro_batches)] = static_cast<int64_t>(k);
}

void AsyncWindow::prepare(const Action& action) {
  const int64_t version = version_of_[static_cast<size_t>(action.micro_batch)];
  ArraysByKey arrays = gradients_of(step_of(action));
  if (version < updates_) {
    const ArraysByKey& weights = kept_.at(version);
    arrays.insert(weights.begin(), weights.end());
  }
  sections_.use(action, arrays);
  sections_.prepare(action);
}

/// The sums of a step's gradients. Every second step has sums of its own, since one can still wait for its norm.
ArraysByKey AsyncWindow::gradients_of(int64_t step) {
  ArraysByKey out;
  if (!consistent_ || step % 2 == 0) return out;
  for (const TrainedParameter& one : own_)
    for (const std::string& key : store_keys::gradient_keys(one.key))
      if (store_.has(key)) out[key] = spare_gradient(key);
  return out;
}

Tensor& AsyncWindow::spare_gradient(const std::string& key) {
  Tensor& out = spare_gradients_[key];
  if (!out.present()) {
    out = device_array(store_.get(key));
    store_.device().fill(store_.device().queue(Device::Use::compute), out.data(), 0, out.bytes());
  }
  return out;
}

Tensor AsyncWindow::device_array(const Tensor& like) const {
  return store_.device().upload(Tensor(like.dtype(), like.shape()));
}

void AsyncWindow::finish(const Action& action) {
  sections_.finish(action);
  if (!is_backward(action.kind)) return;
  const int64_t version = version_of_[static_cast<size_t>(action.micro_batch)];
  if (--uses_[version] == 0 && version < updates_) {
    free_.push_back(std::move(kept_.at(version)));
    kept_.erase(version);
  }
  if (action.micro_batch == last_of_[static_cast<size_t>(step_of(action))]) end_of_backwards(step_of(action));
}

/// The rank's part of the norm is made, and sent: ranks that end a step's backward passes earlier do not wait for it before
/// their update.
void AsyncWindow::end_of_backwards(int64_t step) {
  give_to_first_holders(step);
  take_from_holders(step);
  double& squares = squares_[static_cast<size_t>(step)] = optimizer_.squares(gradients_of(step));
  give_totals(step);
  if (!consistent_) return;
  for (int32_t to = 0; to < control_.size(); ++to)
    if (to != rank_)
      control_.send({reinterpret_cast<std::byte*>(&squares), DType::f64, {1}}, to, tag_of(Mail::squares, step));
}

double AsyncWindow::norm_of(int64_t step) {
  double sum = 0;  // in the order of ranks, so that all have the same bits
  for (int32_t from = 0; from < control_.size(); ++from) {
    double squares = squares_[static_cast<size_t>(step)];
    if (from != rank_)
      control_.recv({reinterpret_cast<std::byte*>(&squares), DType::f64, {1}}, from, tag_of(Mail::squares, step),
                    Patience::progress);
    sum += squares;
  }
  return std::sqrt(sum);
}

void AsyncWindow::update(const Action& action) {
  const int64_t step = action.micro_batch;
  if (last_of_[static_cast<size_t>(step)] < 0) end_of_backwards(step);
  take_totals(step);
  double scale = 1, finite = squares_[static_cast<size_t>(step)];
  if (consistent_) {
    const double norm = finite = norms_[static_cast<size_t>(step)] = norm_of(step);
    if (options_.clip > 0 && norm > options_.clip) scale = options_.clip / norm;
  }
  if (!std::isfinite(finite) && !stopped_) stopped_ = true, stopped_at_ = updates_;
  keep_version();
  if (!stopped_)
    optimizer_.update(scale, options_.rates[static_cast<size_t>(step)], options_.first_step + step, gradients_of(step));
  ++updates_;
}

/// A copy of the weights, if micro-batches still read them.
void AsyncWindow::keep_version() {
  if (uses_[updates_] == 0) return;
  ArraysByKey& kept = kept_[updates_];
  if (!free_.empty()) {
    kept = std::move(free_.back());
    free_.pop_back();
  }
  Device& device = store_.device();
  for (const TrainedParameter& one : own_) {
    const Tensor weight = store_.get(one.key);
    Tensor& copy = kept[one.key];
    if (!copy.present()) copy = device_array(weight);
    device.copy(device.queue(Device::Use::compute), copy.data(), weight.data(), weight.bytes());
  }
}

// ---- parameters that several stages hold: the first holder sums their gradients, and the others get the sum ----

Tensor AsyncWindow::gradient(const std::string& key, int64_t step) {
  const ArraysByKey arrays = gradients_of(step);
  const auto found = arrays.find(key);
  return found == arrays.end() ? store_.get(key) : found->second;
}

/// What the update reads: the sum over data ranks, if it is an array of its own.
Tensor AsyncWindow::total_of(const TrainedParameter& parameter, int64_t step) {
  const std::string reduced = store_keys::reduced_gradient(parameter.key);
  return gradient(store_.has(reduced) ? reduced : store_keys::gradient(parameter.key), step);
}

void AsyncWindow::give_to_first_holders(int64_t step) {
  for (size_t i = 0; i < own_.size(); ++i) {
    const std::vector<int32_t>& holders = model_.holders.at(own_[i].key);
    if (holders.size() == 1 || is_first(holders)) continue;
    const Tensor sum = gradient(store_keys::gradient(own_[i].key), step);
    pipeline_.send(sum.view(), holders.front(), tag_of(Mail::sum, step, index_of(i)));
    store_.device().fill(store_.device().queue(Device::Use::compute), const_cast<std::byte*>(sum.data()), 0, sum.bytes());
  }
}

void AsyncWindow::take_from_holders(int64_t step) {
  Device& device = store_.device();
  for (size_t i = 0; i < own_.size(); ++i) {
    const std::vector<int32_t>& holders = model_.holders.at(own_[i].key);
    if (holders.size() == 1 || !is_first(holders)) continue;
    const Tensor sum = gradient(store_keys::gradient(own_[i].key), step), other = device_array(sum);
    for (int32_t from : holders) {
      if (from == rank_) continue;
      pipeline_.recv(other.view(), from, tag_of(Mail::sum, step, index_of(i)), Patience::progress);
      const Tensor a = device.fetch(sum), b = device.fetch(other);
      const auto add = [&](const auto* x, const auto* y, auto* out) {
        for (int64_t k = 0; k < sum.elements(); ++k) out[k] = x[k] + y[k];
      };
      device.overwrite(sum.view(), [&](const TensorView& host) {
        if (host.dtype == DType::f64) add(a.as<double>(), b.as<double>(), reinterpret_cast<double*>(host.data));
        else add(a.as<float>(), b.as<float>(), reinterpret_cast<float*>(host.data));
      });
    }
  }
}

void AsyncWindow::give_totals(int64_t step) {
  for (size_t i = 0; i < own_.size(); ++i) {
    const std::vector<int32_t>& holders = model_.holders.at(own_[i].key);
    if (holders.size() == 1 || !is_first(holders)) continue;
    for (int32_t to : holders)
      if (to != rank_) pipeline_.send(total_of(own_[i], step).view(), to, tag_of(Mail::total, step, index_of(i)));
  }
}

void AsyncWindow::take_totals(int64_t step) {
  for (size_t i = 0; i < own_.size(); ++i) {
    const std::vector<int32_t>& holders = model_.holders.at(own_[i].key);
    if (holders.size() == 1 || is_first(holders)) continue;
    pipeline_.recv(total_of(own_[i], step).view(), holders.front(), tag_of(Mail::total, step, index_of(i)),
                   Patience::progress);
  }
}

/// The same number on all ranks.
size_t AsyncWindow::index_of(size_t own) const {
  const auto found = std::find_if(model_.parameters.begin(), model_.parameters.end(),
                                  [&](const TrainedParameter& one) { return one.key == own_[own].key; });
  return static_cast<size_t>(found - model_.parameters.begin());
}

}  // namespace plait
