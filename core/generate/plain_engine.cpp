// The engine for unrecognised graphs: runs the graph as is, one sequence at a time, each with its own past tensors.
#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/engines.h"
#include "core/generate/serve_engine.h"

namespace plait {
namespace {

size_t rank_of(const Type& type) { return type.dims ? type.dims->size() : 0; }

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
  PlainEngine(const Graph& graph, const CompileOptions& compile, const EngineOptions& options, LoadProgress* progress)
      : Engine(options), pool_(options.threads), store_(nullptr, compile.own_device()) {
    options_.step_sequences = 1;
    // Prompts are not chunked: a graph may depend on the tokens of one call (angles by length, dynamic quantisation
    // scales).
    options_.step_tokens = options_.step_rows = std::numeric_limits<int64_t>::max();
    context_ = options.context;
    model_ = compile_plain(graph, compile);
    decoder_.interface = model_.interface;
    decoder_.why_not = "the graph runs as written";
    if (!model_.interface.complete)
      throw Error(Code::unsupported, cat("this is no language model that Plait can drive: ", model_.interface.why),
                  "run it through a session");
    read_types(graph);
    std::vector<int64_t> symbols(static_cast<size_t>(model_.program->symbols.size()), 0);
    store_.load(*model_.program, symbols, &pool_, progress);
    executor_ = std::make_unique<Executor>(model_.program, store_, pool_, budget_);
  }

  std::unique_ptr<Sequence> open(std::span<const int32_t>, int64_t, std::shared_ptr<const Adapter>) override {
    auto sequence = std::make_unique<PlainSequence>();
    sequence->past.resize(model_.interface.caches.size() + model_.interface.counters.size());
    return sequence;
  }
  std::unique_ptr<Sequence> fork(const Sequence& sequence) override {
    return std::make_unique<PlainSequence>(mine(sequence));
  }
  bool reserve(Sequence& sequence, int64_t tokens) override { return could_fit(sequence.length() + tokens); }
  bool could_fit(int64_t length) const override {
    return length * token_bytes_ <= options_.cache_bytes && (!buffer_length_ || length <= buffer_length_);
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

  void read_types(const Graph& graph);
  void run(PlainSequence& sequence, const Feed& feed);
  Tensor handed(const PlainSequence& sequence, size_t number, DType dtype) const;
  Tensor filled(DType dtype, int64_t count, int64_t first, int64_t step) const;
  Tensor token_mask(DType dtype, int64_t past, int64_t count) const;

  PlainModel model_;
  Decoder decoder_;
  ThreadPool pool_;
  Store store_;
  std::vector<TraceEvent> trace_;
  std::unique_ptr<Executor> executor_;
  std::vector<Shape> past_shapes_;  ///< by cache, length 0, batch 1
  /// By input: -1 ids, -2 mask, -3 positions, -4 the branch of a merged decoder, otherwise the index of the value
  /// that is carried over: caches, then counters.
  std::vector<int> role_;
  std::vector<DType> input_dtypes_;
  Shape branch_shape_;
  int64_t buffer_length_ = 0;   ///< if the past inputs are buffers of fixed length
  bool mask_by_token_ = false;  ///< the mask is per token and key
  int64_t token_bytes_ = 0;
  std::vector<float> logits_;
};

void PlainEngine::read_types(const Graph& graph) {
  const DecoderInterface& interface = model_.interface;
  // The host chooses the length of a buffer.
  constexpr int64_t usual_length = 2048;
  if (interface.fixed_buffers) {
    const int64_t chosen = context_ > 0 ? std::min(context_, usual_length) : usual_length;
    for (const auto& cache : interface.caches) {  // a ring takes any number of tokens
      const int64_t length = cache.ring ? 0 : cache.length ? cache.length : chosen;
      if (length) buffer_length_ = buffer_length_ ? std::min(buffer_length_, length) : length;
    }
    if (buffer_length_) context_ = buffer_length_;
  }
  auto batch = (*graph.value(interface.ids).type.dims)[0].single_symbol();
  for (const auto& cache : interface.caches) {
    const Type& type = graph.value(cache.past).type;
    Shape shape;
    for (size_t axis = 0; axis < cache.dims.size(); ++axis) {
      Dim dim = batch ? cache.dims[axis].substitute(*batch, Dim(1)) : cache.dims[axis];
      bool length = static_cast<int>(axis) == cache.axis;
      if (!dim.is_constant() && axis != 0 && !length)
        throw Error(Code::unsupported, cat("the size of input ", quote(graph.value(cache.past).name),
                                           " in dimension ", axis, " is not known: ", dim.text(graph.symbols)));
      shape.push_back(length ? 0 : dim.is_constant() ? dim.constant() : 1);
    }
    if (interface.fixed_buffers) shape[cache.axis] = cache.length ? cache.length : buffer_length_;
    past_shapes_.push_back(shape);
    if (cache.axis < 0 || cache.idle) continue;
    Shape one = shape;
    one[cache.axis] = 1;
    token_bytes_ += packed_bytes(one.elements(), dtype_bits(type.dtype));
  }
  for (ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    input_dtypes_.push_back(value.type.dtype);
    auto cache = std::find_if(interface.caches.begin(), interface.caches.end(),
                              [&](const auto& row) { return row.past == id; });
    auto counter = std::find_if(interface.counters.begin(), interface.counters.end(),
                                [&](const auto& row) { return row.input == id; });
    if (id == interface.ids) role_.push_back(-1);
    else if (id == interface.mask) role_.push_back(-2);
    else if (id == interface.positions) role_.push_back(-3);
    else if (id == interface.branch) role_.push_back(-4);
    else if (cache != interface.caches.end()) role_.push_back(static_cast<int>(cache - interface.caches.begin()));
    else if (counter != interface.counters.end())
      role_.push_back(static_cast<int>(interface.caches.size()) +
                      static_cast<int>(counter - interface.counters.begin()));
    else
      throw Error(Code::unsupported, cat("input ", quote(value.name), " has no role that Plait knows"),
                  "run the model through a session");
  }
  for (const auto& counter : interface.counters) {  // at 0 before the first token
    past_shapes_.push_back(rank_of(graph.value(counter.input).type) ? Shape{1} : Shape{});
  }
  if (interface.mask != no_value) mask_by_token_ = rank_of(graph.value(interface.mask).type) == 4;
  if (interface.branch != no_value && rank_of(graph.value(interface.branch).type)) branch_shape_ = {1};
  const Type& logits = graph.value(graph.outputs[static_cast<size_t>(interface.logits)]).type;
  if (logits.dims && logits.dims->back().is_constant()) vocabulary_ = logits.dims->back().constant();
}

/// [1, count] integers first, first + step, ...
Tensor PlainEngine::filled(DType dtype, int64_t count, int64_t first, int64_t step) const {
  Tensor out(dtype, {1, count});
  auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = first + i * step;
    if (is_float(dtype)) {
      Tensor one = materialize({{},
                                Tensor::of<double>(DType::f64, {}, std::vector<double>{static_cast<double>(value)}),
                                {{RecipeStep::Kind::cast, {}, dtype}}});
      std::memcpy(out.data() + static_cast<size_t>(i) * size, one.data(), size);
    } else {
      std::memcpy(out.data() + static_cast<size_t>(i) * size, &value, size);
    }
  }
  return out;
}

/// The row [1, count] as [rows, 1, count]; itself if `rows` is 0.
Tensor repeated(Tensor row, int64_t rows) {
  if (!rows) return row;
  Tensor out(row.dtype(), {rows, 1, row.shape()[1]});
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(out.data() + i * row.bytes(), row.data(), static_cast<size_t>(row.bytes()));
  return out;
}

/// [1, 1, count, keys]: causal, each token attends to earlier ones and itself. A float mask is added to scores.
Tensor PlainEngine::token_mask(DType dtype, int64_t past, int64_t count) const {
  int64_t keys = buffer_length_ ? buffer_length_ : past + count;
  Tensor seen = filled(dtype, 1, is_float(dtype) ? 0 : 1, 0),
         hidden = filled(dtype, 1, is_float(dtype) ? -65504 : 0, 0);
  Tensor out(dtype, {1, 1, count, keys});
  auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < keys; ++j)
      std::memcpy(out.data() + static_cast<size_t>(i * keys + j) * size, (j <= past + i ? seen : hidden).data(),
                  size);
  return out;
}

