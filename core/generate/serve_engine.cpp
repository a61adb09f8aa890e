#include "core/generate/serve_engine.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/cache_capacity.h"
#include "core/generate/engine_commands.h"
#include "core/ranks/serve_rank.h"

namespace plait {
namespace {

/// The engine's part on a rank other than 0.
class EngineHandler final : public RankHandler {
 public:
  EngineHandler(World& world, std::unique_ptr<RaggedRank> rank, const EngineOptions& options, LoadProgress* progress)
      : world_(world),
        rank_(std::move(rank)),
        options_(options),
        place_(ReplicaPlace::of(rank_->model().mesh, world.rank())),
        progress_(progress) {}

  ProgramIdentities programs() const override { return identities_of(rank_->model()); }
  void handle(ByteReader& command) override { EngineCommands::dispatch(command, *this); }

  void handle(const JoinGroups&) { rank_->join(&world_); }

  void handle(const MeasureMemory&) {
    report_result(world_, [&] { report_ok(world_, rank_->needs()); });
  }

  void handle(const LoadArrays& command) {
    report_result(world_, [&] {
      rank_->load(command.capacity, progress_);
      report_ok(world_, rank_->bytes());
    });
  }

  void handle(const ComputeStep& command) {
    const RaggedStep& step = command.replicas.at(static_cast<size_t>(place_.replica));
    if (step.empty()) return;
    const bool reports = place_.reporter == world_.rank();
    const auto compute = [&] {
      if (options_.before_step) options_.before_step(world_.rank(), steps_++);
      rank_->run(step);
      if (reports) report_output(step);
    };
    // If the step needs no other ranks, an error stays within this replica.
    if (reports && !rank_->needs_others()) report_result(world_, compute);
    else compute();
  }

  void handle(const ReadRows& command) {
    if (!is_own(command.where) || command.where.rows.empty()) return;
    ByteWriter out;
    for (const StoreRow& row : command.where.rows) {
      if (row.stage != rank_->stage()) continue;
      const Tensor part = rank_->read(row);
      out.put_bytes(part.data(), static_cast<size_t>(part.bytes()));
    }
    world_.report(ok_report(std::move(out)));
  }

  void handle(const WriteRows& command) {
    if (!is_own(command.where)) return;
    ByteReader in(command.bytes, "a command's rows");
    for (const StoreRow& row : command.where.rows) rank_->write(row, in, world_.rank());
  }

  void handle(const SetTracing& command) { rank_->set_tracing(command.on); }

  void handle(const TakeTrace&) {
    std::vector<TracedEvent> out;
    for (const TraceEvent& event : rank_->trace())
      out.push_back({std::string(event.name), event.begin, event.end, event.waited, event.collective, event.async});
    report_ok(world_, out);
  }

 private:
  /// Reports StepOutput, serialised directly from the outputs.
  void report_output(const RaggedStep& step) {
    const Decoder& decoder = rank_->model().decoder;
    const auto rows = [&](const auto* values, int64_t width) {
      return std::span(values, values ? step.rows.size() * static_cast<size_t>(width) : 0);
    };
    report_ok(world_, rows(step.logits ? rank_->logits() : nullptr, decoder.vocabulary),
              rows(rank_->hidden(), decoder.hidden), rows(step.chooses() ? rank_->tokens() : nullptr, 1));
  }

  /// Whether the rows are of this rank's replica; if so, copies the pages that are due.
  bool is_own(const ReplicaRows& where) {
    if (where.replica != place_.replica) return false;
    rank_->copy_pages(where.copies);
    return true;
  }

  World& world_;
  const std::unique_ptr<RaggedRank> rank_;
  const EngineOptions options_;
  const ReplicaPlace place_;
  LoadProgress* const progress_;
  int64_t steps_ = 0;
};

}  // namespace

ReplicaPlace ReplicaPlace::of(const Mesh& mesh, int64_t rank) {
  ReplicaPlace out;
  out.replica = mesh.block(rank, mesh.parts("data"));
  for (int64_t other = 0; other < mesh.ranks(); ++other)
    if (mesh.block(other, mesh.parts("data")) == out.replica) out.ranks.push_back(other);
  const AxisList pipeline = mesh.parts("pipeline");
  out.reporter = *std::find_if(out.ranks.begin(), out.ranks.end(), [&](int64_t other) {
    return mesh.block(other, pipeline) + 1 == mesh.blocks(pipeline);
  });
  return out;
}

RaggedModel compile_rank(const Graph& graph, const CompileOptions& given, const EngineOptions& options) {
  CompileOptions compile = given;
  if (const int64_t ranks = compile.mesh.blocks(compile.mesh.parts("pipeline"));
      ranks > 1 && compile.stages.seats.empty())
    for (int32_t stage = 0; stage < ranks; ++stage) compile.stages.seats.push_back({stage});
  return compile_ragged(graph, compile, [&](const Decoder& decoder) {
    const CacheCapacity capacity =
        options.cache_bytes ? capacity_for(decoder, compile.mesh, options) : usable_capacity(decoder, options);
    return bounds_for(capacity, options);
  });
}

ProgramIdentities identities_of(const RaggedModel& model) {
  ProgramIdentities out;
  const auto add = [&](const char* name, const std::shared_ptr<const Program>& program) {
    if (!program) return;
    const bool staged = model.stages.count() > 1;
    out.push_back(identity_of(staged ? cat(name, " of stage ", model.section.stage) : std::string(name), *program));
    out.back().common = !staged;
  };
  add("step", model.program);
  add("hidden", model.hidden_program);
  if (model.stages.count() > 1) out.push_back({"the graph of all stages", model.graph_fingerprint});
  return out;
}

EngineOptions rank_options(const EngineOptions& given, const CompileOptions& compile, int processors) {
  const Mesh& mesh = compile.mesh;
  EngineOptions out = given;
  if (out.threads <= 0) out.threads = processors;
  // Ranks of one machine share its memory; devices have their own.
  if (!out.memory_bytes && compile.device == DeviceKind::host && mesh.ranks() > 1)
    out.memory_bytes = usable_memory() / 4 * 3;
  out.memory_bytes /= mesh.ranks();
  // A cut whose stages fit limits has to know the cache's size.
  if (!out.cache_bytes && (compile.device == DeviceKind::host || !compile.stages.rank_bytes.empty()))
    out.cache_bytes = EngineOptions::usual_cache_bytes;
  return out;
}

void serve_engine(World& world, const Graph& graph, const CompileOptions& with, const EngineOptions& given,
                  std::shared_ptr<Store> weights, LoadProgress* progress) {
  serve_rank(world, [&]() -> std::unique_ptr<RankHandler> {
    CompileOptions compile = with;
    compile.rank = world.rank();
    compile.local_rank = world.local_rank();
    const EngineOptions options = rank_options(given, compile, world.processors());
    RaggedModel model = compile_rank(graph, compile, options);
    if (!model.program) throw Error(Code::unsupported, cat("the decoder is not recognised: ", model.decoder.why_not));
    auto rank =
        std::make_unique<RaggedRank>(std::move(model), options, std::make_shared<MemoryBudget>(options.memory_bytes),
                                     std::move(weights), compile.own_device());
    return std::make_unique<EngineHandler>(world, std::move(rank), options, progress);
  });
}

}  // namespace plait
