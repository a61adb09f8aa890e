#include "core/exec/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

int64_t align_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Executor::Executor(std::shared_ptr<const Program> program, const Store& store, ThreadPool& pool,
                   std::shared_ptr<MemoryBudget> budget, std::vector<Communicator*> groups,
                   std::shared_ptr<Blob> arena)
    : program_(std::move(program)),
      store_(store),
      device_(store.device()),
      queue_(device_.queue(Device::Use::compute)),
      pool_(pool),
      budget_(budget ? std::move(budget) : std::make_shared<MemoryBudget>()),
      groups_(std::move(groups)) {
  PLAIT_ASSERT(groups_.size() == program_->groups.size());
  for (const StoreEntry& entry : program_->entries) entries_.push_back(store.get(entry.key));
  size_t buffers = program_->buffers.size();
  views_.resize(buffers);
  unsized_.resize(buffers);
  offsets_.assign(buffers, -1);
  capacities_.assign(buffers, -1);
  symbols_.assign(static_cast<size_t>(program_->symbols.size()), -1);
  bodies_.resize(program_->instructions.size());
  inferred_.resize(program_->instructions.size());
  for (size_t i = 0; i < buffers; ++i) {
    const Buffer& buffer = program_->buffers[i];
    views_[i].dtype = buffer.dtype;
    if (buffer.place == Buffer::Place::store) views_[i] = entries_[static_cast<size_t>(buffer.index)].view();
    if (buffer.place == Buffer::Place::store && program_->entries[static_cast<size_t>(buffer.index)].written)
      written_buffers_.push_back(i);
    if (buffer.place == Buffer::Place::slot) slot_buffers_.push_back(i);
  }
  for (const Tensor& entry : entries_) {
    if (entry.blob()) blobs_.push_back(entry.blob().get());
  }
  std::sort(blobs_.begin(), blobs_.end());
  blobs_.erase(std::unique(blobs_.begin(), blobs_.end()), blobs_.end());
  capturable_ = capturable();
  if (!program_->bounded) return;
  const bool fits = arena && arena->size() >= program_->arena_bytes;
  arena_ = fits ? std::move(arena) : budget_->take(program_->arena_bytes, device_);
}

Executor::~Executor() = default;

void Executor::bind_symbol(const Dim& dim, int64_t size, int input, int axis) {
  auto place = [&] {
    return cat("input ", quote(program_->input_names[static_cast<size_t>(input)]), " has size ", size,
               " in dimension ", axis);
  };
  auto multiple = dim.single_multiple();
  if (!multiple || symbols_[static_cast<size_t>(multiple->symbol)] >= 0) {
    for (SymbolId id : dim.symbols())
      if (symbols_[static_cast<size_t>(id)] < 0) return;  // an expression of unbound symbols: nothing to compare
    if (dim.evaluate(symbols_) != size)
      throw Error(Code::invalid_argument, cat(place(), ", expected ", dim.evaluate(symbols_),
                                              dim.is_constant() ? "" : cat(" (", dim.text(program_->symbols), ")")));
    return;
  }
  const Symbol& row = program_->symbols[multiple->symbol];
  if (size % multiple->factor)
    throw Error(Code::invalid_argument, cat(place(), ", expected a multiple of ", multiple->factor));
  if (row.bound && size / multiple->factor > row.bound)
    throw Error(Code::invalid_argument, cat(place(), ", at most ", row.bound * multiple->factor,
                                            " were planned for (", dim.text(program_->symbols), ")"));
  symbols_[static_cast<size_t>(multiple->symbol)] = size / multiple->factor;
}

