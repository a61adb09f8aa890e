#pragma once
// What stands behind the handles. Each object keeps alive what it was made from.
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/c/handles.h"
#include "bindings/c/model_config.h"
#include "bindings/c/model_directory.h"
#include "bindings/c/options.h"
#include "core/base/log.h"
#include "core/base/thread_pool.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "core/text/tokenizer.h"
#include "importers/onnx/import.h"
#include "serving/scheduler.h"

namespace plait::c_api {

/// The ops and kernels of one model: read-only once made.
struct Registry {
  OpSet ops;
  KernelTable kernels;
};
/// `isa`: "" for the best there is.
std::shared_ptr<const Registry> make_registry(const std::string& isa);

struct OptionsObject {
  std::mutex mutex;
  Settings settings;
};
/// A copy of the settings; none for NULL. Throws when one of them is not for `scope`.
Settings settings_of(plait_options* options, Scope scope);

using TokenizerPointer = std::shared_ptr<const Tokenizer>;

struct TokenizerObject {
  TokenizerPointer tokenizer;
};

/// Immutable but for the log.
struct ModelObject {
  std::shared_ptr<const Registry> registry;
  Log log;
  std::string file;  ///< as the messages name it
  ImportedModel imported;
  ModelConfig config;
  bool has_tokenizer = false;
  bool text = true;  ///< generators give text: the tokenizer is loaded beside the weights
  std::shared_future<TokenizerPointer> tokenizer_loading;

  /// Waits. Throws Error(not_found) when the model has none, or what ended the loading.
  TokenizerPointer tokenizer() const;
  CompileOptions compile_options();
};

class GeneratorObject {
 public:
  GeneratorObject(std::shared_ptr<ModelObject> model, Settings settings);
  ~GeneratorObject();

  /// Waits until it is loaded; throws what ended the loading.
  Scheduler& scheduler() const { return *loading_.get(); }
  bool wait(int64_t timeout_ms) const;
  double progress() const;
  void cancel() { progress_.cancel = true; }

  ModelObject& model() const { return *model_; }
  const Settings& settings() const { return settings_; }

 private:
  std::shared_ptr<Scheduler> load();

  std::shared_ptr<ModelObject> model_;
  Settings settings_;
  LoadProgress progress_;
  std::shared_future<std::shared_ptr<Scheduler>> loading_;  ///< last: its end waits for the thread that uses the rest
};

struct RequestObject {
  // The generator comes first and so dies last: conversations belong to its engine.
  std::shared_ptr<GeneratorObject> generator;
  std::shared_ptr<Request> request;            ///< null: restored from bytes
  std::shared_ptr<Conversation> conversation;  ///< of a restored one
  RequestOptions::Kind kind = RequestOptions::Kind::generate;
  std::string pooling;
  uint64_t seed = 0;
  bool logprobs = false;
  std::mutex mutex;
  Tensor result;  ///< once it was asked for

  /// Throws Error(invalid_argument) for a restored one.
  Request& running();
  /// Null when nothing was kept.
  std::shared_ptr<Conversation> kept();
};

/// Runs one at a time.
class SessionObject {
 public:
  SessionObject(std::shared_ptr<ModelObject> model, const Settings& settings);
  const Program& program() const { return *plain_.program; }
  /// `outputs`: numbers of those that are wanted.
  std::vector<Tensor> run(std::span<const TensorView> inputs, std::span<const int> outputs);

 private:
  std::shared_ptr<ModelObject> model_;
  PlainModel plain_;
  ThreadPool pool_;
  Store store_;
  std::mutex mutex_;
  std::unique_ptr<Executor> executor_;
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
#undef PLAIT_BIND_HANDLE

/// A text as a tensor: u8 [n] with a NUL behind it.
std::shared_ptr<Tensor> text_tensor(std::string_view text);
inline std::shared_ptr<Tensor> share(Tensor tensor) { return std::make_shared<Tensor>(std::move(tensor)); }

}  // namespace plait::c_api
