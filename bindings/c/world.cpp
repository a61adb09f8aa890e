// Worlds of the C API: processes as ranks; the host controls rank 0.
#include "bindings/c/training.h"
#include "core/comm/mpi_world.h"
#include "core/generate/serve_engine.h"
#include "core/plan/measure/measure.h"
#include "core/ranks/serve_rank.h"

namespace plait::c_api {
namespace {

/// Messages from rank 0 to the others between uses.
enum class WorldCommand : uint8_t { serve, measure, close };

CommOptions comm_options(const Settings& settings) {
  CommOptions out;
  out.deadline_s = static_cast<double>(settings.integer("rank_timeout_ms")) / 1000;
  out.share_memory = settings.boolean("share_memory");
  return out;
}

void put_settings(ByteWriter& out, const Settings& settings) {
  for (const auto& [key, values] : settings.values())
    for (const std::string& value : values) {
      out.put_text(key);
      out.put_text(value);
    }
  out.put_text("");
}

Settings get_settings(ByteReader& in) {
  Settings out;
  for (std::string key = in.get_text(); !key.empty(); key = in.get_text()) out.set(key, in.get_text());
  return out;
}

}  // namespace

WorldObject::WorldObject(const Settings& settings)
    : world_(open_mpi_world(comm_options(settings), settings.text("mpi_plugin"))) {}

WorldObject::~WorldObject() {
  try {
    if (rank() == 0) close();
  } catch (...) {  // the world has ended: the others know
  }
}

void WorldObject::serve() {
  if (rank() == 0)
    throw Error(Code::invalid_argument, "rank 0 does not serve: it creates generators and trainers",
                "call this on the ranks for which plait_world_rank gives another number");
  while (true) {
    const std::vector<std::byte> bytes = world_->next_command();
    ByteReader in(bytes, "a command of rank 0");
    const auto command = in.get<WorldCommand>();
    if (command == WorldCommand::close) return;
    if (command == WorldCommand::serve) {
      serve(in.get<Kind>(), in);
      continue;
    }
    const std::string isa = in.get_text();
    measure(*make_registry(isa), in.get<int32_t>());
  }
}

void WorldObject::serve(Kind kind, ByteReader& in) {
  std::shared_ptr<ModelObject> model;
  std::optional<CompileOptions> compile;
  EngineOptions engine;
  std::function<void(World&)> trainer;
  try {
    const std::string path = in.get_text();
    const Settings of_model = get_settings(in), settings = get_settings(in);
    model = open_model(path, of_model);
    if (kind == Kind::trainer) {
      trainer = trainer_rank(*model, settings, processors());
    } else {
      compile.emplace(adapted_compile_options(*model, settings, given_adapters(settings)));
      engine = engine_options(settings, model->opened().config);
    }
  } catch (...) {
    return refuse_rank(*world_, current_error());
  }
  if (trainer) return trainer(*world_);
  serve_engine(*world_, model->opened().imported.graph, *compile, engine);
}

Machine WorldObject::measure(const Registry& registry, int threads) {
  return measure_machine(world_->communicator(), threads > 0 ? threads : processors(), registry.ops, registry.kernels);
}

void WorldObject::check_free() const {
  if (rank() != 0)
    throw Error(Code::invalid_argument, "generators and trainers are made on rank 0", "call plait_world_serve");
  if (closing_) throw Error(Code::closed, "the world is closed");
  if (lent_)
    throw Error(Code::overloaded, "the world serves another generator or trainer",
                "release that one first: it serves one at a time");
}

Machine WorldObject::measured(const Registry& registry, const std::string& isa, int threads) {
  std::lock_guard lock(mutex_);
  check_free();
  ByteWriter out;
  out.put(WorldCommand::measure);
  out.put_text(isa);
  out.put(static_cast<int32_t>(threads));
  world_->broadcast_command(out.take());
  return measure(registry, threads);
}

void WorldObject::close() {
  std::lock_guard lock(mutex_);
  if (rank() != 0) throw Error(Code::invalid_argument, "only rank 0 closes a world");
  closing_ = true;
  if (!lent_) give_back();
}

/// With the lock held: marks the world as unused.
void WorldObject::give_back() {
  lent_ = false;
  if (!closing_ || closed_) return;
  closed_ = true;
  ByteWriter out;
  out.put(WorldCommand::close);
  world_->broadcast_command(out.take());
}

std::shared_ptr<World> WorldObject::lend(Kind kind, const ModelObject& model, const Settings& settings) {
  if (model.source().path.empty())
    throw Error(Code::unsupported, "the other ranks cannot open a model that is in this process's memory",
                "open it by its path");
  const Mesh mesh = mesh_of(model, settings);
  if (mesh.ranks() != size())
    throw Error(Code::invalid_argument,
                cat("the mesh ", quote(mesh.text()), " has ", mesh.ranks(), " ranks, and the world ", size()),
                "start as many processes as the mesh has ranks");
  std::lock_guard lock(mutex_);
  check_free();
  ByteWriter out;
  out.put(WorldCommand::serve);
  out.put(kind);
  out.put_text(model.source().path);
  // Options that only concern this process's text are not sent.
  Settings of_model;
  for (const char* key : {"isa", "weights", "unpack"})
    if (model.settings().has(key)) of_model.set(key, model.settings().text(key));
  of_model.set("tokenizer", "none");
  put_settings(out, of_model);
  put_settings(out, settings);
  world_->broadcast_command(out.take());
  lent_ = true;
  return {world_.get(), [self = shared_from_this()](World*) {
            try {
              std::lock_guard held(self->mutex_);
              self->give_back();
            } catch (...) {  // the world has ended: there is no receiver
            }
          }};
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_world_open(plait_options* options, plait_world** out) {
  return create(out, [&] { return std::make_shared<WorldObject>(settings_of(options, for_world)); });
}

plait_status plait_world_rank(plait_world* world, int32_t* rank, int32_t* size) {
  return guarded([&] {
    auto object = object_of<WorldObject>(world);
    *required(rank, "rank") = object->rank();
    *required(size, "size") = object->size();
  });
}

plait_status plait_world_serve(plait_world* world) {
  return guarded([&] { object_of<WorldObject>(world)->serve(); });
}

plait_status plait_world_close(plait_world* world) {
  return guarded([&] { object_of<WorldObject>(world)->close(); });
}

plait_status plait_world_release(plait_world* world) { return release<WorldObject>(world); }
