#include "core/generate/ragged_rank.h"

#include <algorithm>

#include "core/base/block.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"

namespace plait {
namespace {

/// Input `name` of a step: "ids", "slots.0" and so on. Programs do not write to inputs.
TensorView input_of(const RaggedStep& step, std::string_view name, int64_t given_size) {
  auto view = []<class T>(const std::vector<T>& values, DType dtype, const Shape& shape) {
    return TensorView{reinterpret_cast<std::byte*>(const_cast<T*>(values.data())), dtype, shape};
  };
  const auto tokens = static_cast<int64_t>(step.ids.size());
  const size_t dot = name.find('.');
  const std::string_view stem = name.substr(0, dot);
  size_t group = 0;
  if (int64_t number; dot != std::string_view::npos && parse_int(name.substr(dot + 1), number))
    group = static_cast<size_t>(number);
  if (name == given_at_input) return view(step.given_at, DType::i32, {1, tokens});
  if (name == given_rows_input)
    return view(step.given, DType::f32, {static_cast<int64_t>(step.given.size()) / given_size, given_size});
  if (name == mrope_positions_input)
    return view(step.mrope_positions, DType::i32, {1, tokens, static_cast<int64_t>(GivenPlace().offset.size())});
  if (name == "positions") return view(step.positions, DType::i32, {1, tokens});
  if (name == "lengths") return view(step.lengths, DType::i32, {1, tokens});
  if (name == "segments") return view(step.segments, DType::i32, {1, tokens});
  if (name == "rows") return view(step.rows, DType::i32, {1, static_cast<int64_t>(step.rows.size())});
  if (name == "settings")
    return view(step.settings, DType::i64, {1, static_cast<int64_t>(step.rows.size()), choice_words});
  if (name == "edits")
    return view(step.edits, DType::i32, {1, static_cast<int64_t>(step.edits.size()) / edit_words, edit_words});
  if (name == "adapters") return view(step.adapters, DType::i32, {1, tokens});
  if (name == "states") return view(step.states, DType::i32, {step.segment_count, 2});
  if (stem == "slots") return view(step.slots[group], DType::i32, {1, tokens});
  if (stem == "pages") return view(step.tables[group], DType::i32, {step.segment_count, step.table_width});
  return view(step.ids, DType::i64, {1, tokens});
}

std::vector<TensorView> inputs_of(const RaggedStep& step, const Program& program, int64_t given_size) {
  std::vector<TensorView> out;
  for (const std::string& name : program.input_names) out.push_back(input_of(step, name, given_size));
  return out;
}

}  // namespace

RaggedRank::RaggedRank(RaggedModel model, const EngineOptions& options, std::shared_ptr<MemoryBudget> budget,
                       std::shared_ptr<Store> weights, std::shared_ptr<Device> device)
    : model_(std::move(model)),
      options_(options),
      pool_(options.threads),
      weights_(std::move(weights)),
      store_(weights_, std::move(device)),
      budget_(std::move(budget)) {}

RankNeeds RaggedRank::needs() { return needs_of(store_.device(), model_, options_, pool_.size()); }

void RaggedRank::load(const CacheCapacity& capacity, LoadProgress* progress) {
  sizes_ = sizes_of(*model_.program, capacity);
  store_.load(*model_.program, sizes_, &pool_, progress);
  touch_first_pages();
  make(step_, model_.program);
}

void RaggedRank::join(World* world) {
  if (world) groups_ = ProgramGroups(world->rank(), split_world(*world, store_.device()));
  for (const std::vector<int32_t>& members : model_.groups)
    groups_.of(members);  // made now, since splitting is collective
  if (in_stages()) {
    const std::vector<int64_t> ranks = model_.mesh.group(world->rank(), model_.mesh.parts("pipeline"));
    runner_ = std::make_unique<ActionRunner>(groups_.of({ranks.begin(), ranks.end()}), nullptr);
    schedule_ = {.stages = model_.stages.count(), .micro_batches = 1, .seats = model_.stages.seats, .ranks = {}};
    for (int32_t stage = 0; stage < schedule_.stages; ++stage)
      schedule_.ranks.push_back({{.kind = Action::Kind::forward, .stage = stage}});
  }
  for (const auto& program : {model_.program, model_.hidden_program})
    if (program) groups_.of(*program);
}

void RaggedRank::make(Part& part, const std::shared_ptr<const Program>& program) {
  const auto executor = [&](const std::shared_ptr<const Program>& one) {
    auto out = std::make_unique<Executor>(one, store_, pool_, budget_, groups_.of(*one));
    part.executor = out.get();
    return out;
  };
  if (!in_stages()) {
    part.owned = executor(program);
    return;
  }
  part.described = {model_.section};
  part.described[0].program = program;
  part.section = std::make_unique<StageSections>(part.described, executor, budget_, store_.device());
}

/// Touches the memory that the first step of maximal size fills, since page faults cost 2 to 4 us per 4 KB: so the
/// first prompt does not pay for them. The cache allocates the lowest pages first.
void RaggedRank::touch_first_pages() {
  Device& device = store_.device();
  if (!device.shares_host_memory()) return;
  const int64_t pages = (options_.step_tokens + options_.page_tokens - 1) / options_.page_tokens;
  for (const StoreEntry& entry : model_.program->entries) {
    if (!store_keys::is_cache(entry.key)) continue;
    const Tensor state = store_.get(entry.key);
    // A sequence uses two state slots during a step.
    const int64_t all = state.shape()[0], first = store_keys::is_cache_states(entry.key) ? 2 : pages;
    const int64_t count = std::min(first, all);
    if (count > 0) device.fill(device.queue(Device::Use::compute), state.data(), 0, state.bytes() / all * count);
  }
}

void RaggedRank::run(const RaggedStep& step) {
  if (step.hidden && !hidden_.executor) make(hidden_, model_.hidden_program);
  if (hidden_.executor) hidden_.executor->set_trace(tracing_ ? &trace_ : nullptr);
  Part& part = step.hidden ? hidden_ : step_;
  copy_pages(step.copies);
  if (in_stages()) run_stage(step, part);
  else part.executor->run(inputs_of(step, part.executor->program(), given_size()));
  last_ = part.executor;
  last_hidden_ = step.hidden;
}

void RaggedRank::run_stage(const RaggedStep& step, Part& part) {
  part.section->begin([&](const Program& program, int32_t) { return inputs_of(step, program, given_size()); }, {});
  // The engine has at most as many steps in flight as there are stages, so messages need no other limit.
  runner_->run(schedule_, 0, *part.section);
}

const float* RaggedRank::logits() const {
  return last_ && !last_hidden_ && has_results() ? last_->output(0).as<float>() : nullptr;
}

const float* RaggedRank::hidden() const {
  return last_ && last_hidden_ && has_results() ? last_->output(0).as<float>() : nullptr;
}

const int32_t* RaggedRank::tokens() const {
  if (!last_ || last_hidden_ || !model_.decoder.chooses || !has_results()) return nullptr;
  return last_->output(model_.decoder.has_hidden ? 2 : 1).as<int32_t>();
}

void RaggedRank::set_tracing(bool on) {
  tracing_ = on;
  trace_.clear();
  step_.executor->set_trace(on ? &trace_ : nullptr);
}

/// Copies a fork's partly filled page before it is written.
void RaggedRank::copy_pages(const std::vector<KvCache::Copy>& copies) {
  Device& device = store_.device();
  for (const KvCache::Copy& copy : copies)
    for (int64_t slot = 0; slot < model_.decoder.pools[static_cast<size_t>(copy.pool)].layers; ++slot)
      for (const auto half : store_keys::cache_halves) {
        const std::string key = store_keys::cache_pages(half, copy.pool, slot);
        if (!store_.has(key)) continue;  // of another stage
        const TensorView from = row({key, copy.from}), to = row({key, copy.to});
        device.copy(device.queue(Device::Use::compute), to.data, from.data, from.bytes());
      }
}

const RaggedModel::Row& RaggedRank::row_type(const StoreRow& row) const {
  const auto found = model_.rows.find(row.key);
  if (found == model_.rows.end()) throw Error(Code::internal, cat("the decoder has no array ", quote(row.key)));
  return found->second;
}

int64_t RaggedRank::part_bytes(const StoreRow& row) const {
  const RaggedModel::Row& type = row_type(row);
  return packed_bytes(type.part.elements(), dtype_bits(type.dtype));
}

TensorView RaggedRank::row(const StoreRow& row) const {
  const RaggedModel::Row& type = row_type(row);
  return {store_.get(row.key).data() + row.row * part_bytes(row), type.dtype, type.part};
}

Tensor RaggedRank::read(const StoreRow& row) const { return store_.device().fetch(this->row(row)); }

RaggedRank::Place RaggedRank::place(const StoreRow& row, int64_t rank) const {
  const Mesh& mesh = model_.mesh;
  const Shape& part = row_type(row).part;
  auto cut = model_.plan.states.find(row.key);
  Place out;
  for (int dim = 0; dim < part.rank(); ++dim) {
    const AxisList axes =
        cut == model_.plan.states.end() ? AxisList{} : cut->second.dims[static_cast<size_t>(dim) + 1];
    out.whole.push_back(part[dim] * mesh.blocks(axes));
    out.begin.push_back(part[dim] * mesh.block(rank, axes));
  }
  return out;
}

void RaggedRank::write(const StoreRow& row, ByteReader& in, int64_t rank) {
  const Place at = place(row, rank);
  const auto bytes = static_cast<size_t>(packed_bytes(at.whole.elements(), dtype_bits(row_type(row).dtype)));
  const std::span<const std::byte> whole = in.get_span(bytes);
  if (!store_.has(row.key)) return;
  const TensorView part = this->row(row);
  store_.device().overwrite(part, [&](const TensorView& host) {
    take_block({const_cast<std::byte*>(whole.data()), part.dtype, at.whole}, at.begin, host);
  });
}

RankBytes RaggedRank::bytes() const {
  RankBytes out = bytes_of(store_.device(), *model_.program, sizes_);
  if (step_.executor) out.arena = step_.executor->bytes();
  if (in_stages()) out.arena += planned_slot_bytes(*model_.program, SlotPool::action);
  return out;
}

}  // namespace plait
