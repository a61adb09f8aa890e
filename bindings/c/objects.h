#pragma once
// The objects of handles. Each object keeps what it was created from.
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bindings/c/handles.h"
#include "bindings/c/loading.h"
#include "bindings/c/options.h"
#include "bindings/c/time_limit.h"
#include "core/base/bytes.h"
#include "core/base/log.h"
#include "core/base/thread_pool.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/model/model_config.h"
#include "core/model/model_source.h"
#include "core/passes/compile.h"
#include "core/passes/normalize/normalize.h"
#include "core/plan/machine/machine.h"
#include "core/text/constraint.h"
#include "core/train/adapters/adapter_file.h"
#include "serving/scheduler.h"

namespace plait::c_api {

/// The ops and kernels of one model: read-only after creation.
struct Registry {
  OpSet ops;
  KernelTable kernels;
};
/// `isa`: "" for the best available.
std::shared_ptr<const Registry> make_registry(const std::string& isa);

struct OptionsObject {
  std::mutex mutex;
  Settings settings;
};
/// A copy of the settings; empty for NULL. Throws if one of them is not for `scope`.
Settings settings_of(plait_options* options, unsigned scope);

using TokenizerPointer = std::shared_ptr<const Tokenizer>;

struct TokenizerObject {
  TokenizerPointer tokenizer;
};

/// What opening a model gives. Immutable.
struct OpenedModel {
  std::shared_ptr<const Registry> registry;
  ImportedModel imported;
  /// The graph as the file has it, if `imported.graph` computes embeddings of ids in addition (`with_embeddings`).
  std::optional<Graph> written;
  std::vector<GivenInput> given_inputs;  ///< of the file of embeddings, if it takes more than ids
  const Graph& as_written() const { return written ? *written : imported.graph; }
  ModelConfig config;
  Settings request_defaults;  ///< of generation_config.json
  ModelSource source;         ///< complete
};

/// Graph and tokenizer, each loaded on its own thread. Thread-safe.
class ModelObject {
 public:
  ModelObject(const ModelSource& source, const Settings& settings);

  /// Waits for the graph; throws the error that ended its loading.
  const OpenedModel& opened() const { return *graph_.get(); }
  /// Waits for the tokenizer. Throws Error(not_found) if the model has none, or the error that ended its loading.
  TokenizerPointer tokenizer();
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  /// Of its tokenizer.
  GrammarCache& grammars() { return grammars_; }
  /// For generators: invalid if their events have no text.
  TokenizerFuture text() const { return loads_text_ ? tokenizer_->future() : TokenizerFuture(); }

  /// Waits for the graph; false on timeout.
  bool wait_graph(int64_t timeout_ms) const { return graph_.wait(timeout_ms); }
  double graph_progress() const { return graph_.progress(); }
  /// Waits for everything that loads by itself. Throws the error of the graph's loading, and Error(cancelled) of the
  /// tokenizer's: other tokenizer errors only concern its users.
  bool wait(int64_t timeout_ms) const;
  double progress() const;
  /// Also of work that is under way.
  void cancel();

  /// Work on a model for a host that waits for it, such as an export: `cancel` of the model ends it with Error(cancelled).
  class Work {
   public:
    explicit Work(ModelObject& model);
    ~Work();
    Work(const Work&) = delete;
    LoadProgress& progress() const { return *progress_; }

   private:
    ModelObject& model_;
    const std::unique_ptr<LoadProgress> progress_;
  };

  CompileOptions compile_options();
  /// As it was found: of files without a graph only text and configuration. OpenedModel::source is complete.
  const ModelSource& source() const { return source_; }
  const Settings& settings() const { return settings_; }
  const std::string& file() const { return file_; }  ///< as in messages
  Log& log() { return log_; }

 private:
  ModelSource source_;
  Settings settings_;
  std::string file_;
  Log log_;
  GrammarCache grammars_;
  bool loads_text_ = false;  ///< the tokenizer loads by itself, and generators return text
  std::mutex work_mutex_;
  std::set<LoadProgress*> work_;  ///< under way
  // Last: their destructors join threads that use the rest.
  std::optional<Loading<TokenizerPointer>> tokenizer_;
  Loading<std::shared_ptr<const OpenedModel>> graph_;
};

std::shared_ptr<ModelObject> open_model(const std::string& path, const Settings& settings);

/// The mesh of a generator's settings. Throws Error(invalid_argument) for "file" if the file has none.
Mesh mesh_of(const ModelObject& model, const Settings& settings);
/// Waits for a model that may still be loading: the first part of creating objects from it.
void await_model(const ModelObject& model, LoadProgress& progress);
/// Compile options of that model's generator, on every rank.
CompileOptions generator_compile_options(ModelObject& model, const Settings& settings);
/// An adapter, and its name in requests.
struct NamedAdapter {
  std::string name;
  AdapterWeights weights;
};
/// The adapters of a generator's options, loaded. Throws the errors of read_adapter, and Error(invalid_argument).
std::vector<NamedAdapter> given_adapters(const Settings& settings);
/// How a generator's layers are cut along the mesh's axis pipeline. Throws Error(invalid_argument).
StageOptions generator_stages(const Settings& settings, const Mesh& mesh);
/// generator_compile_options with its stages, and with slots for these, and for as many more as the settings specify.
CompileOptions adapted_compile_options(ModelObject& model, const Settings& settings,
                                       std::span<const NamedAdapter> given);
EngineOptions engine_options(const Settings& settings, const ModelConfig& config);
/// A decoder's graph after `raise`, for plans. Throws Error(unsupported) if it is not recognised.
Graph raised_decoder(ModelObject& model, CompileOptions options);

/// A process's view of an MPI world.
class WorldObject : public std::enable_shared_from_this<WorldObject> {
 public:
  explicit WorldObject(const Settings& settings);
  /// Rank 0 ends the others' `serve`.
  ~WorldObject();

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  int processors() const { return world_->processors(); }  ///< available to this rank
  /// Ranks other than 0: returns when rank 0 closes the world. Throws the error that ended it otherwise.
  void serve();
  /// Rank 0: no more can be created; the others' `serve` returns when the current object has ended.
  void close();
  /// Kinds of objects on a world.
  enum class Kind : uint8_t { generator, trainer };
  /// Rank 0: makes the others serve one of this model, which occupies the world until it ends. Throws
  /// Error(overloaded) while it is occupied, Error(unsupported) for a model that the others cannot open.
  std::shared_ptr<World> lend(Kind kind, const ModelObject& model, const Settings& settings);
  /// Rank 0, while the world is not occupied: what its ranks reach, each with so many threads (0: its processors).
  Machine measured(const Registry& registry, const std::string& isa, int threads);

