#include "bindings/c/options.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::c_api {
namespace {

using Type = OptionRow::Type;
constexpr double huge = 9e15;           // integers below 2^53 are exact as double
constexpr double below_one = 0.999999;  // of shares that are never all

constexpr OptionRow rows[] = {
    {"isa", Type::text, for_model, "",
     "most advanced instruction set to use: reference, avx2, avx512, avx512_bf16, amx; default: PLAIT_ISA of the "
     "environment, else the best of this processor"},
    {"cache_dir", Type::text, for_model | for_tokenizer, "",
     "directory, made if absent, for what makes later loads faster; default: nothing is written"},
    {"background", Type::boolean, for_model, "false",
     "opening returns at once: plait_model_wait, _progress and _cancel tell the rest"},
    {"log_dir", Type::text, for_model, "",
     "directory, made if absent, where the lines of plait_log_next are kept too, in a file of the process that stays "
     "small: plait-PID.log; default: nothing is written"},
    {"tokenizer", Type::choice, for_model, "beside",
     "beside: loads on a thread of its own while the model does, and events have text as soon as it is there; late: "
     "when it is first asked for, and events have no text; none: as if there were none",
     0, 0, "beside late none"},
    {"weights", Type::choice, for_model, "mapped",
     "mapped: the model's files stay where they are on the disk, and pages of them enter memory as they are used; copied: "
     "they are read into memory when the model is opened, so that what others do to them later does not matter",
     0, 0, "mapped copied"},
    {"text_bytes", Type::bytes, for_model | for_tokenizer, "64M",
     "most memory that tokenizing or decoding one text, or rendering one conversation by the chat template, may take, beside "
     "1 KiB for each byte of the text and 64 for each of the conversation; more is OUT_OF_MEMORY",
     1, huge},
    {"text_ms", Type::integer, for_model | for_tokenizer, "10000",
     "most milliseconds that it may take, beside one for each 64 bytes; longer is TIMEOUT", 1, huge},
    {"threads", Type::integer, for_generator | for_session | for_trainer, "0",
     "threads that compute, on a mesh those of each rank; 0: as many as there are usable processors, or this rank's "
     "share of "
     "them",
     0, 4096},
    {"dtype", Type::choice, for_generator | for_session | for_trainer | for_export, "file",
     "file, f32: weights as they are stored, arithmetic and cache in f32; bf16: weights and cache in bf16", 0, 0,
     "file f32 bf16"},
    {"activations", Type::choice, for_generator | for_trainer | for_export, "file",
     "of a decoder whose file rounds activations to 8 bits: file: rounded, op by op as the file says; exact: taken "
     "as they are, which is nearer to the exact product, recognised and faster",
     0, 0, "file exact"},
    {"cache_bytes", Type::bytes, for_generator, "512M", "hard budget of the key-value cache, of all ranks together",
     1, huge},
    {"memory_bytes", Type::bytes, for_generator | for_session, "0",
     "most memory that a run may take beside weights and cache, of all ranks together; 0: three quarters of the "
     "machine's",
     0, huge},
    {"page_tokens", Type::integer, for_generator, "32", "tokens of one page of the cache", 1, 4096},
    {"step_tokens", Type::integer, for_generator, "512",
     "most tokens of one step, over all requests; a graph that is not recognised takes each prompt whole", 1,
     1 << 20},
    {"running", Type::integer, for_generator, "64", "most samples that run at once", 1, 65536},
    {"queue", Type::integer, for_generator, "256", "most requests that wait; one more is refused as overloaded", 1,
     1 << 20},
    {"context", Type::integer, for_generator, "0",
     "longest sequence in tokens; 0: what the graph and config.json allow", 0, huge},
    {"mesh", Type::text, for_generator | for_trainer | for_export, "",
     "ranks that a decoder is spread over: \"tensor=2\" cuts its weights, \"data=2,tensor=2\" shares requests out, "
     "too; "
     "file: as many as the file is annotated for; \"\": one rank"},
    {"seeds", Type::text, for_generator | for_trainer | for_export, "",
     "how the mesh's axis tensor cuts weights: a recipe, tensor or expert; data: not at all; search: as is cheapest; "
     "file: as "
     "the file's annotations say; PATTERN=SHARDING: those of fitting names, as in \"*.q_proj.weight=[tensor, -]\"; "
     "sequence: "
     "besides, tokens are shared out between products; expert_data: besides, to train, experts are given out over "
     "the "
     "axis data; default: file where it has annotations for the mesh, else "
     "tensor",
     0, 0, "", true},
    {"rank_timeout_ms", Type::integer, for_generator | for_world, "60000",
     "how long a rank waits for another in a step before that one counts as failed; of processes the world's counts",
     1, huge},
    {"share_memory", Type::boolean, for_world, "true",
     "processes of one machine exchange through shared memory; false: through MPI's messages, as between machines"},
    {"mpi_plugin", Type::text, for_world, "", "path of plait_mpi.so; \"\": beside this library"},
    {"off", Type::text, for_generator, "",
     "name of a pass to leave out, for finding faults: \"raise\" runs a decoder's graph as its file says; \"fuse\"",
     0, 0, "", true},
    {"profile", Type::boolean, for_generator, "false", "measure seconds per op"},
    {"trace", Type::boolean, for_generator | for_session, "false",
     "record what each rank does when, up to a million events a rank"},
    {"data", Type::text, for_trainer, "",
     "file to train on: JSON lines (text; prompt and completion; messages), an .npy array of token ids, or plain "
     "text; "
     "\"\": the host gives every step"},
    {"eval_data", Type::text, for_trainer, "", "file to evaluate on, like data; \"\": none"},
    {"out", Type::text, for_trainer, "",
     "directory, made if absent, for checkpoints, the log and the loss's picture; \"\": nothing is written"},
    {"resume", Type::boolean, for_trainer, "false", "go on from the newest checkpoint in out, where there is one"},
    {"steps", Type::integer, for_trainer, "0", "updates of the whole run; 0: as many as epochs need", 0, huge},
    {"epochs", Type::real, for_trainer, "1", "how often each sample is seen, where steps says nothing", 0, 1e9},
    {"batch", Type::integer, for_trainer, "8", "samples of a step", 1, 1 << 24},
    {"seq", Type::integer, for_trainer, "0",
     "most tokens of a sample, to which streams are cut; 0: 1024, or the model's context where that is shorter", 0,
     1 << 24},
    {"cut_long", Type::boolean, for_trainer, "false",
     "documents longer than seq become pieces; else they are an error"},
    {"micro_batch", Type::integer, for_trainer, "0",
     "most tokens that are computed at once; what a step has beyond them follows, and gradients add up; 0: those of "
     "batch samples of seq tokens, at most 2048 (512 with adapters), and at least seq",
     0, 1 << 24},
    {"lora", Type::integer, for_trainer, "0", "rank of the adapters that are trained; 0: the weights themselves are",
     0, 65536},
    {"lora_alpha", Type::real, for_trainer, "16", "adapters count alpha / rank times", 0, 1e9},
    {"lora_dropout", Type::real, for_trainer, "0",
     "share of its inputs that an adapter does not see, others for each token, step and adapter; the same for a seed "
     "on any "
     "mesh, and none in evaluations",
     0, 0.99},
    {"lora_targets", Type::text, for_trainer, "",
     "which weights get adapters: by role query, key, value, attention_output, attention, feed_forward, head, "
     "embedding or experts; or a pattern of names of weights, nodes or modules, as \"*.q_proj.weight\"; default: "
     "all products but the head",
     0, 0, "", true},
    {"loss", Type::text, for_trainer, "",
     "name of an output of the model that is its own loss, one float: the model, whatever it is, is trained as it "
     "stands, and "
     "the host gives each step's inputs by name; \"\": the loss of the next token, of a recognised decoder"},
    {"prefix", Type::integer, for_trainer, "0",
     "tokens of a prefix that is trained instead: keys and values that stand before each document in every layer's "
     "attention; not with lora; 0: none",
     0, 65536},
    {"train", Type::text, for_trainer, "",
     "which weights are trained, where there are no adapters: a pattern of names; default: all", 0, 0, "", true},
    {"checkpoint", Type::text, for_trainer | for_export, "",
     "directory of a checkpoint of the model, or of a run, whose newest is meant: of an export, the weights to "
     "write, adapters "
     "merged; of a trainer, the weights to begin with, adapters merged, or beside them where nothing is trained "
     "(frozen)"},
    {"adapter", Type::text, for_generator | for_request | for_trainer | for_export, "",
     "directory of an adapter in PEFT's layout: of a generator, what requests are computed with that name none, "
     "beside "
     "weights that stay as they are; of an export, to be merged; of a trainer, to begin with. Of a request, the name "
     "of "
     "one of the generator's adapters, \"\": none; what continues a conversation goes on with its adapter"},
    {"adapters", Type::text, for_generator, "",
     "NAME=DIRECTORY of an adapter in PEFT's layout that requests may name; plait_generator_add_adapter adds more", 0,
     0, "", true},
    {"adapter_slots", Type::integer, for_generator, "0",
     "most low-rank adapters at once, those that are removed but still in use included; 0: as many as the generator "
     "is "
     "made with",
     0, 4096},
    {"adapter_rank", Type::integer, for_generator, "0",
     "rank of the largest adapter; 0: of the largest that the generator is made with, 16 without any", 0, 65536},
    {"adapter_targets", Type::text, for_generator, "",
     "which products later adapters may change: roles or patterns of products, as of lora_targets; default: "
     "those of the adapters that the generator is made with, and all but the head where adapter_slots asks for more",
     0, 0, "", true},
    {"zero", Type::integer, for_trainer, "0",
     "what the ranks along the mesh's axis data share out instead of each having all of it: 1: what the optimizer "
     "keeps; "
     "2: sums of gradients, too; 3: weights, too",
     0, 3},
    {"bundle_bytes", Type::bytes, for_trainer, "256K",
     "ranks say small arrays (gradients, weights of zero 3) together, up to so many bytes at once; 0: each by "
     "itself"},
    {"overlap_bytes", Type::bytes, for_trainer, "64M",
     "ranks compute while they speak (gradients of later layers, weights of zero 3), as far as so much memory a rank "
     "holds what is under way; 0: they wait for it. The bits are the same"},
    {"recompute", Type::choice, for_trainer, "auto",
     "what the backward pass reads of the forward pass is kept (off), or computed once more: selective: norms, "
     "activations and the like; rounded: those, too, and results of products that dtype bf16 rounds are kept as "
     "bf16; full: all but the residual stream; auto: rounded with dtype bf16, else off. All but rounded have "
     "the same bits",
     0, 0, "auto off selective rounded full"},
    {"frozen", Type::boolean, for_trainer, "false",
     "nothing is trained, and no gradients are kept: evaluations and plait_trainer_forward alone"},
    {"optimizer", Type::choice, for_trainer, "adamw",
     "adamw; sgd with momentum; or adafactor, which keeps a "
     "row and a column for a matrix",
     0, 0, "adamw sgd adafactor"},
    {"beta1", Type::real, for_trainer, "0.9", "of adamw: how much of its mean gradient stays from step to step", 0,
     below_one},
    {"beta2", Type::real, for_trainer, "0.999", "of adamw: the same of the mean square", 0, below_one},
    {"epsilon", Type::real, for_trainer, "1e-8", "of adamw: added to the root of the mean square", 1e-30, 1},
    {"beta2_decay", Type::real, for_trainer, "-0.8",
     "of adafactor: the squares of step t have the share t^beta2_decay of their mean", -10, 0},
    {"momentum", Type::real, for_trainer, "0", "of sgd", 0, 1},
    {"weight_decay", Type::real, for_trainer, "0.01",
     "share of a weight, times the learning rate, that it loses with each step; biases and norms lose nothing", 0,
     1e6},
    {"lr", Type::real, for_trainer, "1e-4", "learning rate, at its highest", 0, 1e6},
    {"schedule", Type::choice, for_trainer, "cosine",
     "how the learning rate goes on behind its warm-up: cosine and linear fall to lr_floor over steps; constant is "
     "the "
     "default of a host that gives every step and says nothing of steps",
     0, 0, "constant linear cosine"},
    {"warmup", Type::integer, for_trainer, "0", "steps in which the learning rate rises", 0, huge},
    {"lr_floor", Type::real, for_trainer, "0", "where the learning rate ends, as a share of lr", 0, 1},
    {"clip", Type::real, for_trainer, "1", "longest gradient that counts in whole, as one vector; 0: any", 0, 1e30},
    {"evaluate_every", Type::integer, for_trainer, "0", "steps between evaluations; 0: at the end alone", 0, huge},
    {"patience", Type::integer, for_trainer, "0",
     "end behind so many evaluations in a row without a new best; 0: never", 0, huge},
    {"save_every", Type::integer, for_trainer, "0", "steps between checkpoints; 0: at the end alone", 0, huge},
    {"keep_checkpoints", Type::integer, for_trainer, "3", "newest checkpoints that stay, beside the best", 1, huge},
    {"kind", Type::choice, for_request, "generate",
     "generate; score: logits of every position of the prompt; embed: hidden states of the prompt", 0, 0,
     "generate score embed"},
    {"pooling", Type::choice, for_request, "none", "of embed: none (each token's), mean, last", 0, 0,
     "none mean last"},
    {"max_tokens", Type::integer, for_request, "256", "most new tokens of a sample", 1, huge},
    {"min_tokens", Type::integer, for_request, "0", "new tokens before which nothing ends the text", 0, huge},
    {"temperature", Type::real, for_request, "0", "0: greedy; larger is more varied", 0, 1e6},
    {"top_k", Type::integer, for_request, "0", "only the k likeliest tokens; 0: all", 0, 2147483647},
    {"top_p", Type::real, for_request, "1", "only the likeliest tokens whose probabilities reach this sum", 0, 1},
    {"min_p", Type::real, for_request, "0", "only tokens of at least this share of the likeliest one's probability",
     0, 1},
    {"repetition_penalty", Type::real, for_request, "1",
     "logits of tokens that occurred: positive ones are divided, negative ones multiplied by it", 1e-6, 1e6},
    {"presence_penalty", Type::real, for_request, "0", "taken once from the logits of tokens of the output", -1e6,
     1e6},
    {"frequency_penalty", Type::real, for_request, "0", "taken for each time that a token is in the output", -1e6,
     1e6},
    {"logit_bias", Type::biases, for_request, "", "added to logits: 5:-1.5,7:100"},
    {"seed", Type::integer, for_request | for_trainer, "",
     "of the sampling; the same seed gives the same tokens; default: drawn; of a trainer: of its samples' order and "
     "of "
     "what adapters begin as; default: 0",
     0, huge},
    {"stop", Type::text, for_request, "", "a text that ends the output, which ends before it", 0, 0, {}, true},
    {"stop_tokens", Type::ids, for_request, "", "tokens that end the output, beside the model's own: 2,106"},
    {"ignore_eos", Type::boolean, for_request, "false", "the model's own end-of-text tokens end nothing"},
    {"logprobs", Type::integer, for_request, "-1",
     "log-probabilities with so many alternatives per token; 0: of the token alone; -1: none", -1, 1024},
    {"samples", Type::integer, for_request, "1", "outputs from one prompt; they share its cache", 1, 1024},
    {"deadline_ms", Type::integer, for_request, "0", "ends the request so long after it was submitted; 0: never", 0,
     huge},
    {"keep", Type::boolean, for_request, "false", "keep the conversation (of sample 0) to continue, fork or save it"},
    {"host_sampling", Type::boolean, for_request, "false", "the host gets logits and pushes the tokens"},
    {"tools", Type::text, for_request, "", "of chat: a JSON list of functions, for the chat template"},
    {"chat_variables", Type::text, for_request, "", "of chat: a JSON object of further variables of the template"},
};

constexpr std::pair<Scope, std::string_view> scope_names[] = {
    {for_model, "model"},         {for_generator, "generator"}, {for_request, "request"}, {for_session, "session"},
    {for_tokenizer, "tokenizer"}, {for_world, "world"},         {for_trainer, "trainer"}, {for_export, "export"}};

std::string scope_text(unsigned scopes) {
  std::vector<std::string> names;
  for (auto [scope, name] : scope_names) {
    if (scopes & scope) names.emplace_back(name);
  }
  return join(names, ", ");
}

const OptionRow* find_row(std::string_view key) {
  for (const OptionRow& row : rows) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

std::string type_text(const OptionRow& row) {
  auto limits = [&](std::string_view noun) {
    if (row.minimum == row.maximum) return std::string(noun);
    bool open = row.maximum >= huge;
    return open ? cat(noun, " >= ", row.minimum) : cat(noun, " from ", row.minimum, " to ", row.maximum);
  };
  switch (row.type) {
    case Type::integer: return limits("integer");
    case Type::real: return limits("number");
    case Type::boolean: return "true or false";
    case Type::text: return "text";
    case Type::choice: return cat("one of ", join(split(row.choices, ' '), ", "));
    case Type::bytes: return "bytes, perhaps with K, M or G behind them";
    case Type::ids: return "token ids separated by commas";
    case Type::biases: return "id:bias pairs separated by commas";
  }
  return {};
}

bool parse_bytes(std::string_view text, int64_t& out) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K': shift = 10; break;
      case 'M': shift = 20; break;
      case 'G': shift = 30; break;
      default: break;
    }
  }
  if (!parse_int(shift ? text.substr(0, text.size() - 1) : text, out)) return false;
  if (out < 0 || out > (std::numeric_limits<int64_t>::max() >> shift)) return false;
  out <<= shift;
  return true;
}