/// Returns whether any symbol has another value than in the last run.
bool Executor::bind_symbols(std::span<const TensorView> inputs) {
  if (inputs.size() != program_->inputs.size())
    throw Error(Code::invalid_argument, cat("expected ", program_->inputs.size(), " inputs, got ", inputs.size()));
  std::vector<int64_t> before(symbols_.size(), -1);
  before.swap(symbols_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Buffer& buffer = program_->buffers[static_cast<size_t>(program_->inputs[i])];
    const TensorView& given = inputs[i];
    const std::string& name = program_->input_names[i];
    if (given.dtype != buffer.dtype)
      throw Error(Code::invalid_argument, cat("input ", quote(name), " has dtype ", dtype_name(given.dtype),
                                              ", expected ", dtype_name(buffer.dtype)));
    if (buffer.sized && given.shape.rank() != static_cast<int>(buffer.dims.size()))
      throw Error(Code::invalid_argument, cat("input ", quote(name), " has shape ", given.shape.text(), ", expected ",
                                              text(buffer.dims, program_->symbols)));
    if (buffer.sized)
      for (int axis = 0; axis < given.shape.rank(); ++axis) {
        if (auto multiple = buffer.dims[static_cast<size_t>(axis)].single_multiple())
          if (symbols_[static_cast<size_t>(multiple->symbol)] < 0)
            bind_symbol(buffer.dims[static_cast<size_t>(axis)], given.shape[axis], static_cast<int>(i), axis);
      }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {  // expressions, once all single symbols are bound
    const Buffer& buffer = program_->buffers[static_cast<size_t>(program_->inputs[i])];
    if (buffer.sized)
      for (int axis = 0; axis < inputs[i].shape.rank(); ++axis)
        bind_symbol(buffer.dims[static_cast<size_t>(axis)], inputs[i].shape[axis], static_cast<int>(i), axis);
    views_[static_cast<size_t>(program_->inputs[i])] = inputs[i];
  }
  return before != symbols_;
}

/// Computes shapes and arena offsets of all sized buffers for the current symbol values.
void Executor::size_buffers() {
  using Place = Buffer::Place;
  std::vector<int64_t> bytes(views_.size(), 0);
  for (size_t i = 0; i < views_.size(); ++i) {
    const Buffer& buffer = program_->buffers[i];
    if (!buffer.sized || buffer.place == Place::input || buffer.place == Place::store) continue;
    Shape shape;
    for (const Dim& dim : buffer.dims) shape.push_back(dim.evaluate(symbols_));
    checked_elements({shape.begin(), shape.end()}, dtype_bits(buffer.dtype));
    views_[i].shape = shape;
    if (buffer.place == Place::arena) bytes[i] = views_[i].bytes();
  }
  place_slots();
  if (!program_->bounded) plan_arena(bytes);
  for (size_t i = 0; i < views_.size(); ++i) {
    const Buffer& buffer = program_->buffers[i];
    if (buffer.place == Place::arena && buffer.sized)
      views_[i].data = arena_->mutable_data() + (program_->bounded ? buffer.offset : offsets_[i]);
  }
}

/// Lays the slots of each pool out one after another, and points buffers to them.
void Executor::place_slots() {
  slot_offsets_.clear();
  slot_bytes_ = {};
  for (const Slot& slot : program_->slots) {
    std::vector<int64_t> dims;
    for (const Dim& dim : slot.dims) dims.push_back(dim.evaluate(symbols_));
    const int bits = dtype_bits(slot.dtype);
    int64_t& end = slot_bytes_[static_cast<size_t>(slot.pool)];
    slot_offsets_.push_back(end);
    end += align_64(packed_bytes(checked_elements(dims, bits), bits));
  }
  for (size_t i : slot_buffers_) {
    const auto index = static_cast<size_t>(program_->buffers[i].index);
    std::byte* const memory = slot_memory_[static_cast<size_t>(program_->slots[index].pool)];
    views_[i].data = memory ? memory + slot_offsets_[index] : nullptr;
  }
}

void Executor::use(const std::map<std::string, Tensor, std::less<>>& arrays) {
  for (size_t i : written_buffers_) {
    const auto index = static_cast<size_t>(program_->buffers[i].index);
    const std::string& key = program_->entries[index].key;
    const auto found = arrays.find(key);
    entries_[index] = found == arrays.end() ? store_.get(key) : found->second;
    std::byte* const data = entries_[index].view().data;
    if (std::exchange(views_[i].data, data) != data) forget_launches();
  }
}

int64_t Executor::slot_bytes(SlotPool pool) const {
  const bool used = std::any_of(slot_buffers_.begin(), slot_buffers_.end(), [&](size_t i) {
    return program_->slots[static_cast<size_t>(program_->buffers[i].index)].pool == pool;
  });
  return used ? slot_bytes_[static_cast<size_t>(pool)] : 0;
}

void Executor::set_slots(std::span<std::byte* const> pools) {
  if (std::equal(pools.begin(), pools.end(), slot_memory_.begin(), slot_memory_.end())) return;
  std::copy_n(pools.begin(), slot_memory_.size(), slot_memory_.begin());
  forget_launches();
  if (sized_) place_slots();
}

TensorView Executor::slot(int32_t index) const {
  for (size_t i : slot_buffers_)
    if (program_->buffers[i].index == index) return views_[i];
  throw Error(Code::internal, cat("a program has no slot ", index));
}

/// Without bounds for all symbols: plans for the current sizes, and again when one of them grows.
void Executor::plan_arena(std::span<const int64_t> bytes) {
  bool fits = arena_ != nullptr;
  for (size_t i = 0; i < bytes.size(); ++i) fits = fits && bytes[i] <= std::max<int64_t>(capacities_[i], 0);
  if (fits) return;
  std::vector<int64_t> sizes, offsets;
  std::vector<int32_t> born, dies;
  std::vector<size_t> which;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const Buffer& buffer = program_->buffers[i];
    if (buffer.place != Buffer::Place::arena || !buffer.sized) continue;
    which.push_back(i);
    sizes.push_back(std::max(bytes[i], capacities_[i]));
    born.push_back(buffer.born);
    dies.push_back(buffer.dies);
  }
  offsets.resize(sizes.size());
  int64_t total = plan_offsets(sizes, born, dies, offsets);
  forget_launches();
  arena_.reset();
  arena_ = budget_->take(total, device_);
  for (size_t k = 0; k < which.size(); ++k) {
    offsets_[which[k]] = offsets[k];
    capacities_[which[k]] = sizes[k];
  }
}