/// Values carried over from the last run. A past that is never read only needs the common length of all.
Tensor PlainEngine::handed(const PlainSequence& sequence, size_t number, DType dtype) const {
  const auto& caches = model_.interface.caches;
  Shape shape = past_shapes_[number];
  if (number < caches.size() && caches[number].idle && !buffer_length_)
    shape[caches[number].axis] = sequence.length();
  const Tensor& kept = sequence.past[number];
  return kept.present() ? kept : Tensor(dtype, shape);
}

void PlainEngine::run(PlainSequence& sequence, const Feed& feed) {
  const DecoderInterface& interface = model_.interface;
  bool cached = !interface.caches.empty();
  std::vector<int32_t> tokens(cached ? std::vector<int32_t>() : sequence.tokens());
  tokens.insert(tokens.end(), feed.tokens.begin(), feed.tokens.end());
  int64_t past = cached ? sequence.length() : 0, count = static_cast<int64_t>(tokens.size());
  for (int32_t id : tokens)
    if (id < 0 || (vocabulary_ && id >= vocabulary_))
      throw Error(Code::invalid_argument, cat("token id ", id, " is out of range: the vocabulary has ", vocabulary_));
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < role_.size(); ++i) {
    DType dtype = input_dtypes_[i];
    if (role_[i] == -1) {
      Tensor ids(dtype, {1, count});
      auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
      for (size_t k = 0; k < tokens.size(); ++k) {
        int64_t id = tokens[k];
        std::memcpy(ids.data() + k * size, &id, size);
      }
      inputs.push_back(std::move(ids));
    } else if (role_[i] == -2) {
      inputs.push_back(mask_by_token_ ? token_mask(dtype, past, count) : filled(dtype, past + count, 1, 0));
    } else if (role_[i] == -3) {
      inputs.push_back(repeated(filled(dtype, count, past, 1), interface.position_rows));
    } else if (role_[i] == -4) {
      inputs.push_back(filled(dtype, 1, past > 0, 0).reshaped(branch_shape_));
    } else {
      inputs.push_back(handed(sequence, static_cast<size_t>(role_[i]), dtype));
    }
  }
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