bool parse_bool(std::string_view text, bool& out) {
  out = text == "true" || text == "1";
  return out || text == "false" || text == "0";
}

bool parse_id(std::string_view text, int32_t& out) {
  int64_t wide = 0;
  if (!parse_int(trimmed(text), wide) || wide < 0 || wide > std::numeric_limits<int32_t>::max()) return false;
  out = static_cast<int32_t>(wide);
  return true;
}

bool parse_ids(std::string_view text, std::vector<int32_t>& out) {
  if (trimmed(text).empty()) return true;
  for (const std::string& part : split(text, ',')) {
    if (!parse_id(part, out.emplace_back())) return false;
  }
  return true;
}

bool parse_biases(std::string_view text, std::vector<std::pair<int32_t, float>>& out) {
  if (trimmed(text).empty()) return true;
  for (const std::string& part : split(text, ',')) {
    size_t colon = part.find(':');
    auto& [id, bias] = out.emplace_back();
    double value = 0;
    if (colon == std::string::npos || !parse_id(std::string_view(part).substr(0, colon), id)) return false;
    if (!parse_double(trimmed(std::string_view(part).substr(colon + 1)), value) || std::isnan(value)) return false;
    bias = static_cast<float>(value);
  }
  return true;
}

bool fits(const OptionRow& row, std::string_view value) {
  auto within = [&](double number) {
    return row.minimum == row.maximum || (number >= row.minimum && number <= row.maximum);  // false for NaN
  };
  int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::vector<int32_t> ids;
  std::vector<std::pair<int32_t, float>> biases;
  switch (row.type) {
    case Type::integer: return parse_int(value, integer) && within(static_cast<double>(integer));
    case Type::bytes: return parse_bytes(value, integer) && within(static_cast<double>(integer));
    case Type::real: return parse_double(value, real) && within(real);
    case Type::boolean: return parse_bool(value, boolean);
    case Type::ids: return parse_ids(value, ids);
    case Type::biases: return parse_biases(value, biases);
    case Type::text: return true;
    case Type::choice:
      for (const std::string& choice : split(row.choices, ' ')) {
        if (value == choice) return true;
      }
      return false;
  }
  return false;
}

}  // namespace