void Executor::bind(std::span<const TensorView> inputs) {
  bool sized = std::exchange(sized_, false);  // after an error, partial sizes must not count as valid
  if (bind_symbols(inputs) || !sized) size_buffers();
  sized_ = true;
}

namespace {

/// During its lifetime `flag` stops the pool.
class StopOn {
 public:
  StopOn(ThreadPool& pool, const std::atomic<bool>* flag) : pool_(pool), before_(pool.stop_on(flag)) {}
  ~StopOn() { pool_.stop_on(before_); }
  StopOn(const StopOn&) = delete;

 private:
  ThreadPool& pool_;
  const std::atomic<bool>* before_;
};

}  // namespace

void Executor::run(std::span<const TensorView> inputs) {
  for (const Blob* blob : blobs_) blob->check();
  // With groups the others would wait for what this rank leaves out.
  StopOn stop(pool_, groups_.empty() ? &budget_->cancelled() : nullptr);
  run_on_device(stage(numbered(inputs)));
}

/// Copies all inputs to one block of device memory in one transfer. The block is reused while large enough.
std::span<const TensorView> Executor::stage(std::span<const TensorView> inputs) {
  if (device_.shares_host_memory()) return inputs;
  staged_.assign(inputs.begin(), inputs.end());
  int64_t bytes = 0;
  for (const TensorView& one : inputs) bytes = align_64(bytes) + one.bytes();
  if (!inputs_ || inputs_->size() < bytes) {
    forget_launches();
    inputs_.reset();
    inputs_ = budget_->take(bytes, device_);
  }
  staged_bytes_.resize(static_cast<size_t>(bytes));
  int64_t at = 0;
  for (TensorView& one : staged_) {
    at = align_64(at);
    if (one.bytes()) std::memcpy(staged_bytes_.data() + at, one.data, static_cast<size_t>(one.bytes()));
    one.data = inputs_->mutable_data() + at;
    at += one.bytes();
  }
  device_.write(queue_, inputs_->mutable_data(), staged_bytes_.data(), bytes);
  return staged_;
}

void Executor::run_on_device(std::span<const TensorView> inputs) {
  if (!program_->refusal.empty()) throw Error(Code::bad_model, program_->refusal);
  bind(inputs);
  fetched_.clear();
  fault_ = {};
  watched_nan_ = false;
  try {
    if (!replay()) execute_all();
    if (!device_.shares_host_memory()) device_.finish(device_.record(queue_));
    check_fault();
  } catch (...) {
    abandon();
    throw;
  }
}

