// Training on ranks that are processes: rank 0 has the engine, the others do what it tells them; and what each process does by
// itself, its part of a checkpoint.
#include "core/base/block.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/program_identity.h"
#include "core/ranks/serve_rank.h"
#include "core/train/training_calls.h"
#include "core/train/training_engine.h"

namespace plait {
namespace {

ByteReader reader_of(std::span<const std::byte> command) { return {command, "a command of rank 0"}; }

PackedRow get_row(ByteReader& in) {
  PackedRow out;
  for (std::vector<int32_t>* list : {&out.ids, &out.positions, &out.segments, &out.samples, &out.labels})
    *list = in.get_list<int32_t>();
  return out;
}

std::vector<PackedRow> get_rows(ByteReader& in) {
  std::vector<PackedRow> out(in.get<uint64_t>());
  for (PackedRow& row : out) row = get_row(in);
  return out;
}

ProgramIdentities identities_of(const TrainingModel& model) {
  ProgramIdentities out;
  const auto add = [&](const char* name, const std::shared_ptr<const Program>& program) {
    if (program) out.push_back(identity_of(name, *program));
  };
  add("accumulate", model.accumulate);
  add("settle", model.settle);
  add("evaluate", model.evaluate);
  add("norm", model.norm);
  add("update", model.update);
  add("forward", model.forward);
  add("backward", model.backward);
  return out;
}

/// Their elements stay in the command.
NamedInputs get_inputs(ByteReader& in) {
  NamedInputs out;
  while (!in.at_end()) {
    TensorView& view = out[in.get_text()];
    view.dtype = in.get<DType>();
    view.shape = in.get<Shape>();
    view.data = const_cast<std::byte*>(in.get_span(static_cast<size_t>(view.bytes())).data());
  }
  return out;
}

TensorView flat(const TensorView& view) { return {view.data, view.dtype, {view.elements()}}; }

}  // namespace

ByteWriter as_bytes(std::span<const PackedRow> rows) {
  ByteWriter out;
  out.put(static_cast<uint64_t>(rows.size()));
  for (const PackedRow& row : rows)
    for (const std::vector<int32_t>* list : {&row.ids, &row.positions, &row.segments, &row.samples, &row.labels})
      out.put_list(*list);
  return out;
}

ByteWriter as_bytes(const NamedInputs& inputs) {
  ByteWriter out;
  for (const auto& [name, view] : inputs) {
    out.put_text(name);
    out.put(view.dtype);
    out.put(view.shape);
    out.put_bytes(view.data, static_cast<size_t>(view.bytes()));
  }
  return out;
}

/// Nothing where this is not rank 0 of processes.
void TrainingEngine::tell(TrainingCall call, ByteWriter rest) const {
  if (!leads()) return;
  ByteWriter out;
  out.put(call);
  const std::vector<std::byte> bytes = rest.take();
  out.put_bytes(bytes.data(), bytes.size());
  world_->broadcast_command(out.take());
}

/// Rank 0, when it has compiled, or failed: hears how the others did, and then all join.
void TrainingEngine::agree(std::optional<Error> failure) {
  for (int rank = 1; rank < world_->size(); ++rank) {
    const std::vector<std::byte> bytes = world_->next_report(rank, true);
    if (failure) continue;
    try {
      ByteReader in = read_report(bytes, rank);
      check_same(get_field<ProgramIdentities>(in), rank, identities_of(model()));
    } catch (const Error& error) {
      failure = error;
    }
  }
  if (failure) {
    tell(TrainingCall::end);
    throw *failure;
  }
  tell(TrainingCall::join);
  join();
}

/// What fails for one process and leaves the others as they are: rank 0 hears how it went, and throws the first error.
void TrainingEngine::by_themselves(FunctionRef<void()> task) const {
  std::optional<Error> failure;
  try {
    task();
  } catch (...) {
    failure = current_error();
  }
  if (world_ && !leads()) return world_->report(failure ? error_report(*failure) : ok_report());
  for (int rank = 1; leads() && rank < world_->size(); ++rank) {
    const std::vector<std::byte> bytes = world_->next_report(rank, true);
    try {
      read_report(bytes, rank);
    } catch (const Error& error) {
      if (!failure) failure = error;
    }
  }
  if (failure) throw *failure;
}

/// Any rank but 0. False: it is over.
bool TrainingEngine::handle(std::span<const std::byte> command) {
  ByteReader in = reader_of(command);
  const auto report_text = [&](const std::string& text) {
    ByteWriter out;
    out.put_text(text);
    world_->report(ok_report(std::move(out)));
  };
  switch (in.get<TrainingCall>()) {
    case TrainingCall::join: join(); return true;
    case TrainingCall::accumulate: {
      const std::vector<PackedRow> rows = get_rows(in);
      const auto weight = in.get<double>();
      accumulate(rows, weight, in.get<bool>());
      return true;
    }
    case TrainingCall::find_fault: {
      const std::vector<PackedRow> rows = get_rows(in);
      report_text(find_fault(rows, in.get<double>()));
      return true;
    }
    case TrainingCall::accumulate_inputs: accumulate(get_inputs(in)); return true;
    case TrainingCall::evaluate_inputs: evaluate(get_inputs(in)); return true;
    case TrainingCall::find_fault_in_inputs: report_text(find_fault(get_inputs(in))); return true;
    case TrainingCall::evaluate: evaluate(get_rows(in)); return true;
    case TrainingCall::logits: logits(get_rows(in)); return true;
    case TrainingCall::backward: {
      const std::vector<PackedRow> rows = get_rows(in);
      int64_t tokens = 0;
      for (const PackedRow& row : rows) tokens += row.tokens();
      accumulate(rows, Tensor(DType::f32, {tokens, model().decoder.vocabulary}).view());
      return true;
    }
    case TrainingCall::gradient_norm: gradient_norm(); return true;
    case TrainingCall::update: {
      const auto scale = in.get<double>();
      update(scale, in.get<double>());
      return true;
    }
    case TrainingCall::clear_gradients: clear_gradients(); return true;
    case TrainingCall::set_steps: set_steps(in.get<int64_t>()); return true;
    case TrainingCall::array: array(in.get_text()); return true;
    case TrainingCall::set_array: {
      const std::string key = in.get_text();
      const ArrayBlock part = block(0, key);
      set_array(key, Tensor(part.part.dtype, part.whole).view());
      return true;
    }
    case TrainingCall::open_checkpoints: {
      const std::string directory = in.get_text();
      open_checkpoints(directory, in.get<int64_t>());
      return true;
    }
    case TrainingCall::save: {
      CheckpointInfo info{in.get<int64_t>(), in.get_text(), {}};
      const bool best = in.get<bool>();
      const auto how = in.get<Saving>();
      while (!in.at_end()) {
        std::string name = in.get_text();
        info.state[std::move(name)] = in.get_text();
      }
      save(info, best, how);
      return true;
    }
    case TrainingCall::wait_for_checkpoints: wait_for_checkpoints(); return true;
    case TrainingCall::load: load(in.get_text()); return true;
    case TrainingCall::end: return false;
  }
  in.fail("is unknown");
}

void TrainingEngine::set_array(const std::string& key, const TensorView& whole) {
  ByteWriter out;
  out.put_text(key);
  tell(TrainingCall::set_array, std::move(out));
  if (world_) world_->communicator().broadcast(flat(whole), 0);
  for (int64_t local = 0; local < local_ranks(); ++local) {
    const ArrayBlock own = block(local, key);
    take_block(whole, own.begin, own.part);
  }
}

void TrainingEngine::open_checkpoints(const std::string& directory, int64_t keep) {
  ByteWriter out;
  out.put_text(directory);
  out.put(keep);
  tell(TrainingCall::open_checkpoints, std::move(out));
  by_themselves([&] {
    checkpoints_.clear();
    for (int64_t local = 0; local < local_ranks(); ++local)
      checkpoints_.push_back(std::make_unique<CheckpointWriter>(
          CheckpointOptions{.directory = directory, .writer = rank_number(local), .writers = ranks(), .keep = keep}));
  });
}

void TrainingEngine::save(const CheckpointInfo& info, bool best, Saving how) {
  ByteWriter out;
  out.put(info.step);
  out.put_text(info.model);
  out.put(best);
  out.put(how);
  for (const auto& [name, value] : info.state) {
    out.put_text(name);
    out.put_text(value);
  }
  tell(TrainingCall::save, std::move(out));
  by_themselves([&] {
    for (int64_t local = 0; local < local_ranks(); ++local) {
      std::vector<ArrayBlock> blocks;
      for (const std::string& key : arrays())
        if (is_first(local, key)) blocks.push_back(block(local, key));
      checkpoints_[static_cast<size_t>(local)]->save(info, blocks, best, how);
    }
  });
}

/// The first writer waits for the others' shards, so it is the last that is asked.
void TrainingEngine::wait_for_checkpoints() {
  tell(TrainingCall::wait_for_checkpoints);
  by_themselves([&] {
    for (size_t i = checkpoints_.size(); i-- > 0;) checkpoints_[i]->wait();
  });
}

void TrainingEngine::load(const std::string& path) {
  ByteWriter out;
  out.put_text(path);
  tell(TrainingCall::load, std::move(out));
  by_themselves([&] {
    const Checkpoint checkpoint = Checkpoint::open(path);
    for (int64_t local = 0; local < local_ranks(); ++local)
      for (const std::string& key : arrays()) {
        const ArrayBlock own = block(local, key);
        checkpoint.read(key, own.begin, own.part);
      }
  });
}

void serve_training(World& world, const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                    ThreadPool& pool, LoadProgress* progress) {
  std::unique_ptr<TrainingEngine> engine;
  try {
    engine = std::make_unique<TrainingEngine>(graph, options, training, pool, progress, &world);
    report_ok(world, identities_of(engine->model()));
  } catch (...) {
    return refuse_rank(world, current_error());
  }
  try {
    while (engine->handle(world.next_command())) {
    }
  } catch (...) {
    world.communicator().abort(current_error().message());
    throw;
  }
}

}  // namespace plait
