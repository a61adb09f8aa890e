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

/// Bytes that count in the engine's cache while this lives.
class Held {
 public:
  Held(int64_t& all, int64_t bytes) : all_(all), bytes_(bytes) { all_ += bytes_; }
  Held(const Held& other) : Held(other.all_, other.bytes_) {}
  ~Held() { all_ -= bytes_; }
  Held& operator=(const Held&) = delete;

  int64_t bytes() const { return bytes_; }
  void set(int64_t bytes) {
    all_ += bytes - bytes_;
    bytes_ = bytes;
  }

 private:
  int64_t& all_;
  int64_t bytes_;
};

/// What the encoder makes of a sequence's input, shared by copies of the sequence.
struct Encoded {
  std::shared_ptr<const EncoderInput> input;
  Held held;
  std::vector<Tensor> values = {};  ///< empty before the first step
};

/// Without cache inputs every step recomputes the whole sequence.
class PlainSequence : public Sequence {
 public:
  explicit PlainSequence(int64_t& held) : held(held, 0) {}
  PlainSequence(const PlainSequence&) = default;
  Held held;                         ///< of its past, as it is reserved
  std::vector<Tensor> past;          ///< by cache; absent at first
  std::shared_ptr<Encoded> encoded;  ///< null without an encoder

  /// So that appending so many cannot fail.
  void make_room(size_t tokens) {
    if (const size_t size = tokens_.size() + tokens; size > tokens_.capacity()) tokens_.reserve(std::max(size, 2 * tokens_.capacity()));
  }
  void append(std::span<const int32_t> more) { tokens_.insert(tokens_.end(), more.begin(), more.end()); }
};

class PlainEngine : public Engine {
 public:
  PlainEngine(Graph graph, const CompileOptions& compile, const EngineOptions& options, LoadProgress* progress,
              const Graph* encoder)
      : Engine(options), pool_(options.threads), store_(nullptr, compile.own_device()) {
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
    if (!model_.interface.encoded.empty() && !encoder)
      throw Error(Code::not_found,
                  cat("input ", quote(graph.value(model_.interface.encoded[0]).name),
                      " is what an encoder makes, and the encoder's file is not next to the decoder's"),
                  "put encoder_model.onnx there, or the file that genai_config.json names");
    if (encoder) {
      encoder_.emplace(*encoder, compile, options.encoder_context, pool_, budget_, progress);
      check_fit(graph, *encoder);
    }
    inputs_.emplace(graph, model_.interface, context_);
    if (inputs_->buffer_length()) context_ = inputs_->buffer_length();
    const Program& program = *model_.program;
    const Buffer& logits =
        program.buffers[static_cast<size_t>(program.outputs[static_cast<size_t>(model_.interface.logits)])];
    if (!logits.dims.empty() && logits.dims.back().is_constant()) vocabulary_ = logits.dims.back().constant();
    std::vector<int64_t> symbols(static_cast<size_t>(model_.program->symbols.size()), 0);
    store_.load(*model_.program, symbols, &pool_, progress);
    executor_ = std::make_unique<Executor>(model_.program, store_, pool_, budget_);
  }

  std::unique_ptr<Sequence> open(std::span<const int32_t>, int64_t, std::shared_ptr<const Adapter>,
                                 std::shared_ptr<const EncoderInput> input) override {
    auto sequence = std::make_unique<PlainSequence>(held_);
    sequence->past.resize(inputs_->carried_count());
    if (encoder_ && input) {
      const int64_t bytes = input->bytes;
      sequence->encoded = std::make_shared<Encoded>(Encoded{std::move(input), Held(held_, bytes)});
    }
    return sequence;
  }
  const Encoder* encoder() const override { return encoder_ ? &*encoder_ : nullptr; }
  std::unique_ptr<Sequence> fork(const Sequence& sequence) override {
    return std::make_unique<PlainSequence>(mine(sequence));
  }
  bool reserve(Sequence& sequence, int64_t tokens) override {
    const int64_t length = sequence.length() + tokens;
    Held& held = mine(sequence).held;
    const int64_t bytes = length * inputs_->token_bytes();
    if (!fits_buffer(length) || held_ - held.bytes() + bytes > options_.cache_bytes) return false;
    held.set(bytes);
    return true;
  }
  bool could_fit(int64_t length, const EncoderInput* input) const override {
    const int64_t encoded = input ? input->bytes : 0;
    return length * inputs_->token_bytes() + encoded <= options_.cache_bytes && fits_buffer(length);
  }

