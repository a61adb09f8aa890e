// POST /v1/chat/completions: platform.openai.com/docs/api-reference/chat.
#include "serving/http/base/failure.h"
#include "serving/http/wires/tools.h"

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

/// Templates expect the arguments of calls as objects, clients send them as texts.
void read_arguments(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& arguments = call["function"]["arguments"];
    if (!arguments.is_string()) continue;
    Json object = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
    if (object.is_object()) arguments = std::move(object);
  }
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
    read_arguments(message);
    out.push_back(std::move(message));
  }
  return out;
}

/// For a template that does not write tools: they stand in the system's message, if it takes one (`system`).
void describe_tools(const std::string& list, bool system, Json& messages) {
  const std::string text =
      "You may call these tools, given as JSON schemas:\n" + list +
      "\nTo call one, answer only with a JSON object: {\"name\": \"its name\", \"arguments\": {its arguments}}";
  if (!system) {  // then the first message has them
    messages[0]["content"] = text + "\n\n" + messages[0]["content"].get<std::string>();
    return;
  }
  if (messages[0]["role"] != Json("system")) {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
    return;
  }
  messages[0]["content"] = messages[0]["content"].get<std::string>() + "\n\n" + text;
}

class ChatWriter : public Writer {
 public:
  ChatWriter(Form form, std::optional<TokenTexts> texts, const Tools& tools)
      : form_(std::move(form)), texts_(std::move(texts)) {
    texts_of_.resize(static_cast<size_t>(form_.choices));
    if (tools.names.empty() && tools.format.think_end.empty()) return;  // all is text
    for (int32_t i = 0; i < form_.choices; ++i) parsers_.emplace_back(tools.format, tools.names, tools.thinking);
  }

  void begin(std::string& out) override {
    if (!form_.streaming.on) return;
    for (int32_t i = 0; i < form_.choices; ++i)
      write_frame(chunk({choice(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr)}), out);
  }

  void event(int32_t index, const plait_event& event, std::string& out) override {
    const std::string_view text(event.text, static_cast<size_t>(event.text_length));
    const bool last = event.finish != PLAIT_FINISH_NONE;
    Output& own = texts_of_[static_cast<size_t>(index)];
    std::vector<AnswerPart> parts;
    if (parsers_.empty()) {
      if (!text.empty()) parts.push_back({AnswerPart::Kind::text, std::string(text)});
    } else {
      ToolParser& parser = parsers_[static_cast<size_t>(index)];
      parts = parser.push(text);
      if (last)
        for (AnswerPart& part : parser.finish()) parts.push_back(std::move(part));
    }
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

  void end(const Totals& totals, const std::vector<plait_api::Request>&, std::string& out) override {
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
  std::vector<ToolParser> parsers_;  ///< by choice; none: all is text
};

}  // namespace

std::unique_ptr<Answer> chat_completions(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  const Named named = model_of(models, body);
  refuse(body, {{"functions", "is the form before tools: use \"tools\""},
                {"audio", "audio is not supported"},
                {"modalities", "only text is supported"}});
  std::string variables;
  if (const Json* given = body.find("chat_template_kwargs")) variables = dumped(*given);
  const Tools tools = tools_of(text, body, named, variables);
  const Structure structure = structure_of_calls(text, tools, named, structure_of(text, body));
  Json conversation = messages_of(body);
  if (!tools.list.empty() && !tools.format.lists_tools) describe_tools(tools.list, tools.format.system, conversation);
  const std::string messages = dumped(conversation);
  plait_api::Options options = sampling_options(body, named, {"max_completion_tokens", "max_tokens"});
  Form form;
  form.choices = outputs_of(body);
  form.streaming = streaming_of(body);
  form.logprobs = body.flag("logprobs").value_or(false);
  const int64_t top = body.integer("top_logprobs", 0, 20).value_or(0);
  if (top > 0 && !form.logprobs) reject("top_logprobs", "is for log-probabilities: set \"logprobs\"");
  if (form.logprobs) options.set("logprobs", top);
  if (!variables.empty()) options.set("chat_variables", variables);
  if (!tools.list.empty()) options.set("tools", tools.list);
  if (tools.special_text) options.set("special_text", "true");
  options.set("samples", form.choices);
  form.id = new_id("chatcmpl-");
  form.model = named.name;
  form.created = seconds_since_epoch();
  std::vector<plait_api::Request> requests;
  requests.emplace_back(submit_with(structure, options, [&] {
    return plait_api::made<plait_request>([&](plait_request** out) {
      return plait_generator_submit_chat(named.served->generator(), messages.data(),
                                         static_cast<int64_t>(messages.size()), options.get(), out);
    });
  }));
  std::optional<TokenTexts> texts;
  if (form.logprobs) texts.emplace(named.served->tokenizer());
  const int32_t choices = form.choices;
  const bool stream = form.streaming.on;
  return std::make_unique<Generation>(std::move(requests), choices,
                                      std::make_unique<ChatWriter>(std::move(form), std::move(texts), tools), stream,
                                      models.meter());
}

}  // namespace plait::http