 private:
  void serve(Kind kind, ByteReader& command);
  Machine measure(const Registry& registry, int threads);
  void give_back();
  /// With the lock held. Throws unless this is rank 0 and the world serves nothing.
  void check_free() const;

  std::unique_ptr<World> world_;
  std::mutex mutex_;
  bool lent_ = false, closing_ = false, closed_ = false;
};

class GeneratorObject {
 public:
  /// `world` may be null.
  GeneratorObject(std::shared_ptr<ModelObject> model, Settings settings,
                  std::shared_ptr<WorldObject> world = nullptr);

  /// Waits until it is loaded; throws the error that ended the loading.
  Scheduler& scheduler() const { return *loading_.get(); }
  bool wait(int64_t timeout_ms) const;
  double progress() const { return loading_.progress(); }
  void cancel() { loading_.cancel(); }

  ModelObject& model() const { return *model_; }
  const Settings& settings() const { return settings_; }

 private:
  std::shared_ptr<Scheduler> load(LoadProgress& progress);

  std::shared_ptr<WorldObject> world_;
  std::shared_ptr<ModelObject> model_;
  Settings settings_;
  Loading<std::shared_ptr<Scheduler>> loading_;  ///< last: its destructor joins the thread that uses the rest
};

struct RequestObject {
  // The generator is first and so destroyed last: conversations belong to its engine.
  std::shared_ptr<GeneratorObject> generator;
  std::shared_ptr<Request> request;            ///< null: restored from bytes
  std::shared_ptr<Conversation> conversation;  ///< if restored
  RequestOptions::Kind kind = RequestOptions::Kind::generate;
  std::string pooling;
  uint64_t seed = 0;
  bool logprobs = false;
  std::mutex mutex;
  Tensor result;  ///< cached result

  /// Throws Error(invalid_argument) if it was restored.
  Request& running();
  /// Null if nothing was kept.
  std::shared_ptr<Conversation> kept();
};

/// Runs one at a time.
class SessionObject {
 public:
  SessionObject(std::shared_ptr<ModelObject> model, const Settings& settings);
  const Program& program() const { return *plain_.program; }
  /// `outputs`: numbers of the requested ones.
  std::vector<Tensor> run(std::span<const TensorView> inputs, std::span<const int> outputs);
  void cancel() { budget_->cancel(); }
  std::vector<TraceEvent> trace();

 private:
  std::shared_ptr<ModelObject> model_;
  std::shared_ptr<MemoryBudget> budget_;
  PlainModel plain_;
  ThreadPool pool_;
  std::unique_ptr<Store> store_;
  std::mutex mutex_;
  std::vector<TraceEvent> trace_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<TimeLimit> limit_;  ///< null: there is no limit
};

#define PLAIT_BIND_HANDLE(Object, CType, kind_name) \
  template <>                                       \
  struct HandleOf<Object> {                         \
    using Type = CType;                             \
    static constexpr Kind kind = Kind::kind_name;   \
  };
PLAIT_BIND_HANDLE(OptionsObject, plait_options, options)
PLAIT_BIND_HANDLE(Tensor, plait_tensor, tensor)
PLAIT_BIND_HANDLE(TokenizerObject, plait_tokenizer, tokenizer)
PLAIT_BIND_HANDLE(ModelObject, plait_model, model)
PLAIT_BIND_HANDLE(GeneratorObject, plait_generator, generator)
PLAIT_BIND_HANDLE(RequestObject, plait_request, request)
PLAIT_BIND_HANDLE(SessionObject, plait_session, session)
PLAIT_BIND_HANDLE(WorldObject, plait_world, world)
PLAIT_BIND_HANDLE(Mailbox, plait_mailbox, mailbox)
#undef PLAIT_BIND_HANDLE

/// A text as a tensor: u8 [n], NUL-terminated.
std::shared_ptr<Tensor> text_tensor(std::string_view text);
/// Bytes of a tensor as hosts see it: with the texts of strings.
int64_t host_bytes(const Tensor& tensor);
inline std::shared_ptr<Tensor> share(Tensor tensor) { return std::make_shared<Tensor>(std::move(tensor)); }

}  // namespace plait::c_api