namespace {

struct NotFinite {
  bool nan = false, infinity = false;
};

NotFinite not_finite(Device& device, const TensorView& on_device) {
  if (!on_device.data) return {};
  const Tensor tensor = device.fetch(on_device);
  const TensorView view = tensor.view();
  NotFinite out;
  auto look = [&](auto value_of) {
    for (int64_t i = 0; i < view.elements(); ++i) {
      const double value = static_cast<double>(value_of(i));
      out.nan |= std::isnan(value);
      out.infinity |= std::isinf(value);
    }
  };
  switch (view.dtype) {
    case DType::f32: look([&](int64_t i) { return view.as<float>()[i]; }); break;
    case DType::f64: look([&](int64_t i) { return view.as<double>()[i]; }); break;
    case DType::bf16: look([&](int64_t i) { return to_float(view.as<BFloat16>()[i]); }); break;
    case DType::f16: look([&](int64_t i) { return to_float(view.as<Float16>()[i]); }); break;
    default: break;
  }
  return out;
}

}  // namespace

/// An in-place result is also seen as an operand, so such an instruction is never named as the origin.
void Executor::watch(const Instruction& instruction) {
  NotFinite taken, made;
  for (const auto& [views, what] : {std::pair(&in_, &taken), std::pair(&out_, &made)})
    for (const TensorView& view : *views) {
      const NotFinite one = not_finite(device_, view);
      what->nan |= one.nan;
      what->infinity |= one.infinity;
    }
  const bool nan = made.nan && !taken.nan, infinity = made.infinity && !taken.infinity && !taken.nan;
  if (watch_->empty() && infinity) *watch_ = cat(instruction.origin, ", an infinity");
  if (nan) *watch_ += cat(watch_->empty() ? "" : ", then by ", instruction.origin, ", a NaN");
  watched_nan_ = nan;
}

double monotonic_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Executor::add_event(const TraceEvent& event) {
  constexpr size_t most_events = 1 << 20;
  if (trace_ && trace_->size() < most_events) trace_->push_back(event);
}

/// Only collectives wait for other ranks. `wait_before` measures asynchronous ones.
void Executor::execute_measured(size_t index) {
  const Instruction& instruction = program_->instructions[index];
  TraceEvent event;
  event.collective = instruction.kind == Instruction::Kind::collective;
  event.name = instruction.kernel ? std::string_view(instruction.kernel->op)
               : event.collective ? op_name(instruction.call.kind)
                                  : "control";
  const bool says = event.collective && instruction.call.kind != CollectiveKind::shard;
  const bool waits = says && pending_.empty();
  const double waited_before = waits ? groups_[0]->waited_s() : 0;
  event.begin = monotonic_s();
  execute(index);
  event.end = monotonic_s();
  ProfileRow* row =
      profiling_
          ? &profile_[instruction.kernel ? cat(event.name, " ", instruction.kernel->isa) : std::string(event.name)]
          : nullptr;
  if (row) row->calls += 1;
  if (says && !(waits && pending_.empty())) return;
  if (waits) event.waited = groups_[0]->waited_s() - waited_before;
  add_event(event);
  if (!row) return;
  row->seconds += event.end - event.begin;
  row->waited += event.waited;
}

void Executor::execute_all() {
  const size_t count = program_->instructions.size();
  for (size_t i = 0; i < count; ++i) {
    if (due_ <= static_cast<int32_t>(i)) wait_before(static_cast<int32_t>(i));
    if (profiling_ || trace_) execute_measured(i);
    else execute(i);
    if (watch_ && !watched_nan_) watch(program_->instructions[i]);
  }
  if (due_ != never) wait_before(static_cast<int32_t>(count));
}

void Executor::execute(size_t index) {
  const Instruction& instruction = program_->instructions[index];
  if (groups_.empty()) budget_->check();
  gather_operands(instruction);
  switch (instruction.kind) {
    case Instruction::Kind::compute: compute(instruction); break;
    case Instruction::Kind::sizes: write_sizes(instruction); break;
    case Instruction::Kind::branch: branch(index); break;
    case Instruction::Kind::loop: loop(index); break;
    case Instruction::Kind::collective: collective(index); break;
  }
  release_unsized(static_cast<int32_t>(index));
}

void Executor::gather_operands(const Instruction& instruction) {
  auto resolve = [&](BufferId id) {
    if (id < 0) return TensorView{};
    const Buffer& buffer = program_->buffers[static_cast<size_t>(id)];
    TensorView& view = views_[static_cast<size_t>(id)];
    if (buffer.place == Buffer::Place::view) view.data = views_[static_cast<size_t>(buffer.index)].data;
    return view;
  };
  in_.clear();
  out_.clear();
  for (BufferId id : instruction.inputs) in_.push_back(resolve(id));
  if (instruction.infer) infer_outputs(instruction);
  for (BufferId id : instruction.outputs) out_.push_back(resolve(id));
}

