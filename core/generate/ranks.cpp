#include "core/generate/ranks.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

void check_mesh(const Mesh& mesh) {
  for (const Mesh::Axis& axis : mesh.axes())
    if (axis.size > 1 && axis.name != "data" && axis.name != "tensor")
      throw Error(Code::unsupported,
                  cat("the mesh ", quote(mesh.text()), " has an axis ", axis.name, ", which generation cannot use"),
                  "use the axes data and tensor");
}

/// The engine's part of the loop on another rank: from the program's arrays to the end.
class Server {
 public:
  Server(World& world, const Mesh& mesh, RaggedRank& rank, LoadProgress* progress)
      : world_(world), rank_(rank), place_(ReplicaPlace::of(mesh, world.rank())), progress_(progress) {
    replicas_ = mesh.blocks(mesh.parts("data"));
  }

  /// False: it is over.
  bool handle(std::span<const std::byte> bytes, const EngineOptions& options) {
    ByteReader in(bytes, "a command of rank 0");
    switch (in.get<RankCommand>()) {
      case RankCommand::load: load(); return true;
      case RankCommand::join: rank_.join(&world_); return true;
      case RankCommand::step: step(in, options); return true;
      case RankCommand::read: read(in); return true;
      case RankCommand::write: write(in); return true;
      case RankCommand::trace: rank_.set_tracing(in.get<bool>()); return true;
      case RankCommand::traced: traced(); return true;
      case RankCommand::end: return false;
    }
    in.fail("is unknown");
  }

 private:
  void load() {
    try {
      rank_.load(progress_);
    } catch (...) {
      return world_.report(error_report(current_error()));
    }
    ByteWriter out;
    out.put(rank_.bytes());
    world_.report(ok_report(std::move(out)));
  }

  void step(ByteReader& in, const EngineOptions& options) {
    RaggedStep mine;
    for (int64_t replica = 0; replica < replicas_; ++replica) {
      RaggedStep one = RaggedStep::read(in);
      if (replica == place_.replica) mine = std::move(one);
    }
    if (mine.empty()) return;
    const bool answers = place_.replica > 0 && place_.first(world_.rank());
    try {
      if (options.before_step) options.before_step(world_.rank(), steps_++);
      rank_.run(mine);
    } catch (...) {
      if (rank_.needs_others() || !answers) throw;
      return world_.report(error_report(current_error()));  // nobody waits for it in the middle of the step
    }
    if (!answers) return;
    const Decoder& decoder = rank_.model().decoder;
    ByteWriter out;
    auto put = [&](const float* values, int64_t width) {
      out.put_list(std::span(values, values ? mine.rows.size() * static_cast<size_t>(width) : 0));
    };
    put(rank_.logits(), decoder.vocabulary);
    put(rank_.hidden(), decoder.hidden);
    world_.report(ok_report(std::move(out)));
  }

  /// The rows that follow, if they are this rank's replica's; what is to be copied before has been.
  std::vector<StoreRow> rows(ByteReader& in) {
    const auto replica = in.get<int64_t>();
    const auto copies = in.get_list<KvCache::Copy>();
    std::vector<StoreRow> out(in.get<uint64_t>());
    for (StoreRow& row : out) {
      row.key = in.get_text();
      row.row = in.get<int32_t>();
    }
    if (replica != place_.replica) return {};
    rank_.copy_pages(copies);
    return out;
  }

  void read(ByteReader& in) {
    ByteWriter out;
    const std::vector<StoreRow> wanted = rows(in);
    for (const StoreRow& one : wanted) {
      const TensorView part = rank_.row(one);
      out.put_bytes(part.data, static_cast<size_t>(part.bytes()));
    }
    if (!wanted.empty()) world_.report(ok_report(std::move(out)));
  }

  void traced() {
    ByteWriter out;
    put_trace(out, rank_.trace());
    world_.report(ok_report(std::move(out)));
  }

  void write(ByteReader& in) {
    for (const StoreRow& one : rows(in)) rank_.write(one, in, world_.rank());
  }

  World& world_;
  RaggedRank& rank_;
  const ReplicaPlace place_;
  LoadProgress* const progress_;
  int64_t replicas_ = 1, steps_ = 0;
};

}  // namespace

ReplicaPlace ReplicaPlace::of(const Mesh& mesh, int64_t rank) {
  ReplicaPlace out;
  out.replica = mesh.block(rank, mesh.parts("data"));
  for (int64_t other = 0; other < mesh.ranks(); ++other)
    if (mesh.block(other, mesh.parts("data")) == out.replica) out.ranks.push_back(other);
  return out;
}

RaggedModel compile_rank(const Graph& graph, const CompileOptions& compile, const EngineOptions& options) {
  check_mesh(compile.mesh);
  return compile_ragged(graph, compile, [&](const Decoder& decoder) {
    return bounds_for(room_for(decoder, compile.mesh, options), options);
  });
}

void put_trace(ByteWriter& out, const std::vector<TraceEvent>& events) {
  out.put(static_cast<uint64_t>(events.size()));
  for (const TraceEvent& event : events) {
    out.put_text(event.name);
    out.put(event.begin);
    out.put(event.end);
    out.put(event.waited);
    out.put(event.collective);
    out.put(event.beside);
  }
}

std::vector<TraceEvent> get_trace(ByteReader& in, std::set<std::string>& names) {
  std::vector<TraceEvent> out(in.get<uint64_t>());
  for (TraceEvent& event : out) {
    event.name = *names.insert(in.get_text()).first;
    event.begin = in.get<double>();
    event.end = in.get<double>();
    event.waited = in.get<double>();
    event.collective = in.get<bool>();
    event.beside = in.get<bool>();
  }
  return out;
}

