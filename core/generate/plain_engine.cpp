// The engine for unrecognised graphs: runs the graph as is, one sequence at a time, each with its own past tensors.
#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/engines.h"
#include "core/generate/plain_inputs.h"
#include "core/generate/serve_engine.h"
#include "core/passes/normalize/normalize.h"

namespace plait {
namespace {

/// Without cache inputs every step recomputes the whole sequence.
class PlainSequence : public Sequence {
 public:
  PlainSequence() = default;
  PlainSequence(const PlainSequence&) = default;
  std::vector<Tensor> past;  ///< by cache; absent at first

  void append(std::span<const int32_t> more) { tokens_.insert(tokens_.end(), more.begin(), more.end()); }
};

class PlainEngine : public Engine {
 public:
  PlainEngine(Graph graph, const CompileOptions& compile, const EngineOptions& options, LoadProgress* progress)
      : Engine(options), pool_(options.threads), store_(nullptr, compile.own_device()) {
    options_.step_sequences = 1;
    // Prompts are not chunked: a graph may depend on the tokens of one call (angles by length, dynamic quantisation
    // scales).
    options_.step_tokens = options_.step_rows = std::numeric_limits<int64_t>::max();
    context_ = options.context;
    give_rows(graph, compile.ops);
    model_ = compile_plain(graph, compile);
    decoder_.interface = model_.interface;
    decoder_.why_not = "the graph runs as written";
    if (!model_.interface.complete)
      throw Error(Code::unsupported, cat("this is no language model that Plait can drive: ", model_.interface.why),
                  "run it through a session");
    inputs_.emplace(graph, model_.interface, context_);
    if (inputs_->buffer_length()) context_ = inputs_->buffer_length();
    const Type& logits = graph.value(graph.outputs[static_cast<size_t>(model_.interface.logits)]).type;
    if (logits.dims && logits.dims->back().is_constant()) vocabulary_ = logits.dims->back().constant();
    std::vector<int64_t> symbols(static_cast<size_t>(model_.program->symbols.size()), 0);
    store_.load(*model_.program, symbols, &pool_, progress);
    executor_ = std::make_unique<Executor>(model_.program, store_, pool_, budget_);
  }

  std::unique_ptr<Sequence> open(std::span<const int32_t>, int64_t, std::shared_ptr<const Adapter>) override {
    auto sequence = std::make_unique<PlainSequence>();
    sequence->past.resize(inputs_->carried_count());
    return sequence;
  }
  std::unique_ptr<Sequence> fork(const Sequence& sequence) override {
    return std::make_unique<PlainSequence>(mine(sequence));
  }
  bool reserve(Sequence& sequence, int64_t tokens) override { return could_fit(sequence.length() + tokens); }
  bool could_fit(int64_t length) const override {
    const int64_t buffer = inputs_->buffer_length();
    return length * inputs_->token_bytes() <= options_.cache_bytes && (!buffer || length <= buffer);
  }

  void step(std::span<Feed> feeds) override {
    logits_.clear();
    std::vector<size_t> begins;
    for (Feed& feed : feeds) {
      begins.push_back(logits_.size());
      run(mine(*feed.sequence), feed);
    }
    for (size_t i = 0; i < feeds.size(); ++i) {
      size_t end = i + 1 < feeds.size() ? begins[i + 1] : logits_.size();
      feeds[i].logits = {logits_.data() + begins[i], end - begins[i]};
      feeds[i].hidden = {};
    }
  }
  void step_hidden(std::span<Feed>) override {
    throw Error(Code::unsupported, cat("hidden states need a recognised decoder; this one runs as written"),
                "`plait inspect` shows why");
  }

  std::vector<std::byte> save(const Sequence&) const override { throw no_save(); }
  std::shared_ptr<const Adapter> add_adapter(const std::string&, const AdapterWeights&) override {
    throw Error(Code::unsupported, "only a recognised decoder takes adapters, and this one is not");
  }
  std::unique_ptr<Sequence> restore(std::span<const std::byte>) override { throw no_save(); }

  EngineStats stats() const override {
    EngineStats out;
    out.weight_bytes = store_.bytes();
    out.arena_bytes = executor_->bytes();
    return out;
  }
  const Decoder& decoder() const override { return decoder_; }
  void set_profiling(bool on) override { executor_->set_profiling(on); }
  Profile profile() const override { return executor_->profile(); }
  void set_tracing(bool on) override {
    trace_.clear();
    executor_->set_trace(on ? &trace_ : nullptr);
  }
  std::vector<std::vector<TraceEvent>> trace() override { return {trace_}; }

