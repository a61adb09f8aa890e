// POST /v1/completions: platform.openai.com/docs/api-reference/completions.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "serving/http/base/failure.h"
#include "serving/http/wires/known_fields.h"
#include "serving/http/wires/structure.h"

namespace plait::http {
namespace {

class CompletionWriter : public Writer {
 public:
  CompletionWriter(Form form, std::optional<TokenTexts> texts)
      : form_(std::move(form)), texts_(std::move(texts)), outputs_(static_cast<size_t>(form_.choices)) {}

  void begin(std::string& out) override {
    for (size_t i = 0; i < form_.echoes.size(); ++i) {
      outputs_[i].length = characters(form_.echoes[i]);
      if (!form_.streaming.on) outputs_[i].text = form_.echoes[i];
      else if (!form_.echo_logprobs) send(i, form_.echoes[i], nullptr, nullptr, out);
    }
  }

  void event(int32_t index, const plait_event& event, std::string& out) override {
    const auto at = static_cast<size_t>(index);
    Output& own = outputs_[at];
    if (event.kind == PLAIT_EVENT_PROMPT) return add_prompt(at, event);
    if (form_.streaming.on && form_.echo_logprobs && !std::exchange(own.begun, true))
      send(at, form_.echoes[at], outputs_[first_of(at)].prompt, nullptr, out);
    const std::string_view text(event.text, static_cast<size_t>(event.text_length));
    const Json reason = event.finish == PLAIT_FINISH_NONE ? Json() : Json(finish_reason(event.finish));
    Json logprobs;
    if (form_.logprobs && event.token >= 0) {
      logprobs = no_logprobs();
      add_logprob(event, own.length, logprobs);
    }
    own.length += characters(text);
    if (form_.streaming.on) {
      if (!text.empty() || !reason.is_null() || !logprobs.is_null())
        send(at, std::string(text), logprobs, reason, out);
      return;
    }
    own.text += text;
    if (!reason.is_null()) own.reason = reason;
    if (!logprobs.is_null())
      for (auto& [name, list] : logprobs.items()) own.logprobs[name].push_back(list.front());
  }

  void end(const Totals& totals, const std::vector<plait_api::Request>&, std::string& out) override {
    if (form_.streaming.on) return end_stream(form_.streaming, chunk(Json::array()), totals, out);
    Json choices = Json::array();
    for (size_t i = 0; i < outputs_.size(); ++i)
      choices.push_back(choice(i, outputs_[i].text, form_.logprobs ? logprobs_of(i) : Json(), outputs_[i].reason));
    Json body = chunk(std::move(choices));
    body["usage"] = usage_of(totals);
    out = dumped(body);
  }

 private:
  /// Code points of a text in UTF-8: its bytes that continue none.
  static size_t characters(std::string_view text) {
    return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
  }
  static Json no_logprobs() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  struct Output {
    std::string text;
    size_t length = 0;  ///< of its text so far, in characters (code points)
    Json logprobs = no_logprobs(), reason;
    bool begun = false;  ///< its echo was sent
    // Of the first output of each prompt:
    Json prompt = no_logprobs();
    Json by_id = Json::array();  ///< vLLM's prompt_logprobs
    size_t echoed = 0;           ///< characters of the prompt's tokens so far
  };

  /// The output that has its prompt's log-probabilities.
  size_t first_of(size_t output) const { return output - output % form_.samples; }

  void add_prompt(size_t at, const plait_event& event) {
    Output& own = outputs_[at];
    if (form_.prompt_logprobs) own.by_id.push_back(prompt_logprob(event, *texts_));
    if (!form_.echo_logprobs) return;
    add_logprob(event, std::min(own.echoed, own.length), own.prompt);
    own.echoed += characters(texts_->shown(event.token));
  }
  Json logprobs_of(size_t at) const {
    if (!form_.echo_logprobs) return outputs_[at].logprobs;
    Json out = outputs_[first_of(at)].prompt;
    for (const auto& [name, list] : outputs_[at].logprobs.items())
      out[name].insert(out[name].end(), list.begin(), list.end());
    return out;
  }

