// POST /v1/chat/completions: platform.openai.com/docs/api-reference/chat.
#include "serving/http/wires/chat.h"
#include "serving/http/wires/known_fields.h"

namespace plait::http {
namespace {

class ChatWriter : public Writer {
 public:
  ChatWriter(Form form, std::optional<TokenTexts> texts, const Tools& tools)
      : form_(std::move(form)), texts_(std::move(texts)) {
    texts_of_.resize(static_cast<size_t>(form_.choices));
    for (int32_t i = 0; i < form_.choices; ++i) parts_.emplace_back(tools);
  }

  void begin(std::string& out) override {
    if (!form_.streaming.on) return;
    for (int32_t i = 0; i < form_.choices; ++i)
      write_frame(chunk({choice(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr)}), out);
  }

  void event(int32_t index, const plait_event& event, std::string& out) override {
    if (event.kind == PLAIT_EVENT_PROMPT) return prompt_.push_back(prompt_logprob(event, *texts_));
    const bool last = event.finish != PLAIT_FINISH_NONE;
    Output& own = texts_of_[static_cast<size_t>(index)];
    std::vector<AnswerPart> parts = parts_[static_cast<size_t>(index)].read(event);
    Json entry = form_.logprobs && event.token >= 0 ? logprob_of(event) : Json();
    if (form_.streaming.on) {
      if (parts.empty() && !entry.is_null()) parts.push_back({AnswerPart::Kind::text, ""});
      for (const AnswerPart& part : parts) {
        const Json logprobs = entry.is_null() ? Json() : Json{{"content", {entry}}, {"refusal", nullptr}};
        entry = nullptr;
        write_frame(chunk({choice(index, delta_of(own, part), logprobs, nullptr)}), out);
      }
      if (last) write_frame(chunk({choice(index, Json::object(), nullptr, reason_of(own, event.finish))}), out);
      return;
    }
    for (const AnswerPart& part : parts) add(own, part);
    if (!entry.is_null()) own.logprobs.push_back(entry);
    if (last) own.reason = reason_of(own, event.finish);
  }

  void end(const Totals& given, const std::vector<plait_api::Request>&, std::string& out) override {
    Totals totals = given;
    for (const Parts& parts : parts_) totals.thoughts += parts.thought_tokens();
    if (form_.streaming.on) return end_stream(form_.streaming, chunk(Json::array()), totals, out);
    Json choices = Json::array();
    for (size_t i = 0; i < texts_of_.size(); ++i) {
      const Output& own = texts_of_[i];
      choices.push_back(
          {{"index", i},
           {"message", message_of(own)},
           {"logprobs", form_.logprobs ? Json{{"content", own.logprobs}, {"refusal", nullptr}} : Json()},
           {"finish_reason", own.reason}});
    }
    Json body = object("chat.completion");
    body["choices"] = std::move(choices);
    if (form_.prompt_logprobs) body["prompt_logprobs"] = prompt_;
    body["usage"] = usage_of(totals);
    out = dumped(body);
  }

 private:
  struct Output {
    std::string text, thought;
    Json calls = Json::array();
    int64_t begun = 0;  ///< calls
    Json logprobs = Json::array(), reason;
  };

  static Json call_of(const std::string& name, std::string arguments) {
    return {{"id", new_id("call_")},
            {"type", "function"},
            {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
  }
  /// Of a stream.
  static Json delta_of(Output& own, const AnswerPart& part) {
    switch (part.kind) {
      case AnswerPart::Kind::thought: return {{"reasoning_content", part.text}};
      case AnswerPart::Kind::text: return {{"content", part.text}};
      case AnswerPart::Kind::call: {
        Json call = call_of(part.text, "");
        call["index"] = own.begun++;
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      case AnswerPart::Kind::arguments: break;
    }
    const Json more = {{"index", own.begun - 1}, {"function", {{"arguments", part.text}}}};
    return {{"tool_calls", Json::array({more})}};
  }
  static void add(Output& own, const AnswerPart& part) {
    switch (part.kind) {
      case AnswerPart::Kind::thought: own.thought += part.text; break;
      case AnswerPart::Kind::text: own.text += part.text; break;
      case AnswerPart::Kind::call:
        own.calls.push_back(call_of(part.text, ""));
        ++own.begun;
        break;
      case AnswerPart::Kind::arguments:
        own.calls.back()["function"]["arguments"].get_ref<std::string&>() += part.text;
        break;
    }
  }
  static Json reason_of(const Output& own, plait_finish finish) {
    const std::string reason = finish_reason(finish);
    return own.begun > 0 && reason == "stop" ? "tool_calls" : reason;
  }
  static Json message_of(const Output& own) {
    Json out = {{"role", "assistant"}, {"content", own.text}, {"refusal", nullptr}};
    if (own.text.empty() && !own.calls.empty()) out["content"] = nullptr;
    if (!own.thought.empty()) out["reasoning_content"] = own.thought;
    if (!own.calls.empty()) out["tool_calls"] = own.calls;
    return out;
  }

  Json object(const char* kind) const {
    return {{"id", form_.id}, {"object", kind}, {"created", form_.created}, {"model", form_.model}};
  }
  Json chunk(Json choices) const {
    Json out = object("chat.completion.chunk");
    out["choices"] = std::move(choices);
    if (form_.streaming.usage) out["usage"] = nullptr;
    return out;
  }
  static Json choice(int32_t index, Json delta, Json logprobs, Json reason) {
    return {{"index", index},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(reason)}};
  }
  Json entry(int32_t token, float logprob) const {
    const std::string text = texts_->text(token);
    Json bytes = Json::array();
    for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
    return {{"token", text}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
  }
  Json logprob_of(const plait_event& event) const {
    Json out = entry(event.token, event.logprob);
    Json top = Json::array();
    for (int32_t i = 0; i < event.top_count; ++i) top.push_back(entry(event.top_tokens[i], event.top_logprobs[i]));
    out["top_logprobs"] = std::move(top);
    return out;
  }

  const Form form_;
  std::optional<TokenTexts> texts_;
  std::vector<Output> texts_of_;
  std::vector<Parts> parts_;     ///< by choice
  Json prompt_ = Json::array();  ///< of the prompt's tokens
};

}  // namespace

std::unique_ptr<Answer> chat_completions(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  check_fields(body, Wire::chat);
  Chat chat = chat_of(models, text, body);
  Form form;
  form.choices = outputs_of(body);
  form.streaming = streaming_of(body);
  form.logprobs = body.flag("logprobs").value_or(false);
  const int64_t top = body.integer("top_logprobs", 0, 20).value_or(0);
  if (top > 0 && !form.logprobs) reject("top_logprobs", "is for log-probabilities: set \"logprobs\"");
  if (form.logprobs) chat.options.set("logprobs", top);
  if (const auto of_prompt = prompt_logprobs_of(body, form.streaming)) {
    form.prompt_logprobs = true;
    chat.options.set("prompt_logprobs", *of_prompt);
  }
  chat.options.set("samples", form.choices);
  form.id = new_id("chatcmpl-");
  form.model = chat.named.name;
  form.created = seconds_since_epoch();
  std::vector<plait_api::Request> requests;
  requests.push_back(submit(chat));
  std::optional<TokenTexts> texts;
  if (form.logprobs || form.prompt_logprobs) texts.emplace(chat.named.served->tokenizer());
  const int32_t choices = form.choices;
  const bool stream = form.streaming.on;
  return std::make_unique<Generation>(std::move(requests), choices,
                                      std::make_unique<ChatWriter>(std::move(form), std::move(texts), chat.tools),
                                      stream, models.meter());
}

}  // namespace plait::http
