#include "serving/scheduler.h"

#include <algorithm>

#include "core/base/crc32c.h"
#include "core/base/text.h"
#include "serving/core.h"

namespace plait {

Scheduler::Scheduler(std::unique_ptr<Engine> engine, TokenizerFuture tokenizer, SchedulerOptions options)
    : core_(std::make_shared<SchedulerCore>(std::move(engine), std::move(tokenizer), options)) {
  core_->start();
}

Scheduler::~Scheduler() { core_->stop(); }

static std::string join_ids(const std::vector<int32_t>& ids) {
  std::vector<std::string> words;
  for (int32_t id : ids) words.push_back(cat(id));
  return words.empty() ? "none" : join(words, " or ");
}

/// `prefix`: the adapter's prefix tokens, before the prompt.
static void check(const RequestOptions& options, const Engine& engine, const TokenizerFuture& tokenizer,
                  int64_t prompt, int64_t prefix, const EncoderInput* input) {
  if (prompt == 0)
    throw Error(Code::invalid_argument, "the prompt is empty", "give at least one token; a BOS will do");
  const std::vector<int32_t>& stood_for = options.input_tokens;  // a row comes in their place
  const auto has_row = [&](int32_t id) {
    return options.input_rows.present() && std::find(stood_for.begin(), stood_for.end(), id) != stood_for.end();
  };
  for (int32_t id : options.prompt)
    if (id < 0 || (engine.vocabulary() && id >= engine.vocabulary() && !has_row(id)))
      throw Error(Code::invalid_argument,
                  cat("token id ", id, " is out of range: the vocabulary has ", engine.vocabulary()));
  if (engine.context() && prefix + prompt > engine.context())
    throw Error(Code::invalid_argument,
                cat("the prompt has ", prompt, " tokens", prefix ? cat(" after a prefix of ", prefix) : "",
                    ", the context ", engine.context()),
                "shorten the prompt");
  if (options.samples < 1 || options.samples > 1024)
    throw Error(Code::invalid_argument, cat("samples is ", options.samples, ", expected 1 to 1024"));
  if (options.grammar && options.kind != RequestOptions::Kind::generate)
    throw Error(Code::invalid_argument, "a grammar is for generated text, and the request generates none",
                "leave the grammar out, or set the kind generate");
  if (options.max_tokens < 0) throw Error(Code::invalid_argument, cat("max_tokens is ", options.max_tokens));
  if (!options.stop_strings.empty() && !(tokenizer.valid() && tokenizer.get()))
    throw Error(Code::invalid_argument, "stop strings need a tokenizer", "use stop_tokens");
  if (!engine.could_fit(prefix + prompt + 1, input))
    throw Error(Code::out_of_memory,
                cat("the cache of ", human_bytes(engine.options().cache_bytes), " cannot hold the prompt's ", prompt,
                    " tokens", input ? cat(" and ", human_bytes(input->bytes), " that the encoder makes") : ""),
                "raise cache_bytes");
}

/// Puts the ids of the rows that stand for tokens in their places.
static void take_rows(Request::State& job, RequestOptions& options, SchedulerCore& core) {
  if (!options.input_rows.present()) return;
  const int64_t size = core.engine().decoder().interface.given_size;
  const Tensor rows = std::move(options.input_rows);
  if (!size)
    throw Error(Code::unsupported, "the model takes tokens only, and the prompt has embeddings that stand for some",
                "decoders take them whose file has the input inputs_embeds, with the file of their embeddings next to it");
  if (rows.dtype() != DType::f32 || rows.shape().rank() != 2 || rows.shape()[1] != size)
    throw Error(Code::invalid_argument, cat("the embeddings are ", dtype_name(rows.dtype()), rows.shape().text(),
                                            ", expected f32[n, ", size, "]"));
  std::vector<int32_t*> places;
  for (int32_t& id : options.prompt)
    if (std::find(options.input_tokens.begin(), options.input_tokens.end(), id) != options.input_tokens.end())
      places.push_back(&id);
  if (static_cast<int64_t>(places.size()) != rows.shape()[0])
    throw Error(Code::invalid_argument,
                cat("the prompt has ", places.size(), " tokens of id ", join_ids(options.input_tokens), ", and there are ",
                    rows.shape()[0], " rows of embeddings to stand for them"),
                "write that token once for each row; option inputs_token sets its id");
  if (places.empty()) return;
  job.given.push_back(core.number(rows));
  for (size_t i = 0; i < places.size(); ++i) *places[i] = job.given.back()->id(static_cast<int64_t>(i));
}

/// What the encoder takes of a request; null if there is none.
static std::shared_ptr<const EncoderInput> take_encoder_input(RequestOptions& options, const Engine& engine) {
  const Encoder* encoder = engine.encoder();
  const std::string name = std::move(options.encoder_input);
  const Tensor tensor = std::move(options.encoder_tensor);
  const std::vector<int32_t> text = std::move(options.encoder_text);
  if (!encoder) {
    if (!tensor.present()) return nullptr;
    throw Error(Code::unsupported, cat("the model has no encoder, and option ", name, " is set"), "leave it out");
  }
  if (options.parent) {
    if (text.empty() && !tensor.present()) return options.parent->input();
    throw Error(Code::unsupported, "a conversation keeps the encoder's input that it began with, and the request has another",
                "submit it without the parent");
  }
  if (tensor.present()) return encoder->take_tensor(name, tensor);
  if (encoder->tensor_name().empty()) return encoder->take_text(text);
  throw Error(Code::invalid_argument, cat("the encoder's input ", quote(encoder->tensor_name()), " is missing"),
              cat("set option ", encoder->tensor_name(), "; the prompt is what the decoder begins with"));
}

std::shared_ptr<Request> Scheduler::submit(RequestOptions options) {
  auto job = std::make_shared<Request::State>();
  std::vector<int32_t> parent;
  if (options.parent) {
    const std::vector<int32_t>& tail = options.parent->tail();
    parent = options.parent->sequence().tokens();
    parent.insert(parent.end(), tail.begin(), tail.end());
    job->adapter = options.parent->sequence().adapter();
    job->given = options.parent->given();
  }
  if (options.adapter) job->adapter = options.adapter->empty() ? nullptr : core_->adapter(*options.adapter);
  auto prompt = static_cast<int64_t>(parent.size() + options.prompt.size());
  job->input = take_encoder_input(options, core_->engine());
  check(options, core_->engine(), core_->tokenizer(), prompt, job->adapter ? job->adapter->prefix : 0, job->input.get());
  take_rows(*job, options, *core_);
  job->prompt = std::move(parent);
  job->prompt.insert(job->prompt.end(), options.prompt.begin(), options.prompt.end());
  if (options.kind != RequestOptions::Kind::generate) options.samples = 1, options.parent.reset();
  job->samples_left = options.samples;
  job->submitted = std::chrono::steady_clock::now();
  if (options.deadline.count() > 0) job->deadline = job->submitted + options.deadline;
  if (options.queue_deadline.count() > 0) job->queue_deadline = job->submitted + options.queue_deadline;
  job->usage.prompt_tokens = prompt + (job->input ? job->input->tokens : 0);
  job->options = std::move(options);
  std::weak_ptr<SchedulerCore> core = core_;
  job->wake = [core] {
    if (auto alive = core.lock()) alive->wake();
  };
  core_->enqueue(job);
  return std::shared_ptr<Request>(new Request(std::move(job)));
}

SchedulerStats Scheduler::stats() const { return core_->stats(); }

/// A saved conversation is this, then the CRC-32C of the rest, then the rest. Versions before the checksum began with a
/// count of 0 or 1.
constexpr std::string_view conversation_mark = "PLTTALK2";
constexpr size_t conversation_header = conversation_mark.size() + sizeof(uint32_t);

static std::vector<std::byte> sealed(std::span<const std::byte> contents) {
  const auto mark = std::as_bytes(std::span(conversation_mark));
  const uint32_t checksum = crc32c(contents);
  const auto sum = std::as_bytes(std::span(&checksum, 1));
  std::vector<std::byte> out(mark.begin(), mark.end());
  out.insert(out.end(), sum.begin(), sum.end());
  out.insert(out.end(), contents.begin(), contents.end());
  return out;
}

/// What was sealed. Throws Error(bad_model) when a byte of it is another.
static std::span<const std::byte> unsealed(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < conversation_header || !text.starts_with(conversation_mark))
    throw Error(Code::bad_model, cat("these ", text.size(), " bytes are no saved conversation of this version"),
                "versions without a checksum saved others: submit the conversation's text again");
  uint32_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + conversation_mark.size(), sizeof checksum);
  bytes = bytes.subspan(conversation_header);
  if (crc32c(bytes) != checksum)
    throw Error(Code::bad_model, "the saved conversation is damaged: its checksum does not fit its bytes",
                "save it again, or submit the conversation's text");
  return bytes;
}

