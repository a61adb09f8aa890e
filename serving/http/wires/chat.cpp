// POST /v1/chat/completions: platform.openai.com/docs/api-reference/chat.
#include "serving/http/base/failure.h"
#include "serving/http/wires/common.h"

namespace plait::http {
namespace {

/// Parts of a content, joined: only text.
std::string text_of_parts(const Json& parts, const std::string& path) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Fields part(parts[i], path + "[" + std::to_string(i) + "]");
    const std::string kind = part.required_text("type");
    if (kind != "text" && kind != "refusal")
      throw HttpError(400, part.path("type") + ": content of type \"" + kind + "\" is not supported, only text",
                      "unsupported_content", part.path("type"));
    out += part.required_text(kind == "text" ? "text" : "refusal");
  }
  return out;
}

/// The conversation for the chat template.
Json messages_of(const Fields& body) {
  const Json& given = body.required("messages");
  if (!given.is_array() || given.empty()) reject("messages", "expected a list of messages");
  Json out = Json::array();
  for (size_t i = 0; i < given.size(); ++i) {
    const Fields fields(given[i], "messages[" + std::to_string(i) + "]");
    Json message = given[i];
    const std::string role = fields.required_text("role");
    if (role == "developer") message["role"] = "system";
    else if (role == "function") message["role"] = "tool";
    else if (role != "system" && role != "user" && role != "assistant" && role != "tool")
      reject(fields.path("role"), "is \"" + role + "\", expected system, user, assistant or tool");
    if (const Json* content = fields.find("content")) {
      if (content->is_array()) message["content"] = text_of_parts(*content, fields.path("content"));
      else if (!content->is_string()) reject(fields.path("content"), "expected a text, or a list of parts");
    } else {
      if (!fields.find("tool_calls")) reject(fields.path("content"), "is missing");
      message["content"] = "";
    }
    out.push_back(std::move(message));
  }
  return out;
}

class ChatWriter : public Writer {
 public:
  ChatWriter(Form form, std::optional<TokenTexts> texts) : form_(std::move(form)), texts_(std::move(texts)) {
    texts_of_.resize(static_cast<size_t>(form_.choices));
  }

  void begin(std::string& out) override {
    if (!form_.streaming.on) return;
    for (int32_t i = 0; i < form_.choices; ++i)
      write_frame(chunk({choice(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr)}), out);
  }

  void event(int32_t index, const plait_event& event, std::string& out) override {
    const std::string_view text(event.text, static_cast<size_t>(event.text_length));
    const Json entry = form_.logprobs && event.token >= 0 ? logprob_of(event) : Json();
    const Json reason = event.finish == PLAIT_FINISH_NONE ? Json() : Json(finish_reason(event.finish));
    if (!form_.streaming.on) {
      Output& own = texts_of_[static_cast<size_t>(index)];
      own.text += text;
      if (!entry.is_null()) own.logprobs.push_back(entry);
      if (!reason.is_null()) own.reason = reason;
      return;
    }
    const Json logprobs = entry.is_null() ? Json() : Json{{"content", {entry}}, {"refusal", nullptr}};
    if (!text.empty() || !entry.is_null())
      write_frame(chunk({choice(index, {{"content", text}}, logprobs, nullptr)}), out);
    if (!reason.is_null()) write_frame(chunk({choice(index, Json::object(), nullptr, reason)}), out);
  }

  void end(const Totals& totals, const std::vector<plait_api::Request>&, std::string& out) override {
    if (form_.streaming.on) return end_stream(form_.streaming, chunk(Json::array()), totals, out);
    Json choices = Json::array();
    for (size_t i = 0; i < texts_of_.size(); ++i) {
      const Output& own = texts_of_[i];
      choices.push_back(
          {{"index", i},
           {"message", {{"role", "assistant"}, {"content", own.text}, {"refusal", nullptr}}},
           {"logprobs", form_.logprobs ? Json{{"content", own.logprobs}, {"refusal", nullptr}} : Json()},
           {"finish_reason", own.reason}});
    }
    Json body = object("chat.completion");
    body["choices"] = std::move(choices);
    body["usage"] = usage_of(totals);
    out = dumped(body);
  }

 private:
  struct Output {
    std::string text;
    Json logprobs = Json::array(), reason;
  };

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
};

}  // namespace

std::unique_ptr<Answer> chat_completions(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  const Named named = model_of(models, body);
  refuse(body, {{"tools", "tools are not supported yet"},
                {"functions", "functions are not supported yet"},
                {"response_format", "only text is supported yet"},
                {"audio", "audio is not supported"},
                {"modalities", "only text is supported"}});
  const std::string messages = dumped(messages_of(body));
  plait_api::Options options = sampling_options(body, named, {"max_completion_tokens", "max_tokens"});
  Form form;
  form.choices = outputs_of(body);
  form.streaming = streaming_of(body);
  form.logprobs = body.flag("logprobs").value_or(false);
  const int64_t top = body.integer("top_logprobs", 0, 20).value_or(0);
  if (top > 0 && !form.logprobs) reject("top_logprobs", "is for log-probabilities: set \"logprobs\"");
  if (form.logprobs) options.set("logprobs", top);
  if (const Json* variables = body.find("chat_template_kwargs")) options.set("chat_variables", dumped(*variables));
  options.set("samples", form.choices);
  form.id = new_id("chatcmpl-");
  form.model = named.name;
  form.created = seconds_since_epoch();
  std::vector<plait_api::Request> requests;
  requests.emplace_back(plait_api::made<plait_request>([&](plait_request** out) {
    return plait_generator_submit_chat(named.served->generator(), messages.data(),
                                       static_cast<int64_t>(messages.size()), options.get(), out);
  }));
  std::optional<TokenTexts> texts;
  if (form.logprobs) texts.emplace(named.served->tokenizer());
  const int32_t choices = form.choices;
  const bool stream = form.streaming.on;
  return std::make_unique<Generation>(std::move(requests), choices,
                                      std::make_unique<ChatWriter>(std::move(form), std::move(texts)), stream,
                                      models.meter());
}

}  // namespace plait::http