  void add_logprob(const plait_event& event, size_t offset, Json& to) const {
    const bool none = std::isnan(event.logprob);  // of the first token
    Json top = none ? Json() : Json::object();
    std::set<std::string> seen;
    for (int32_t i = 0; i < event.top_count; ++i) {
      // Tokens may have one text, such as U+FFFD for parts of characters; the others are told by their ids, as in vLLM.
      std::string key = texts_->text(event.top_tokens[i]);
      if (const auto shown = dumped(Json(key)); !seen.insert(shown).second)
        key = "token_id:" + std::to_string(event.top_tokens[i]);
      top[key] = event.top_logprobs[i];
    }
    to["tokens"].push_back(texts_->text(event.token));
    to["token_logprobs"].push_back(none ? Json() : Json(event.logprob));
    to["top_logprobs"].push_back(std::move(top));
    to["text_offset"].push_back(offset);
  }
  Json chunk(Json choices) const {
    return {{"id", form_.id},
            {"object", "text_completion"},
            {"created", form_.created},
            {"model", form_.model},
            {"choices", std::move(choices)}};
  }
  Json choice(size_t index, std::string text, Json logprobs, Json reason) const {
    Json out = {{"index", index},
                {"text", std::move(text)},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", std::move(reason)}};
    if (form_.prompt_logprobs) out["prompt_logprobs"] = outputs_[first_of(index)].by_id;
    return out;
  }
  void send(size_t at, std::string text, Json logprobs, Json reason, std::string& out) const {
    write_frame(chunk(Json::array({choice(at, std::move(text), std::move(logprobs), std::move(reason))})), out);
  }

  const Form form_;
  std::optional<TokenTexts> texts_;
  std::vector<Output> outputs_;
};

}  // namespace

std::unique_ptr<Answer> completions(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  const Named named = model_of(models, body);
  check_fields(body, Wire::completions);
  const Structure structure = structure_of(text, body);
  const std::vector<const Json*> prompts = prompts_of(body.required("prompt"), "prompt");
  plait_api::Options options = sampling_options(body, named, {"max_tokens"});
  if (!body.find("max_tokens")) options.set("max_tokens", 16);  // the interface's default
  const int32_t samples = outputs_of(body);
  if (body.integer("best_of", 1, 128).value_or(samples) > samples) reject("best_of", "more than n is not supported");
  options.set("samples", samples);
  Form form;
  form.streaming = streaming_of(body);
  const bool echo = body.flag("echo").value_or(false);
  int64_t of_prompt = -1;
  if (const auto top = body.integer("logprobs", 0, 20)) {
    form.logprobs = true;
    form.echo_logprobs = echo;
    options.set("logprobs", *top);
    if (echo) of_prompt = *top;
  }
  if (const auto top = prompt_logprobs_of(body, form.streaming)) {
    form.prompt_logprobs = true;
    of_prompt = std::max(of_prompt, *top);
  }
  if (of_prompt >= 0) options.set("prompt_logprobs", of_prompt);
  form.id = new_id("cmpl-");
  form.model = named.name;
  form.created = seconds_since_epoch();
  form.choices = samples * static_cast<int32_t>(prompts.size());
  form.samples = static_cast<size_t>(samples);
  std::vector<plait_api::Request> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string path = prompts.size() == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    requests.push_back(
        submit_with(structure, options, [&] { return submit_prompt(named, *prompts[i], path, options); }));
    if (!echo) continue;
    const std::string own = prompts[i]->is_string()
                                ? prompts[i]->get<std::string>()
                                : named.served->tokenizer().decode(prompts[i]->get<std::vector<int32_t>>());
    form.echoes.insert(form.echoes.end(), static_cast<size_t>(samples), own);
  }
  std::optional<TokenTexts> texts;
  if (form.logprobs || form.prompt_logprobs) texts.emplace(named.served->tokenizer());
  const bool stream = form.streaming.on;
  return std::make_unique<Generation>(std::move(requests), samples,
                                      std::make_unique<CompletionWriter>(std::move(form), std::move(texts)), stream,
                                      models.meter());
}

}  // namespace plait::http