 private:
  static PlainSequence& mine(Sequence& sequence) { return static_cast<PlainSequence&>(sequence); }
  static const PlainSequence& mine(const Sequence& sequence) { return static_cast<const PlainSequence&>(sequence); }
  static Error no_save() {
    return Error(Code::unsupported, "only a recognised decoder's conversation can be saved",
                 "`plait inspect` shows why this one is not");
  }

  void run(PlainSequence& sequence, const Feed& feed);

  PlainModel model_;
  Decoder decoder_;
  ThreadPool pool_;
  Store store_;
  std::vector<TraceEvent> trace_;
  std::unique_ptr<Executor> executor_;
  std::optional<PlainInputs> inputs_;
  std::vector<float> logits_;
};

void PlainEngine::run(PlainSequence& sequence, const Feed& feed) {
  const DecoderInterface& interface = model_.interface;
  bool cached = !interface.caches.empty();
  std::vector<int32_t> tokens(cached ? std::vector<int32_t>() : sequence.tokens());
  tokens.insert(tokens.end(), feed.tokens.begin(), feed.tokens.end());
  const int64_t past = cached ? sequence.length() : 0;
  for (int32_t id : tokens)
    if (id < 0 ? !interface.given_size || !row_of(feed.given, id) : vocabulary_ && id >= vocabulary_)
      throw Error(Code::invalid_argument, cat("token id ", id, " is out of range: the vocabulary has ", vocabulary_));
  const std::vector<Tensor> inputs = inputs_->of(tokens, past, sequence.past, feed.given);
  std::vector<TensorView> views;
  for (const Tensor& tensor : inputs) views.push_back(tensor.view());
  executor_->run(views);
  auto owned = [&](int output) {
    TensorView view = executor_->output(output);
    return Tensor(view.dtype, view.shape, copy_blob({view.data, static_cast<size_t>(view.bytes())}));
  };
  TensorView logits = executor_->output(interface.logits);
  Tensor f32 = materialize({{}, owned(interface.logits), {{RecipeStep::Kind::cast, {}, DType::f32}}});
  if (logits.shape.rank() < 2) throw Error(Code::unsupported, cat("logits of shape ", logits.shape.text()));
  vocabulary_ = logits.shape.back(1);
  int64_t have = logits.shape.elements() / vocabulary_,
          rows = std::min(feed.rows, static_cast<int64_t>(feed.tokens.size()));
  if (have < rows)
    throw Error(Code::unsupported,
                cat("the graph gives logits of ", have, " positions only, ", rows, " were requested"));
  logits_.insert(logits_.end(), f32.as<float>() + (have - rows) * vocabulary_, f32.as<float>() + have * vocabulary_);
  for (size_t i = 0; i < interface.caches.size(); ++i)
    if (!interface.caches[i].idle) sequence.past[i] = owned(interface.caches[i].present);
  for (size_t i = 0; i < interface.counters.size(); ++i)
    sequence.past[interface.caches.size() + i] = owned(interface.counters[i].output);
  sequence.append(feed.tokens);
}

}  // namespace

std::unique_ptr<Engine> make_plain_engine(const Graph& graph, const CompileOptions& compile,
                                          const EngineOptions& options, LoadProgress* progress) {
  return std::make_unique<PlainEngine>(graph, compile, options, progress);
}

std::unique_ptr<Engine> make_engine(const Graph& graph, const CompileOptions& with, const EngineOptions& given,
                                    LoadProgress* progress, std::shared_ptr<World> world) {
  CompileOptions compile = with;
  compile.progress = progress;
  std::string why_not;
  if (auto engine = make_ragged_engine(graph, compile, given, progress, std::move(world), why_not)) return engine;
  if (compile.adapters.slots)
    throw Error(Code::unsupported, cat("only a recognised decoder takes adapters, and this one is not: ", why_not),
                "run it without adapters");
  if (compile.log)
    compile.log->write(LogLevel::warning,
                       cat("the decoder was not recognised and runs as written, which is slower: ", why_not));
  return make_plain_engine(graph, compile, rank_options(given, compile, usable_processors()), progress);
}

}  // namespace plait