std::vector<std::byte> Scheduler::save(const Conversation& conversation) {
  if (!conversation.given().empty())
    throw Error(Code::unsupported, "a conversation in which embeddings stand for tokens cannot be saved",
                "keep its prompt and embeddings, and submit them again");
  std::vector<std::byte> out;
  core_->thread().run([&] {
    const auto& tail = conversation.tail();
    auto count = static_cast<uint64_t>(tail.size());
    auto put = [&](const void* data, size_t size) {
      auto* bytes = static_cast<const std::byte*>(data);
      out.insert(out.end(), bytes, bytes + size);
    };
    put(&count, sizeof count);
    put(tail.data(), tail.size() * sizeof(int32_t));
    auto sequence = core_->engine().save(conversation.sequence());
    out.insert(out.end(), sequence.begin(), sequence.end());
  });
  return sealed(out);
}

std::shared_ptr<Conversation> Scheduler::restore(std::span<const std::byte> bytes) {
  bytes = unsealed(bytes);
  uint64_t count = 0;
  if (bytes.size() < sizeof count) throw Error(Code::bad_model, "the saved conversation is truncated");
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes = bytes.subspan(sizeof count);
  if (count > 1 || bytes.size() < count * sizeof(int32_t))
    throw Error(Code::bad_model, "the saved conversation is damaged");
  std::vector<int32_t> tail(count);
  if (count) std::memcpy(tail.data(), bytes.data(), count * sizeof(int32_t));
  for (int32_t id : tail)
    if (id < 0 || (vocabulary() && id >= vocabulary()))
      throw Error(Code::bad_model, "the saved conversation holds a token that the model does not have");
  std::shared_ptr<Conversation> out;
  core_->thread().run([&] {
    out = core_->conversation(core_->engine().restore(bytes.subspan(count * sizeof(int32_t))), std::move(tail), {}, nullptr);
  });
  return out;
}

const Decoder& Scheduler::decoder() const { return core_->engine().decoder(); }
const Encoder* Scheduler::encoder() const { return core_->engine().encoder(); }
int64_t Scheduler::vocabulary() const { return core_->engine().vocabulary(); }
Mesh Scheduler::mesh() const { return core_->engine().mesh(); }
int64_t Scheduler::context() const { return core_->engine().context(); }
void Scheduler::set_profiling(bool on) {
  core_->thread().run([&] { core_->engine().set_profiling(on); });
}
void Scheduler::set_tracing(bool on) {
  core_->thread().run([&] { core_->engine().set_tracing(on); });
}
std::vector<std::vector<TraceEvent>> Scheduler::trace() const {
  std::vector<std::vector<TraceEvent>> out;
  core_->thread().run([&] { out = core_->engine().trace(); });
  return out;
}
Profile Scheduler::profile() const {
  Profile out;
  core_->thread().run([&] { out = core_->engine().profile(); });
  return out;
}

}  // namespace plait
