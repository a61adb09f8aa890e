// Generators of the C API: loading, submitting, statistics.
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>

#include "bindings/c/devices.h"
#include "bindings/c/objects.h"
#include "bindings/c/planning.h"
#include "bindings/c/request_inputs.h"
#include "bindings/c/trace.h"
#include "core/base/error_kind.h"
#include "core/model/encoder_decoder.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/stage/stage.h"

namespace plait::c_api {
namespace {

DType dtype_of(const Settings& settings) {
  std::string name = settings.text("dtype");
  return name == "file" ? DType::none : dtype_from_name(name);
}

}  // namespace

Mesh mesh_of(const ModelObject& model, const Settings& settings) {
  const std::string text = settings.text("mesh");
  if (text != "file") return Mesh::parse(text);
  const auto& configurations = model.opened().imported.configurations;
  if (configurations.empty())
    throw Error(
        Code::invalid_argument,
        cat("the mesh is to be the file's, and ", quote(model.file()), " has no annotations for several devices"),
        "write a mesh, as \"tensor=2\"; plait_model_export with a mesh annotates a file");
  return mesh_of(configurations[0]);
}

CompileOptions generator_compile_options(ModelObject& model, const Settings& settings) {
  CompileOptions out = model.compile_options();
  out.dtype = dtype_of(settings);
  out.exact_activations = settings.text("activations") == "exact";
  out.mesh = mesh_of(model, settings);
  choose_device(settings, out);
  out.seeds = settings.texts("seeds");
  for (std::string& pass : settings.texts("off")) out.off.insert(std::move(pass));
  return out;
}

namespace {

/// "3G", "1.5G", "4096".
int64_t bytes_of_rank(const std::string& word, const std::string& all) {
  const char* units = "KMG";
  const char* const unit = word.empty() ? nullptr : std::strchr(units, word.back());
  const std::string number = word.substr(0, word.size() - (unit ? 1 : 0));
  double count = 0;
  if (!parse_double(number, count)) count = 0;
  const double bytes = std::ldexp(count, unit ? static_cast<int>(unit - units + 1) * 10 : 0);
  if (!(bytes >= 1) || bytes > 9e15)
    throw Error(Code::invalid_argument,
                cat("rank_memory ", quote(all), ": ", quote(word), " is not a number of bytes"),
                "write bytes for each pipeline rank, as in 3G,1.5G, or once for all");
  return static_cast<int64_t>(bytes);
}

}  // namespace

StageOptions generator_stages(const Settings& settings, const Mesh& mesh) {
  StageOptions out;
  const auto ranks = static_cast<size_t>(mesh.blocks(mesh.parts("pipeline")));
  if (ranks == 1) {
    for (const char* key : {"stages", "rank_memory"})
      if (settings.has(key))
        throw Error(
            Code::invalid_argument,
            cat("option ", key, " has no effect here: the mesh ", quote(mesh.text()), " has no pipeline ranks"),
            "leave it out, or give a mesh such as pipeline=2");
    return out;
  }
  for (size_t rank = 0; rank < ranks; ++rank) out.seats.push_back({static_cast<int32_t>(rank)});
  read_cut(settings.text("stages"), out);
  const std::string memory = settings.text("rank_memory");
  if (memory.empty()) return out;
  for (const std::string& word : split(memory, ',')) out.rank_bytes.push_back(bytes_of_rank(word, memory));
  if (out.rank_bytes.size() == 1) out.rank_bytes.resize(ranks, out.rank_bytes[0]);
  if (out.rank_bytes.size() != ranks)
    throw Error(Code::invalid_argument,
                cat("rank_memory ", quote(memory), " has ", out.rank_bytes.size(), " numbers, and the mesh ", ranks,
                    " ranks along pipeline"),
                "write one for each of them, or once for all");
  return out;
}

Graph raised_decoder(ModelObject& model, CompileOptions options) {
  Graph out;
  options.dump = [&](std::string_view pass, const Graph& graph) {
    if (pass == "raise") out = graph;
  };
  const Decoder decoder = recognise(model.opened().imported.graph, options);
  if (!decoder.recognised)
    throw Error(Code::unsupported, cat("only a recognised decoder is spread over ranks: ", decoder.why_not),
                "plait_model_info shows where matching stopped");
  return out;
}

EngineOptions engine_options(const Settings& settings, const ModelConfig& config) {
  EngineOptions out;
  out.threads = static_cast<int>(settings.integer("threads"));
  out.cache_bytes = settings.integer("cache_bytes");
  out.device_share = settings.real("gpu_memory_utilization");
  out.memory_bytes = settings.integer("memory_bytes");
  out.page_tokens = settings.integer("page_tokens");
  out.step_tokens = settings.integer("step_tokens");
  // A step must fit all running samples, each of which may need logits.
  out.step_sequences = settings.integer("running");
  out.step_rows = std::max(out.step_rows, out.step_sequences);
  out.context = settings.integer("context") > 0 ? settings.integer("context") : config.context;
  out.encoder_context = config.encoder_context;
  out.rank_timeout_s = static_cast<double>(settings.integer("rank_timeout_ms")) / 1000;
  return out;
}

GeneratorObject::GeneratorObject(std::shared_ptr<ModelObject> model, Settings settings,
                                 std::shared_ptr<WorldObject> world)
    : world_(std::move(world)),
      model_(std::move(model)),
      settings_(std::move(settings)),
      loading_([this](LoadProgress& progress) { return load(progress); }) {
  loading_.start();
}

void await_model(const ModelObject& model, LoadProgress& progress) {
  constexpr int64_t parts = 1000, patience_ms = 20;  // bounds the delay of a cancel
  constexpr double share = 0.15;
  if (model.wait_graph(0)) return;
  progress.stage(share, parts);
  for (int64_t done = 0; !model.wait_graph(patience_ms);) {
    auto now = static_cast<int64_t>(model.graph_progress() * parts);
    progress.advance(now - done);
    done = now;
  }
}

static void prepare_grammars(ModelObject& model) {
  try {
    model.tokenizer()->prepare_grammars();
  } catch (const Error&) {
    // Without text there are no grammars; what asks for one gets the error.
  }
}

std::shared_ptr<Scheduler> GeneratorObject::load(LoadProgress& progress) {
  await_model(*model_, progress);
  const OpenedModel& opened = model_->opened();
  const Settings settings =
      with_chosen_plan(*model_, settings_, world_.get(), WorldObject::Kind::generator, progress);
  const std::vector<NamedAdapter> adapters = given_adapters(settings);
  const CompileOptions compile = adapted_compile_options(*model_, settings, adapters);
  const EngineOptions engine_settings = engine_options(settings, opened.config);
  std::shared_ptr<World> world = world_ ? world_->lend(WorldObject::Kind::generator, *model_, settings) : nullptr;
  // Its errors are those of the first grammar.
  const std::future<void> grammars = std::async(std::launch::async, [&] {
    if (settings_.boolean("grammars") && model_->has_tokenizer()) prepare_grammars(*model_);
  });
  const auto joined = with_encoder(opened.source, opened.imported.graph, opened.registry->ops, &progress);
  auto engine = make_engine(joined ? joined->decoder : opened.imported.graph, compile, engine_settings, &progress,
                            std::move(world), joined ? &joined->encoder : nullptr);
  progress.check();
  SchedulerOptions options;
  options.queue = settings_.integer("queue");
  options.queue_tokens = settings_.integer("queue_tokens");
  options.queue_wait = timeout_of(settings_.integer("queue_wait_ms"));
  options.running = settings_.integer("running");
  options.overtakes = settings_.integer("overtakes");
  options.step_goal = timeout_of(settings_.integer("step_ms"));
  auto scheduler = std::make_shared<Scheduler>(std::move(engine), model_->text(), options);
  for (const auto& [name, weights] : adapters) scheduler->add_adapter(name, weights);
  if (settings_.boolean("profile")) scheduler->set_profiling(true);
  if (settings_.boolean("trace")) scheduler->set_tracing(true);
  return scheduler;
}

bool GeneratorObject::wait(int64_t timeout_ms) const {
  if (!loading_.wait(timeout_ms)) return false;
  loading_.get();
  return true;
}

namespace {

uint64_t seed_of(const Settings& settings) {
  if (settings.has("seed")) return static_cast<uint64_t>(settings.integer("seed"));
  uint64_t drawn = 0;  // std::random_device would need glibc 2.36
  if (getentropy(&drawn, sizeof drawn) != 0)
    throw Error(Code::io, "the system has no random numbers to seed the sampling with");
  return drawn >> 12;  // 52 bits, so that it can be passed back as an option
}

SamplingParams sampling_params(const Settings& settings) {
  SamplingParams out;
  out.temperature = settings.real("temperature");
  out.top_k = static_cast<int32_t>(settings.integer("top_k"));
  out.top_p = settings.real("top_p");
  out.min_p = settings.real("min_p");
  out.repetition_penalty = settings.real("repetition_penalty");
  out.presence_penalty = settings.real("presence_penalty");
  out.frequency_penalty = settings.real("frequency_penalty");
  out.logit_bias = settings.biases("logit_bias");
  out.seed = seed_of(settings);
  out.top_logprobs = static_cast<int32_t>(settings.integer("logprobs"));
  return out;
}

/// The end-of-text tokens: the configurations', otherwise the tokenizer's.
std::vector<int32_t> eos_tokens(ModelObject& model) {
  const ModelConfig& config = model.opened().config;
  if (!config.eos_tokens.empty() || !model.has_tokenizer()) return config.eos_tokens;
  try {
    auto eos = model.tokenizer()->eos_id();
    return eos ? std::vector<int32_t>{*eos} : std::vector<int32_t>{};
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    return {};  // a damaged tokenizer was logged; ids work without it
  }
}

/// What bounds the output; null if nothing does.
std::shared_ptr<const Grammar> grammar_of(const Settings& settings, ModelObject& model) {
  std::string_view given;
  std::string text;
  GrammarKind kind = GrammarKind::json_schema;
  const auto take = [&](std::string_view key, GrammarKind of, std::string value) {
    if (value.empty()) return;
    if (!given.empty())
      throw Error(Code::invalid_argument, cat("options ", given, " and ", key, " both bound the output"), "give one of them");
    given = key;
    kind = of;
    text = std::move(value);
  };
  take("json_schema", GrammarKind::json_schema, settings.text("json_schema"));
  take("json_object", GrammarKind::json_schema, settings.boolean("json_object") ? R"({"type": "object"})" : "");
  take("regex", GrammarKind::regex, settings.text("regex"));
  take("grammar", GrammarKind::lark, settings.text("grammar"));
  take("choices", GrammarKind::choices, settings.text("choices"));
  return given.empty() ? nullptr : model.grammars().get(*model.tokenizer(), kind, text);
}

RequestOptions request_options(const Settings& settings, ModelObject& model) {
  RequestOptions out;
  out.grammar = grammar_of(settings, model);
  out.forced_tokens = settings.boolean("forced_tokens");
  out.special_text = settings.boolean("special_text");
  out.sampling = sampling_params(settings);
  out.max_tokens = settings.integer("max_tokens");
  out.prompt_logprobs = static_cast<int32_t>(settings.integer("prompt_logprobs"));
  out.min_tokens = settings.integer("min_tokens");
  out.stop_tokens = settings.ids("stop_tokens");
  if (!settings.boolean("ignore_eos")) {
    auto eos = eos_tokens(model);
    out.stop_tokens.insert(out.stop_tokens.end(), eos.begin(), eos.end());
  }
  out.suppressed = settings.ids("suppress_tokens");
  out.suppressed_first = settings.ids("begin_suppress_tokens");
  out.stop_strings = settings.texts("stop");
  out.samples = static_cast<int32_t>(settings.integer("samples"));
  out.host_sampling = settings.boolean("host_sampling");
  out.keep = settings.boolean("keep");
  out.deadline = timeout_of(settings.integer("deadline_ms"));
  out.queue_deadline = timeout_of(settings.integer("queue_deadline_ms"));
  out.priority = static_cast<int32_t>(settings.integer("priority"));
  std::string kind = settings.text("kind");
  out.kind = kind == "score"   ? RequestOptions::Kind::score
             : kind == "embed" ? RequestOptions::Kind::embed
                               : RequestOptions::Kind::generate;
  return out;
}

/// `make_ids` makes the prompt from the generator and the request's settings.
template <class MakeIds>
std::shared_ptr<RequestObject> submit(plait_generator* generator, plait_options* options, plait_request* parent,
                                      MakeIds make_ids) {
  auto out = std::make_shared<RequestObject>();
  out->generator = object_of<GeneratorObject>(generator);
  Settings own = settings_of(options, for_request);
  Scheduler& scheduler = out->generator->scheduler();  // a loading error takes precedence
  ModelObject& model = out->generator->model();
  Settings settings = own.or_else(out->generator->settings()).or_else(model.opened().request_defaults);
  auto before = optional_object_of<RequestObject>(parent);
  if (before && before->generator != out->generator) {
    throw Error(Code::invalid_argument, "the parent is a request of another generator",
                "save it, and restore it in this one");
  }
  RequestOptions request = request_options(settings, model);
  // A continued conversation keeps its adapter, unless the request names one.
  if (!before || own.has("adapter")) request.adapter = settings.text("adapter");
  if (before) {
    request.parent = before->kept();
    if (!request.parent) {
      throw Error(Code::invalid_argument, "the parent has no conversation to continue",
                  "set the option keep on it, and pull its events to the end first");
    }
  }
  request.prompt = make_ids(model, settings, scheduler.encoder());
  give_rows(request, settings, model.opened(), scheduler.decoder().interface);
  give_encoder(request, settings, model.opened().config, scheduler.encoder());
  out->kind = request.kind;
  out->pooling = settings.text("pooling");
  out->seed = request.sampling.seed;
  out->logprobs = request.sampling.top_logprobs >= 0;
  out->request = scheduler.submit(std::move(request));
  return out;
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_generator_create(plait_model* model, plait_options* options, plait_generator** out) {
  return create(out, [&] {
    return std::make_shared<GeneratorObject>(object_of<ModelObject>(model), settings_of(options, for_generator));
  });
}

plait_status plait_generator_create_on(plait_world* world, plait_model* model, plait_options* options,
                                       plait_generator** out) {
  return create(out, [&] {
    return std::make_shared<GeneratorObject>(object_of<ModelObject>(model), settings_of(options, for_generator),
                                             object_of<WorldObject>(world));
  });
}

plait_status plait_generator_wait(plait_generator* generator, int64_t timeout_ms) {
  return guarded([&] {
    auto object = object_of<GeneratorObject>(generator);
    if (!object->wait(timeout_ms)) throw Error(Code::timeout, "the generator is still loading");
  });
}

plait_status plait_generator_progress(plait_generator* generator, double* fraction) {
  return guarded([&] {
    *required(fraction, "fraction") = 0;
    *fraction = object_of<GeneratorObject>(generator)->progress();
  });
}

plait_status plait_generator_cancel(plait_generator* generator) {
  return guarded([&] { object_of<GeneratorObject>(generator)->cancel(); });
}

plait_status plait_generator_submit_text(plait_generator* generator, const char* text, int64_t length,
                                         plait_options* options, plait_request* parent, plait_request** out) {
  return create(out, [&] {
    std::string_view prompt = text_of(text, length, "text");
    return submit(generator, options, parent, [&](ModelObject& model, const Settings&, const Encoder* encoder) {
      const bool of_decoder = encoder && !encoder->tensor_name().empty();  // whose end of text would end it
      return model.tokenizer()->encode(prompt, parent == nullptr && !of_decoder);
    });
  });
}

plait_status plait_generator_submit_ids(plait_generator* generator, const int32_t* ids, int64_t count,
                                        plait_options* options, plait_request* parent, plait_request** out) {
  return create(out, [&] {
    auto prompt = span_of(ids, count, "ids");
    return submit(generator, options, parent,
                  [&](auto&&...) { return std::vector<int32_t>(prompt.begin(), prompt.end()); });
  });
}

plait_status plait_generator_submit_chat(plait_generator* generator, const char* messages, int64_t length,
                                         plait_options* options, plait_request** out) {
  return create(out, [&] {
    std::string_view turns = text_of(messages, length, "messages");
    return submit(generator, options, nullptr, [&](ModelObject& model, const Settings& settings, const Encoder*) {
      std::string tools = settings.text("tools"), variables = settings.text("chat_variables");
      auto tokenizer = model.tokenizer();
      // The template writes the BOS itself.
      return tokenizer->encode(tokenizer->render_chat({turns, tools, variables}), false);
    });
  });
}

plait_status plait_generator_restore(plait_generator* generator, const void* bytes, int64_t size,
                                     plait_request** out) {
  return create(out, [&] {
    auto restored = std::make_shared<RequestObject>();
    restored->generator = object_of<GeneratorObject>(generator);
    restored->conversation =
        restored->generator->scheduler().restore(span_of(static_cast<const std::byte*>(bytes), size, "bytes"));
    return restored;
  });
}

plait_status plait_generator_statistics(plait_generator* generator, plait_generator_stats* out) {
  return guarded([&] {
    auto object = object_of<GeneratorObject>(generator);
    Scheduler& scheduler = object->scheduler();
    SchedulerStats stats = scheduler.stats();
    plait_generator_stats filled{};
    filled.running = stats.running;
    filled.waiting = stats.waiting;
    filled.finished = stats.finished;
    filled.preempted = stats.preempted;
    filled.steps = stats.steps;
    filled.pages = stats.engine.pages;
    filled.pages_free = stats.engine.pages_free;
    filled.pages_shared = stats.engine.pages_shared;
    filled.weight_bytes = stats.engine.weight_bytes;
    filled.cache_bytes = stats.engine.cache_bytes;
    filled.arena_bytes = stats.engine.arena_bytes;
    filled.native_bytes = filled.weight_bytes + filled.cache_bytes + filled.arena_bytes;
    filled.prefix_tokens = stats.engine.prefix_hits;
    filled.vocabulary = scheduler.vocabulary();
    filled.context = scheduler.context();
    filled.states = stats.engine.states;
    filled.states_free = stats.engine.states_free;
    filled.masks = stats.masks.masks;
    filled.mask_seconds = stats.masks.seconds;
    filled.mask_wait_seconds = stats.masks.wait_seconds;
    filled.waiting_tokens = stats.waiting_tokens;
    filled.expected_wait_seconds = stats.expected_wait_s;
    filled.step_seconds = stats.step_s;
    filled.sampling_seconds = stats.sampling_s;
    filled.failed_rank = stats.engine.failed_rank;
    fill(out, filled, offsetof(plait_generator_stats, states));
  });
}

plait_status plait_generator_histograms(plait_generator* generator, plait_tensor** json) {
  struct Row {
    const char *name, *help;
    Histogram SchedulerHistograms::*values;
  };
  constexpr Row rows[] = {
      {"step_seconds", "A step, to its logits.", &SchedulerHistograms::step_seconds},
      {"step_samples", "Samples in a step.", &SchedulerHistograms::step_samples},
      {"step_tokens", "Tokens computed by a step.", &SchedulerHistograms::step_tokens},
      {"request_prompt_tokens", "Tokens of the prompt of a request that has started.", &SchedulerHistograms::request_prompt_tokens},
      {"request_cached_tokens", "Of these, found in the cache.", &SchedulerHistograms::request_cached_tokens},
      {"request_new_tokens", "New tokens of a request that has ended.", &SchedulerHistograms::request_new_tokens},
  };
  return create(json, [&] {
    const SchedulerHistograms all = object_of<GeneratorObject>(generator)->scheduler().stats().histograms;
    auto out = nlohmann::ordered_json::object();
    for (const Row& row : rows) {
      const Histogram& one = all.*row.values;
      const auto used = std::span(one.counts).first(one.bounds.size() + 1);
      out[row.name]["help"] = row.help;
      out[row.name]["bounds"] = std::vector<double>(one.bounds.begin(), one.bounds.end());
      out[row.name]["counts"] = std::vector<int64_t>(used.begin(), used.end());
      out[row.name]["sum"] = one.sum;
    }
    return text_tensor(out.dump());
  });
}

plait_status plait_generator_profile(plait_generator* generator, plait_tensor** json) {
  return create(json, [&] {
    auto rows = nlohmann::ordered_json::object();
    for (const auto& [op, row] : object_of<GeneratorObject>(generator)->scheduler().profile()) {
      rows[op] = {{"seconds", row.seconds}, {"calls", row.calls}, {"waited", row.waited}};
    }
    return text_tensor(rows.dump(1));
  });
}

plait_status plait_generator_trace(plait_generator* generator, plait_tensor** json) {
  return create(json,
                [&] { return text_tensor(trace_text(object_of<GeneratorObject>(generator)->scheduler().trace())); });
}

plait_status plait_generator_ranks(plait_generator* generator, plait_tensor** json) {
  return create(json, [&] {
    auto object = object_of<GeneratorObject>(generator);
    const Scheduler& scheduler = object->scheduler();
    const Mesh mesh = scheduler.mesh();
    auto rows = nlohmann::ordered_json::array();
    const EngineStats stats = scheduler.stats().engine;
    for (const RankBytes& rank : stats.ranks) {
      const auto number = static_cast<int64_t>(rows.size());
      auto place = nlohmann::ordered_json::object();
      for (const Mesh::Axis& axis : mesh.axes())
        if (axis.size > 1) place[axis.name] = mesh.block(number, axis.parts);
      rows.push_back({{"rank", number},
                      {"place", std::move(place)},
                      {"weight_bytes", rank.weights},
                      {"cache_bytes", rank.cache},
                      {"arena_bytes", rank.arena},
                      {"adapter_bytes", rank.adapters}});
      if (!number && !stats.transport.empty()) rows.back()["collectives"] = stats.transport;
    }
    return text_tensor(rows.dump(1));
  });
}

plait_status plait_generator_release(plait_generator* generator) { return release<GeneratorObject>(generator); }