void Settings::set(std::string_view key, std::string_view value) {
  const OptionRow* row = find_row(key);
  if (!row) {
    std::vector<std::string> keys;
    for (const OptionRow& each : rows) keys.emplace_back(each.key);
    throw Error(Code::not_found, cat("there is no option ", quote(key)), cat("the options are ", join(keys, ", ")));
  }
  if (!fits(*row, value)) {
    throw Error(Code::invalid_argument, cat("option ", key, " is ", quote(value), ", expected ", type_text(*row)));
  }
  auto& values = values_[std::string(key)];
  if (!row->repeats) values.clear();
  values.emplace_back(value);
}

void Settings::check(unsigned scopes) const {
  for (const auto& [key, values] : values_) {
    const OptionRow* row = find_row(key);
    if (row->scopes & scopes) continue;
    throw Error(Code::invalid_argument, cat("option ", key, " is not for a ", scope_text(scopes)),
                cat("it is for: ", scope_text(row->scopes)));
  }
}

Settings Settings::or_else(const Settings& other) const {
  Settings out = *this;
  out.values_.insert(other.values_.begin(), other.values_.end());  // keeps what is there
  return out;
}

std::string Settings::text(std::string_view key) const {
  auto found = values_.find(key);
  return found != values_.end() ? found->second.back() : std::string(find_row(key)->default_text);
}

