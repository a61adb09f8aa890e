#include "serving/scheduler.h"

#include <algorithm>

#include "core/base/bytes.h"
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
    if ((id < 0 || (engine.vocabulary() && id >= engine.vocabulary())) && !has_row(id))
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
    throw Error(Code::invalid_argument,
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
    throw Error(
        Code::unsupported, "the model takes tokens only, and the prompt has embeddings that stand for some",
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
                cat("the prompt has ", places.size(), " tokens of id ", join_ids(options.input_tokens),
                    ", and there are ", rows.shape()[0], " rows of embeddings to stand for them"),
                "write that token once for each row; option inputs_token sets its id");
  if (places.empty()) return;
  if (!options.input_places.empty() && options.input_places.size() != places.size())
    throw Error(Code::invalid_argument,
                cat("there are ", options.input_places.size(), " places for ", places.size(), " rows"));
  job.given.push_back(core.number(rows, std::move(options.input_places)));
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
    throw Error(Code::unsupported,
                "a conversation keeps the encoder's input that it began with, and the request has another",
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
  check(options, core_->engine(), core_->tokenizer(), prompt, job->adapter ? job->adapter->prefix : 0,
        job->input.get());
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
constexpr std::string_view conversation_mark = "PLTTALK3";
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

/// Its tokens that were not fed, and its rows that stand for tokens, with their ids and places.
static void write_own(ByteWriter& out, const Conversation& conversation) {
  out.put_list(conversation.tail());
  out.put(static_cast<uint64_t>(conversation.given().size()));
  for (const auto& one : conversation.given()) {
    const Tensor& rows = one->rows();
    out.put(one->id(0));
    out.put_list(std::span<const float>(rows.as<float>(), static_cast<size_t>(rows.elements())));
    out.put_list(one->places());
  }
}

static SavedRows read_rows(ByteReader& in, int64_t size, SchedulerCore& core) {
  const auto first = in.get<int32_t>();
  const auto numbers = in.get_list<float>();
  auto places = in.get_list<GivenPlace>();
  const int64_t count = size ? static_cast<int64_t>(numbers.size()) / size : 0;
  if (count < 1 || count * size != static_cast<int64_t>(numbers.size()) || first >= 0)
    in.fail("has rows of another model");
  constexpr int32_t most = 1 << 30;
  const auto fits = [](int32_t one) { return one >= 0 && one <= most; };
  for (const GivenPlace& place : places)
    if (!fits(place.advance) || !std::all_of(place.offset.begin(), place.offset.end(), fits))
      in.fail("has a row without a place");
  if (!places.empty() && static_cast<int64_t>(places.size()) != count) in.fail("does not have a place for each row");
  return {first, core.number(Tensor::of<float>(DType::f32, {count, size}, numbers), std::move(places))};
}

std::vector<std::byte> Scheduler::save(const Conversation& conversation) {
  ByteWriter out;
  write_own(out, conversation);
  core_->thread().run([&] {
    const auto sequence = core_->engine().save(conversation.sequence());
    out.put_bytes(sequence.data(), sequence.size());
  });
  return sealed(out.take());
}

std::shared_ptr<Conversation> Scheduler::restore(std::span<const std::byte> bytes) {
  bytes = unsealed(bytes);
  ByteReader in(bytes, "the saved conversation", "it must come from the same model, dtype and version");
  auto tail = in.get_list<int32_t>();
  if (tail.size() > 1) in.fail("is damaged");
  std::vector<SavedRows> saved;
  std::vector<std::shared_ptr<const GivenRows>> given;
  for (auto sets = in.get<uint64_t>(); sets > 0; --sets) {  // each takes bytes: a wrong count ends with them
    saved.push_back(read_rows(in, decoder().interface.given_size, *core_));
    given.push_back(saved.back().rows);
  }
  for (int32_t& id : tail) {
    const bool is_row = id < 0;
    if (is_row) id = restored_id(saved, id);
    if (is_row ? id >= 0 : vocabulary() && id >= vocabulary()) in.fail("holds a token that the model does not have");
  }
  const std::span<const std::byte> sequence = in.get_rest();
  std::shared_ptr<Conversation> out;
  core_->thread().run([&] {
    out = core_->conversation(core_->engine().restore(sequence, saved), std::move(tail), std::move(given), nullptr);
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