EngineOptions rank_options(const EngineOptions& given, const Mesh& mesh, int processors) {
  EngineOptions out = given;
  if (out.threads <= 0) out.threads = processors;
  if (mesh.ranks() > 1)
    out.memory_bytes = (out.memory_bytes ? out.memory_bytes : usable_memory() / 4 * 3) / mesh.ranks();
  return out;
}

void refuse_engine(World& world, const Error& why) {
  world.report(error_report(why));
  for (bool over = false; !over;) {  // rank 0 asks for no more than this rank can do
    const std::vector<std::byte> bytes = world.next_command();
    over = ByteReader(bytes, "a command of rank 0").get<RankCommand>() == RankCommand::end;
  }
}

void serve_engine(World& world, const Graph& graph, const CompileOptions& with, const EngineOptions& given,
                  std::shared_ptr<Store> weights, LoadProgress* progress) {
  CompileOptions compile = with;
  compile.rank = world.rank();
  const EngineOptions options = rank_options(given, compile.mesh, world.processors());
  std::unique_ptr<RaggedRank> rank;
  try {
    RaggedModel model = compile_rank(graph, compile, options);
    if (!model.program) throw Error(Code::unsupported, cat("the decoder is not recognised: ", model.decoder.why_not));
    ByteWriter out;
    const ProgramIdentity identity = identity_of(*model.program);
    out.put_text(identity.program);
    out.put(identity.weights);
    rank = std::make_unique<RaggedRank>(std::move(model), options, std::make_shared<RunRoom>(options.memory_bytes),
                                        std::move(weights));
    world.report(ok_report(std::move(out)));
  } catch (...) {
    return refuse_engine(world, current_error());
  }
  Server server(world, compile.mesh, *rank, progress);
  try {
    while (server.handle(world.next_command(), options)) {
    }
  } catch (...) {
    world.communicator().abort(current_error().message());
    throw;
  }
}

Ranks::Ranks(const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
             std::shared_ptr<Store> weights) {
  CommOptions comm;
  comm.deadline_s = options.rank_timeout_s;
  auto worlds = make_thread_world(static_cast<int>(compile.mesh.ranks()), comm);
  world_ = std::move(worlds[0]);
  for (size_t rank = 1; rank < worlds.size(); ++rank) progress_.push_back(std::make_unique<LoadProgress>());
  for (size_t rank = 1; rank < worlds.size(); ++rank)
    threads_.emplace_back([&graph, options, weights, with = compile, world = std::move(worlds[rank]),
                           progress = progress_[rank - 1].get()]() mutable {
      with.log = nullptr;  // rank 0 says the same
      with.dump = nullptr;
      with.progress = progress;
      try {
        serve_engine(*world, graph, with, options, std::move(weights), progress);
      } catch (...) {  // the world is over, and says why to all who call it
      }
    });
}

Ranks::Ranks(std::shared_ptr<World> world, const Mesh& mesh) : world_(std::move(world)) {
  if (world_->size() != mesh.ranks())
    throw Error(Code::invalid_argument,
                cat("the mesh ", quote(mesh.text()), " has ", mesh.ranks(), " ranks, and the world ", world_->size()),
                "start as many processes as the mesh has ranks");
}

Ranks::~Ranks() {
  cancel();
  try {
    command(RankCommand::end);
  } catch (...) {  // they have heard otherwise
  }
  for (std::thread& thread : threads_) thread.join();
}

void Ranks::command(RankCommand command, ByteWriter rest) {
  ByteWriter out;
  out.put(command);
  const std::vector<std::byte> bytes = rest.take();
  out.put_bytes(bytes.data(), bytes.size());
  world_->broadcast_command(out.take());
}

/// Hears all of them, before what one of them says is thrown: no report is left behind.
std::vector<std::vector<std::byte>> Ranks::reports(std::span<const int64_t> ranks, bool patient) {
  std::vector<std::vector<std::byte>> out;
  for (int64_t rank : ranks) out.push_back(world_->next_report(static_cast<int>(rank), patient));
  for (size_t i = 0; i < out.size(); ++i) read_report(out[i], ranks[i]);
  return out;
}

void Ranks::agree(const Program* program) {
  const auto heard = listen(program == nullptr);
  if (!program) return;
  const ProgramIdentity own = identity_of(*program);
  for (size_t i = 0; i < heard.size(); ++i) {
    ByteReader in = read_report(heard[i]);
    ProgramIdentity other;
    other.program = in.get_text();
    other.weights = in.get<uint64_t>();
    check_same(other, static_cast<int64_t>(i) + 1, own);
  }
}

std::vector<RankBytes> Ranks::loaded(bool failed) {
  const auto heard = listen(failed);
  std::vector<RankBytes> out;
  for (size_t i = 0; !failed && i < heard.size(); ++i) out.push_back(read_report(heard[i]).get<RankBytes>());
  return out;
}

std::vector<std::vector<TraceEvent>> Ranks::traces() {
  command(RankCommand::traced);
  std::vector<std::vector<TraceEvent>> out;
  for (const auto& report : listen(false)) {
    ByteReader in = read_report(report);
    out.push_back(get_trace(in, trace_names_));
  }
  return out;
}

/// The next report of every rank, for whose coming there is no deadline. `whatever`: errors among them are not thrown.
std::vector<std::vector<std::byte>> Ranks::listen(bool whatever) {
  std::vector<int64_t> others(static_cast<size_t>(world_->size()) - 1);
  std::iota(others.begin(), others.end(), 1);
  try {
    return reports(others, true);
  } catch (const Error&) {
    if (!whatever) throw;
    return {};
  }
}

void Ranks::cancel() {
  for (const auto& progress : progress_) progress->cancel();
}

}  // namespace plait