bool Executor::InferredTypes::hold(std::span<const TensorView> inputs) const {
  if (!known) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype != operands[i].first || !(inputs[i].shape == operands[i].second)) return false;
    if (!elements[i].empty() && std::memcmp(elements[i].data(), inputs[i].data, elements[i].size()) != 0)
      return false;
  }
  return true;
}

/// Kept from the last run where the operands are alike: rules cost microseconds.
const std::vector<std::pair<DType, Shape>>& Executor::types_of_outputs(const Instruction& instruction) {
  InferredTypes& types = inferred_[static_cast<size_t>(&instruction - program_->instructions.data())];
  const bool by_data = instruction.kernel && instruction.kernel->output_shape;
  if (types.hold(in_)) return types.outputs;
  types = {};
  std::vector<bool> read;
  instruction.infer(small_on_host(in_, by_data), types.outputs, read);
  types.known = !by_data && device_.shares_host_memory();
  types.elements.resize(in_.size());
  for (size_t i = 0; i < in_.size(); ++i) {
    types.operands.emplace_back(in_[i].dtype, in_[i].shape);
    if (!read[i] || !in_[i].data || !types.known) continue;
    if (in_[i].bytes() > Instruction::inferred_bytes) types.known = false;
    else types.elements[i].assign(in_[i].data, in_[i].data + in_[i].bytes());
  }
  return types.outputs;
}

/// Keeps memory that nothing refers to any more for the next value of its size; the oldest goes when there is too much.
void Executor::give_back(std::shared_ptr<Blob>& memory) {
  constexpr size_t most_spare = 32;
  if (memory && memory.use_count() == 1) spare_.push_back(std::move(memory));
  if (spare_.size() > most_spare) spare_.erase(spare_.begin());
  memory.reset();
}

/// Memory for a value whose size was not planned: that of an earlier one, if it fits well.
std::shared_ptr<Blob> Executor::take_unsized(int64_t bytes) {
  auto best = spare_.end();
  for (auto at = spare_.begin(); at != spare_.end(); ++at)
    if ((*at)->size() >= bytes && (*at)->size() <= 2 * bytes + 4096 &&
        (best == spare_.end() || (*at)->size() < (*best)->size()))
      best = at;
  if (best != spare_.end()) {
    std::shared_ptr<Blob> found = std::move(*best);
    spare_.erase(best);
    return found;
  }
  try {
    return budget_->take(bytes, device_);
  } catch (const Error&) {
    if (spare_.empty()) throw;
    spare_.clear();
    return budget_->take(bytes, device_);
  }
}

void Executor::infer_outputs(const Instruction& instruction) {
  const std::vector<std::pair<DType, Shape>>& types = types_of_outputs(instruction);
  for (size_t k = 0; k < instruction.outputs.size(); ++k) {
    BufferId id = instruction.outputs[k];
    if (id < 0) continue;
    TensorView& view = views_[static_cast<size_t>(id)];
    if (program_->buffers[static_cast<size_t>(id)].sized) {
      if (view.shape == types[k].second) continue;
      throw Error(
          Code::invalid_argument,
          cat(instruction.origin, ": its operands make ", types[k].second.text(), " where the graph expects ",
              view.shape.text()),
          "inputs whose sizes the model takes for equal have to be equal, and what it squeezes without naming "
          "dims must be 1 exactly where the graph specifies 1");
    }
    view.dtype = types[k].first;
    view.shape = types[k].second;
    checked_elements({view.shape.begin(), view.shape.end()}, dtype_bits(view.dtype));
    try {
      std::shared_ptr<Blob>& memory = unsized_[static_cast<size_t>(id)];
      give_back(memory);
      memory = take_unsized(view.bytes());
    } catch (const Error& error) {
      throw error.at(instruction.origin);
    }
    view.data = unsized_[static_cast<size_t>(id)]->mutable_data();
  }
}

