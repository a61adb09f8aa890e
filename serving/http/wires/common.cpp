#include "serving/http/wires/common.h"

#include <sys/random.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "serving/http/base/failure.h"

namespace plait::http {

Named model_of(const Models& models, const Fields& body) {
  Named out = models.named(body.required_text("model"));
  if (out.served->ready()) return out;
  HttpError loading(503, "the model " + out.served->name() + " is loading", "model_loading");
  loading.retry_after_ms = 1000;
  throw loading;
}

namespace {

constexpr int64_t huge = int64_t{1} << 40;

std::string number_text(double value) { return dumped(Json(value)); }

void read_stops(const Fields& body, plait_api::Options& options) {
  const Json* stop = body.find("stop");
  if (!stop) return;
  const auto add = [&](const Json& one, const std::string& path) {
    if (!one.is_string()) reject(path, "expected a text");
    if (!one.get_ref<const std::string&>().empty()) options.set("stop", one.get_ref<const std::string&>());
  };
  if (!stop->is_array()) return add(*stop, body.path("stop"));
  if (stop->size() > 16)
    reject(body.path("stop"), "has " + std::to_string(stop->size()) + " texts, expected at most 16");
  for (size_t i = 0; i < stop->size(); ++i) add((*stop)[i], body.path("stop") + "[" + std::to_string(i) + "]");
}

/// vLLM's field: tokens that end the text, next to the model's own.
void read_stop_tokens(const Fields& body, plait_api::Options& options) {
  const Json* stops = body.find("stop_token_ids");
  if (!stops) return;
  if (!stops->is_array() || stops->size() > 1024) reject(body.path("stop_token_ids"), "expected a list of at most 1024 token ids");
  std::string list;
  for (size_t i = 0; i < stops->size(); ++i) {
    const Json& one = (*stops)[i];
    if (!one.is_number_integer() || one < 0 || one > INT32_MAX)
      reject(body.path("stop_token_ids") + "[" + std::to_string(i) + "]", "expected a token id");
    list += (i ? "," : "") + std::to_string(one.get<int32_t>());
  }
  if (!list.empty()) options.set("stop_tokens", list);
}

void read_biases(const Fields& body, plait_api::Options& options) {
  const Json* biases = body.find("logit_bias");
  if (!biases) return;
  if (!biases->is_object()) reject(body.path("logit_bias"), "expected an object of biases by token id");
  std::string list;
  for (const auto& [token, bias] : biases->items()) {
    const bool digits = !token.empty() && token.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || !bias.is_number()) reject(body.path("logit_bias." + token), "expected a number by token id");
    if (std::abs(bias.get<double>()) > static_cast<double>(std::numeric_limits<float>::max()))
      reject(body.path("logit_bias." + token), "is " + dumped(bias) + ", expected a number that f32 has");
    list += (list.empty() ? "" : ",") + token + ":" + number_text(bias.get<double>());
  }
  if (!list.empty()) options.set("logit_bias", list);
}

/// Of 64 bits, with a sign or without.
void read_seed(const Fields& body, plait_api::Options& options) {
  const Json* seed = body.find("seed");
  if (!seed) return;
  int64_t bits = 0;
  if (seed->is_number_unsigned()) bits = static_cast<int64_t>(seed->get<uint64_t>());
  else if (seed->is_number_integer()) bits = seed->get<int64_t>();
  else bits = body.integer("seed", -huge, huge).value_or(0);
  options.set("seed", bits);
}

}  // namespace

plait_api::Options sampling_options(const Fields& body, const Named& named,
                                    std::initializer_list<const char*> most_tokens) {
  plait_api::Options options;
  if (!named.adapter.empty()) options.set("adapter", named.adapter);
  int64_t most = huge;  // the engine ends at the context
  for (const char* name : most_tokens)
    if (const auto given = body.integer(name, 0, huge)) {
      most = *given;
      break;
    }
  options.set("max_tokens", most);
  struct Real {
    const char *field, *option;
    double low, high;
  };
  for (const Real& one : {Real{"temperature", "temperature", 0, 100},
                          {"top_p", "top_p", 0, 1},
                          {"min_p", "min_p", 0, 1},
                          {"repetition_penalty", "repetition_penalty", 1e-6, 1e6},
                          {"presence_penalty", "presence_penalty", -100, 100},
                          {"frequency_penalty", "frequency_penalty", -100, 100}})
    if (const auto given = body.number(one.field, one.low, one.high)) options.set(one.option, number_text(*given));
  if (const auto top_k = body.integer("top_k", -1, 2147483647)) options.set("top_k", std::max<int64_t>(*top_k, 0));
  read_seed(body, options);
  if (const auto least = body.integer("min_tokens", 0, huge)) options.set("min_tokens", *least);
  if (const auto priority = body.integer("priority", -1000000, 1000000)) options.set("priority", *priority);
  if (const auto ignored = body.flag("ignore_eos")) options.set("ignore_eos", *ignored ? "true" : "false");
  if (body.flag("skip_special_tokens") == false) options.set("special_text", "true");
  read_stops(body, options);
  read_stop_tokens(body, options);
  read_biases(body, options);
  return options;
}

