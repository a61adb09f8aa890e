// Strings of a run: packed outside of it, numbered within (core/base/strings.h).
#include <cstring>

#include "core/base/error.h"
#include "core/base/packed_list.h"
#include "core/base/text.h"
#include "core/exec/executor.h"

namespace plait {

/// The table of the last run, which bodies have too.
void Executor::forget_strings() {
  strings_.reset();
  for (auto& bodies : bodies_)
    for (auto& body : bodies)
      if (body) body->forget_strings();
}

/// A new table for the run's strings, in host memory of the budget, and the inputs with their strings in it.
std::span<const TensorView> Executor::numbered(std::span<const TensorView> inputs) {
  if (!program_->has_strings) return inputs;
  numbered_.clear();
  forget_strings();
  const StringTable::Take take = [budget = budget_, host = make_host_device()](int64_t bytes) {
    return budget->take(bytes, *host);
  };
  strings_ = std::make_shared<StringTable>(store_.strings(), take);
  numbered_views_.assign(inputs.begin(), inputs.end());
  const size_t count = std::min(inputs.size(), program_->inputs.size());  // another number of inputs is refused where they are bound
  for (size_t i = 0; i < count; ++i) {
    if (inputs[i].dtype != DType::string) continue;
    const std::optional<int64_t> before = numbers_of_list(inputs[i], program_->input_lists[i]);
    if (!before)
      throw Error(Code::invalid_argument, cat("input ", quote(program_->input_names[i]), " is no list of tensors"));
    numbered_views_[i] = numbered_.emplace_back(strings_->numbered(inputs[i], take, *before)).view();
  }
  return numbered_views_;
}

Tensor Executor::copy_of_output(int index) const {
  const TensorView view = output(index);
  if (view.dtype == DType::string) {
    const int64_t before = numbers_of_list(view, program_->output_lists[static_cast<size_t>(index)]).value_or(0);
    return strings_->packed(
        view, [&](int64_t bytes) { return budget_->need(bytes), make_blob(bytes); }, before);
  }
  Tensor copy(view.dtype, view.shape);
  if (view.bytes() > 0) std::memcpy(copy.data(), view.data, static_cast<size_t>(view.bytes()));
  return copy;
}

}  // namespace plait