  void step(std::span<Feed> feeds) override {
    logits_.clear();
    std::vector<size_t> begins;
    std::vector<std::vector<Tensor>> pasts;  // the sequences change once all have run
    for (const Feed& feed : feeds) {
      begins.push_back(logits_.size());
      pasts.push_back(run(mine(*feed.sequence), feed));
    }
    for (const Feed& feed : feeds) mine(*feed.sequence).make_room(feed.tokens.size());
    for (size_t i = 0; i < feeds.size(); ++i) {
      mine(*feeds[i].sequence).past = std::move(pasts[i]);
      mine(*feeds[i].sequence).append(feeds[i].tokens);
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
  std::unique_ptr<Sequence> restore(std::span<const std::byte>, std::span<const SavedRows>) override {
    throw no_save();
  }

  EngineStats stats() const override {
    EngineStats out;
    out.weight_bytes = store_.bytes() + (encoder_ ? encoder_->weight_bytes() : 0);
    out.arena_bytes = executor_->bytes() + (encoder_ ? encoder_->executor().bytes() : 0);
    out.cache_bytes = held_;
    return out;
  }
  const Decoder& decoder() const override { return decoder_; }
  void set_profiling(bool on) override {
    executor_->set_profiling(on);
    if (encoder_) encoder_->executor().set_profiling(on);
  }
  Profile profile() const override {
    Profile out = executor_->profile();
    if (encoder_)
      for (const auto& [op, row] : encoder_->executor().profile()) {
        out[op].seconds += row.seconds;
        out[op].calls += row.calls;
      }
    return out;
  }
  void set_tracing(bool on) override {
    trace_.clear();
    executor_->set_trace(on ? &trace_ : nullptr);
    if (encoder_) encoder_->executor().set_trace(on ? &trace_ : nullptr);
  }
  std::vector<std::vector<TraceEvent>> trace() override { return {trace_}; }

 private:
  static PlainSequence& mine(Sequence& sequence) { return static_cast<PlainSequence&>(sequence); }
  static const PlainSequence& mine(const Sequence& sequence) { return static_cast<const PlainSequence&>(sequence); }
  static Error no_save() {
    return Error(Code::unsupported, "only a recognised decoder's conversation can be saved",
                 "`plait inspect` shows why this one is not");
  }

  /// Whether the decoder takes what the encoder makes.
  void check_fit(const Graph& graph, const Graph& encoder) const {
    const Program &from = encoder_->executor().program(), &to = *model_.program;
    const auto agree = [](const Dim& a, const Dim& b) { return !a.is_constant() || !b.is_constant() || a == b; };
    for (size_t i = 0; i < model_.interface.encoded.size(); ++i) {
      const ValueId id = model_.interface.encoded[i];
      const auto input =
          static_cast<size_t>(std::find(graph.inputs.begin(), graph.inputs.end(), id) - graph.inputs.begin());
      const Buffer& made = from.buffers[static_cast<size_t>(from.outputs.at(i))];
      const Buffer& taken = to.buffers[static_cast<size_t>(to.inputs[input])];
      const bool dims_agree =
          !made.sized || std::equal(made.dims.begin(), made.dims.end(), taken.dims.begin(), taken.dims.end(), agree);
      if (made.dtype == taken.dtype && dims_agree) continue;
      throw Error(
          Code::bad_model,
          cat("output ", quote(encoder.value(encoder.outputs[i]).name), " of the encoder ", quote(encoder.name), ", ",
              text({made.dtype, made.dims}, from.symbols), ", cannot be the decoder's input ",
              quote(graph.value(id).name), ", ", text({taken.dtype, taken.dims}, to.symbols)),
          "take both files from one export");
    }
  }
  bool fits_buffer(int64_t length) const { return !inputs_->buffer_length() || length <= inputs_->buffer_length(); }
  std::span<const Tensor> encoded(PlainSequence& sequence);
  std::vector<Tensor> run(PlainSequence& sequence, const Feed& feed);
  void run(std::span<const int32_t> tokens, int64_t past, int64_t position, std::vector<Tensor>& carried,
           int64_t rows, GivenList given, std::span<const Tensor> encoded);

  int64_t held_ = 0;  ///< bytes of sequences
  PlainModel model_;
  Decoder decoder_;
  ThreadPool pool_;
  Store store_;
  std::vector<TraceEvent> trace_;
  std::unique_ptr<Executor> executor_;
  std::optional<Encoder> encoder_;
  std::optional<PlainInputs> inputs_;
  std::vector<float> logits_;
};

/// What the encoder made of the sequence's input.
std::span<const Tensor> PlainEngine::encoded(PlainSequence& sequence) {
  if (!encoder_) return {};
  if (!sequence.encoded)
    throw Error(Code::invalid_argument, "the sequence has no input for the encoder", "give Engine::open one");
  Encoded& out = *sequence.encoded;
  if (out.values.empty()) {
    out.values = encoder_->run(*out.input);
    int64_t bytes = 0;
    for (const Tensor& one : out.values) bytes += one.bytes();
    out.held.set(bytes);
  }
  return out.values;
}

/// Appends the feed's rows to `logits_`. Returns the past after it.
std::vector<Tensor> PlainEngine::run(PlainSequence& sequence, const Feed& feed) {
  const DecoderInterface& interface = model_.interface;
  const bool cached = !interface.caches.empty();
  const auto count = static_cast<int64_t>(feed.tokens.size());
  for (int32_t id : feed.tokens)
    if (id < 0 ? !interface.given_size || !row_of(feed.given, id) : vocabulary_ && id >= vocabulary_)
      throw Error(Code::invalid_argument,
                  cat("token id ", id, " is out of range: the vocabulary has ", vocabulary()));
  const std::span<const Tensor> made = encoded(sequence);
  std::vector<Tensor> past = sequence.past;
  const int64_t rows = std::min(feed.rows, count);
  if (!cached) {
    std::vector<int32_t> tokens = sequence.tokens();
    tokens.insert(tokens.end(), feed.tokens.begin(), feed.tokens.end());
    run(tokens, 0, 0, past, rows, feed.given, made);
    return past;
  }
  const int64_t piece = encoder_ ? 1 : count;
  const bool places = interface.takes_places();
  int64_t position = places ? sequence.next_position(feed.given) : sequence.length();
  for (int64_t at = 0; at < count; at += piece) {
    const auto tokens = feed.tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(piece));
    run(tokens, sequence.length() + at, position, past, std::clamp<int64_t>(at + piece - (count - rows), 0, piece),
        feed.given, made);
    for (int32_t id : tokens) position += places ? place_of(feed.given, id).advance : 1;
  }
  return past;
}

/// Appends the logits of the last `rows` tokens to `logits_`, and updates what runs hand on.
void PlainEngine::run(std::span<const int32_t> tokens, int64_t past, int64_t position, std::vector<Tensor>& carried,
                      int64_t rows, GivenList given, std::span<const Tensor> encoded) {
  const DecoderInterface& interface = model_.interface;
  const std::vector<Tensor> inputs = inputs_->of(tokens, past, position, carried, given, encoded);
  std::vector<TensorView> views;
  for (const Tensor& tensor : inputs) views.push_back(tensor.view());
  executor_->run(views);
  auto owned = [&](int output) {
    TensorView view = executor_->output(output);
    return Tensor(view.dtype, view.shape, copy_blob({view.data, static_cast<size_t>(view.bytes())}));
  };
  const TensorView logits = executor_->output(interface.logits);
  if (logits.shape.rank() < 2) throw Error(Code::unsupported, cat("logits of shape ", logits.shape.text()));
  const int64_t vocabulary = logits.shape.back(1);
  vocabulary_ = vocabulary;
  const int64_t have = logits.shape.elements() / vocabulary;
  if (have < rows)
    throw Error(Code::unsupported,
                cat("the graph gives logits of ", have, " positions only, ", rows, " were requested"));
  if (rows) {
    const Tensor f32 = materialize({{}, owned(interface.logits), {{RecipeStep::Kind::cast, {}, DType::f32}}});
    logits_.insert(logits_.end(), f32.as<float>() + (have - rows) * vocabulary, f32.as<float>() + have * vocabulary);
  }
  for (size_t i = 0; i < interface.caches.size(); ++i)
    if (!interface.caches[i].idle) carried[i] = owned(interface.caches[i].present);
  for (size_t i = 0; i < interface.counters.size(); ++i)
    carried[interface.caches.size() + i] = owned(interface.counters[i].output);
}

}  // namespace

std::unique_ptr<Engine> make_plain_engine(const Graph& graph, const CompileOptions& compile,
                                          const EngineOptions& options, LoadProgress* progress,
                                          const Graph* encoder) {
  return std::make_unique<PlainEngine>(graph, compile, options, progress, encoder);
}

std::unique_ptr<Engine> make_engine(const Graph& graph, const CompileOptions& with, const EngineOptions& given,
                                    LoadProgress* progress, std::shared_ptr<World> world, const Graph* encoder) {
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
  return make_plain_engine(graph, compile, rank_options(given, compile, usable_processors()), progress, encoder);
}

}  // namespace plait