int32_t outputs_of(const Fields& body) { return static_cast<int32_t>(body.integer("n", 1, 128).value_or(1)); }

Streaming streaming_of(const Fields& body) {
  Streaming out;
  out.on = body.flag("stream").value_or(false);
  if (const Json* options = body.find("stream_options")) {
    if (!out.on) reject(body.path("stream_options"), "is for streams: set \"stream\"");
    out.usage = Fields(*options, body.path("stream_options")).flag("include_usage").value_or(false);
  }
  return out;
}

std::optional<int64_t> prompt_logprobs_of(const Fields& body, const Streaming& streaming) {
  const std::optional<int64_t> out = body.integer("prompt_logprobs", 0, 20);
  if (out && streaming.on)
    reject(body.path("prompt_logprobs"),
           "is not for streams: leave \"stream\" out, or echo a completion's \"logprobs\"");
  return out;
}

Json prompt_logprob(const plait_event& event, const TokenTexts& texts) {
  if (std::isnan(event.logprob)) return nullptr;
  Json out = Json::object();
  const auto add = [&](int32_t token, float logprob, int32_t rank) {
    out[std::to_string(token)] = {{"logprob", logprob}, {"rank", rank}, {"decoded_token", texts.text(token)}};
  };
  for (int32_t i = 0; i < event.top_count; ++i) add(event.top_tokens[i], event.top_logprobs[i], i + 1);
  add(event.token, event.logprob, event.rank);
  return out;
}

static bool is_ids(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_number_integer();
}

std::vector<const Json*> prompts_of(const Json& value, const std::string& path) {
  if (value.is_string() || is_ids(value)) return {&value};
  if (!value.is_array() || value.empty()) reject(path, "expected a text, a list of token ids, or a list of these");
  if (value.size() > 2048) reject(path, "has " + std::to_string(value.size()) + " prompts, expected at most 2048");
  std::vector<const Json*> out;
  for (const Json& one : value) out.push_back(&one);
  return out;
}

plait_api::Request submit_prompt(const Named& named, const Json& prompt, const std::string& path,
                                 const plait_api::Options& options) {
  plait_generator* generator = named.served->generator();
  if (prompt.is_string()) {
    const auto& text = prompt.get_ref<const std::string&>();
    return plait_api::Request(plait_api::made<plait_request>([&](plait_request** out) {
      return plait_generator_submit_text(generator, text.data(), static_cast<int64_t>(text.size()), options.get(),
                                         nullptr, out);
    }));
  }
  if (!is_ids(prompt)) reject(path, "expected a text or a list of token ids");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const Json& one = prompt[i];
    if (!one.is_number_integer() || one < 0 || one > INT32_MAX)
      reject(path + "[" + std::to_string(i) + "]", "expected a token id");
    ids.push_back(one.get<int32_t>());
  }
  return plait_api::Request(plait_api::made<plait_request>([&](plait_request** out) {
    return plait_generator_submit_ids(generator, ids.data(), static_cast<int64_t>(ids.size()), options.get(), nullptr,
                                      out);
  }));
}

Json usage_of(const Totals& totals) {
  return {{"prompt_tokens", totals.prompt},
          {"completion_tokens", totals.generated},
          {"total_tokens", totals.prompt + totals.generated},
          {"prompt_tokens_details", {{"cached_tokens", totals.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", totals.thoughts}}}};
}

std::string new_id(const char* prefix) {
  unsigned char random[12] = {};
  const ssize_t got = getrandom(random, sizeof random, 0);
  if (got != static_cast<ssize_t>(sizeof random)) throw HttpError(500, "the operating system has no random numbers");
  std::string out = prefix;
  for (const unsigned char byte : random) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

int64_t seconds_since_epoch() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void write_frame(const Json& frame, std::string& out) { out.append("data: ").append(dumped(frame)).append("\n\n"); }

void end_stream(const Streaming& streaming, Json last, const Totals& totals, std::string& out) {
  if (streaming.usage) {
    last["usage"] = usage_of(totals);
    write_frame(last, out);
  }
  out += "data: [DONE]\n\n";
}

}  // namespace plait::http