std::vector<std::string> Settings::texts(std::string_view key) const {
  auto found = values_.find(key);
  return found != values_.end() ? found->second : std::vector<std::string>{};
}

// What was set was checked, and the defaults are ours: parsing succeeds.
int64_t Settings::integer(std::string_view key) const {
  int64_t out = 0;
  if (find_row(key)->type == Type::bytes) {
    parse_bytes(text(key), out);
  } else {
    parse_int(text(key), out);
  }
  return out;
}

double Settings::real(std::string_view key) const {
  double out = 0;
  parse_double(text(key), out);
  return out;
}

bool Settings::boolean(std::string_view key) const {
  bool out = false;
  parse_bool(text(key), out);
  return out;
}

std::vector<int32_t> Settings::ids(std::string_view key) const {
  std::vector<int32_t> out;
  parse_ids(text(key), out);
  return out;
}

std::vector<std::pair<int32_t, float>> Settings::biases(std::string_view key) const {
  std::vector<std::pair<int32_t, float>> out;
  parse_biases(text(key), out);
  return out;
}

std::string describe_options() {
  auto out = nlohmann::ordered_json::array();
  for (const OptionRow& row : rows) {
    auto takers = nlohmann::ordered_json::array();
    for (auto [scope, name] : scope_names) {
      if (row.scopes & scope) takers.push_back(name);
    }
    out.push_back({{"key", row.key},
                   {"for", takers},
                   {"type", type_text(row)},
                   {"default", row.default_text},
                   {"repeats", row.repeats},
                   {"doc", row.doc}});
  }
  return out.dump(1);
}

}  // namespace plait::c_api