/// The same views with data readable by the host; null for large operands unless `all`, since sizes follow from few
/// numbers.
std::span<const TensorView> Executor::small_on_host(std::span<const TensorView> views, bool all) {
  if (device_.shares_host_memory()) return views;
  on_host_.clear();
  on_host_views_.clear();
  for (const TensorView& view : views) {
    if (view.data && (all || view.bytes() <= Instruction::inferred_bytes)) on_host_.push_back(device_.fetch(view));
    else on_host_.emplace_back();
    on_host_views_.push_back({on_host_.back().data(), view.dtype, view.shape});
  }
  return on_host_views_;
}

void Executor::release_unsized(int32_t index) {
  const Instruction& instruction = program_->instructions[static_cast<size_t>(index)];
  for (BufferId id : instruction.inputs)
    if (id >= 0 && unsized_[static_cast<size_t>(id)] && program_->buffers[static_cast<size_t>(id)].dies <= index)
      give_back(unsized_[static_cast<size_t>(id)]);
}

void Executor::compute(const Instruction& instruction) {
  const Kernel& kernel = *instruction.kernel;
  std::span<std::byte> workspace;
  if (kernel.scratch_bytes)
    workspace = scratch(kernel.scratch_bytes(instruction.state.get(), in_, out_, pool_.size()));
  const auto index = static_cast<int32_t>(&instruction - program_->instructions.data());
  const KernelCall call{instruction.state.get(), in_,       out_, pool_, workspace, &queue_, &fault_, index,
                        strings_.get(),          iteration_};
  const auto launch = [&] {
    if (!strings_) return device_.launch(queue_, kernel, call);
    try {
      device_.launch(queue_, kernel, call);
    } catch (const Error& error) {  // of a text, or the table's memory
      throw error.at(instruction.origin);
    }
  };
  // While an asynchronous collective is pending, the sum is not in the kernel's queue.
  if (instruction.begins_sum >= 0 && pending_.empty())
    groups_[static_cast<size_t>(instruction.begins_sum)]->begin_sum(out_[0], launch);
  else launch();
  check_fault();
}

void Executor::check_fault() const {
  if (fault_.found()) fail(program_->instructions[static_cast<size_t>(fault_.instruction)], fault_.status);
}

/// Returns at least `bytes` bytes, 64-byte aligned.
std::span<std::byte> Executor::scratch(int64_t bytes) {
  if (!scratch_ || scratch_->size() < bytes) {
    forget_launches();
    scratch_.reset();
    scratch_ = budget_->take(bytes, device_);
  }
  return {scratch_->mutable_data(), static_cast<size_t>(scratch_->size())};
}

void Executor::write_sizes(const Instruction& instruction) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : instruction.sizes) sizes.push_back(dim.evaluate(symbols_));
  device_.write(queue_, out_[0].data, sizes.data(), static_cast<int64_t>(sizes.size() * sizeof(int64_t)));
}

void Executor::fail(const Instruction& instruction, const KernelStatus& status) const {
  std::string operand = cat("operand ", status.operand);
  switch (status.code) {
    case KernelCode::index_out_of_range:
      throw Error(Code::invalid_argument, cat(instruction.origin, ": ", operand, " holds the index ", status.value,
                                              ", which is out of range"));
    case KernelCode::not_a_number:
      throw Error(Code::numeric, cat(instruction.origin, ": ", operand, " holds a NaN at element ", status.value));
    case KernelCode::division_by_zero:
      throw Error(Code::invalid_argument, cat(instruction.origin, ": division by zero at element ", status.value));
    default:
      throw Error(Code::invalid_argument, cat(instruction.origin, ": ", operand,
                                              " holds a value that the op does not allow: ", status.value));
  }
}

TensorView Executor::output(int index) const {
  const TensorView made = output_on_device(index);
  if (device_.shares_host_memory() || !made.data) return made;
  fetched_.resize(program_->outputs.size());
  Tensor& out = fetched_[static_cast<size_t>(index)];
  if (!out.present()) out = device_.fetch(made);
  return out.view();
}

TensorView Executor::output_on_device(int index) const {
  BufferId id = program_->outputs[static_cast<size_t>(index)];
  TensorView view = views_[static_cast<size_t>(id)];
  const Buffer& buffer = program_->buffers[static_cast<size_t>(id)];
  if (buffer.place == Buffer::Place::view) {
    TensorView root = views_[static_cast<size_t>(buffer.index)];
    view.data = root.data;
  }
  return view;
}

int64_t Executor::bytes() const { return (arena_ ? arena_->size() : 0) + (scratch_ ? scratch_->size() : 0); }

}  // namespace plait
