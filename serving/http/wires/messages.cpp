// POST /v1/messages and /v1/messages/count_tokens: docs.anthropic.com, "Messages".
#include "serving/http/wires/chat.h"
#include "serving/http/wires/known_fields.h"

namespace plait::http {
namespace {

using Kind = AnswerPart::Kind;

[[noreturn]] void refuse_block(const std::string& type, const std::string& path) {
  throw HttpError(400,
                  path + ".type: content of type \"" + type + "\" is not supported, only text, tools and thoughts",
                  "unsupported_content", path + ".type");
}

std::string text_of_blocks(const OrderedJson& content, const std::string& path) {
  return joined_text(content, path, "blocks", [](const std::string& type, const std::string& own) {
    if (type != "text") refuse_block(type, own);
    return "text";
  });
}

/// A body as one of chat completions.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : body_(OrderedJson::parse(text.begin(), text.end())) {}

  ChatBody read() {
    ChatBody out;
    out.fields = body_;  // how tokens are chosen has the same names
    for (const char* field : {"system", "messages", "tools", "tool_choice", "thinking", "output_config",
                              "stop_sequences", "stop", "n", "logprobs", "response_format", "max_completion_tokens"})
      out.fields.erase(field);
    if (const OrderedJson* system = found(body_, "system"))
      messages_.push_back({{"role", "system"}, {"content", text_of_blocks(*system, "system")}});
    read_messages();
    out.fields["messages"] = std::move(messages_);
    if (const OrderedJson* stops = found(body_, "stop_sequences")) {
      if (!stops->is_array()) reject("stop_sequences", "expected a list of texts");
      out.fields["stop"] = *stops;
    }
    read_tools(out.fields);
    read_thinking(out.fields);
    out.names = {{"stop", "stop_sequences"},
                 {"response_format.json_schema", "output_config.format"},
                 {"response_format", "output_config.format"},
                 {"tool_choice.function", "tool_choice"},
                 {"].function.parameters", "].input_schema"},
                 {"].function", "]"}};
    return out;
  }

 private:
  void read_message(const OrderedJson& message, const std::string& path) {
    if (!message.is_object()) reject(path, "expected an object");
    const std::string& role = needed_text(message, "role", path);
    if (role != "user" && role != "assistant")
      reject(path + ".role", "is \"" + role + "\", expected user or assistant");
    const OrderedJson* content = found(message, "content");
    if (!content) throw HttpError(400, path + ".content is missing", "missing_required_parameter", path + ".content");
    if (content->is_string()) {
      messages_.push_back({{"role", role}, {"content", *content}});
      return;
    }
    if (!content->is_array() || content->empty()) reject(path + ".content", "expected a text, or a list of blocks");
    OrderedJson turn = {{"role", role}, {"content", ""}};
    bool own = false;  // whether the turn has something other than results of tools
    for (size_t i = 0; i < content->size(); ++i) {
      const std::string place = path + ".content[" + std::to_string(i) + "]";
      const OrderedJson& block = (*content)[i];
      if (!block.is_object()) reject(place, "expected an object");
      const std::string& type = needed_text(block, "type", place);
      if (type == "tool_result" && role == "user") {
        read_result(block, place);
        continue;
      }
      own = true;
      if (type == "text") turn["content"].get_ref<std::string&>() += needed_text(block, "text", place);
      else if (type == "thinking" && role == "assistant")
        turn["reasoning_content"] = needed_text(block, "thinking", place);
      else if (type == "tool_use" && role == "assistant") turn["tool_calls"].push_back(call_of(block, place));
      else refuse_block(type, place);
    }
    if (own) messages_.push_back(std::move(turn));
  }

  void read_result(const OrderedJson& block, const std::string& path) {
    const OrderedJson* content = found(block, "content");
    std::string text = content ? text_of_blocks(*content, path + ".content") : std::string();
    const OrderedJson* failed = found(block, "is_error");
    if (failed && !failed->is_boolean()) reject(path + ".is_error", "expected true or false");
    if (failed && failed->get<bool>()) text.insert(0, "Error: ");  // templates know no other way to tell
    messages_.push_back(
        {{"role", "tool"}, {"tool_call_id", needed_text(block, "tool_use_id", path)}, {"content", std::move(text)}});
  }

  static OrderedJson call_of(const OrderedJson& block, const std::string& path) {
    const OrderedJson* input = found(block, "input");
    if (!input || !input->is_object()) reject(path + ".input", "expected an object");
    return {{"id", needed_text(block, "id", path)},
            {"type", "function"},
            {"function", {{"name", needed_text(block, "name", path)}, {"arguments", *input}}}};
  }

  void read_messages() {
    const OrderedJson* given = found(body_, "messages");
    if (!given) throw HttpError(400, "messages is missing", "missing_required_parameter", "messages");
    if (!given->is_array() || given->empty()) reject("messages", "expected a list of at least one message");
    for (size_t i = 0; i < given->size(); ++i) read_message((*given)[i], "messages[" + std::to_string(i) + "]");
    if (messages_.back()["role"].get_ref<const std::string&>() == "assistant")
      reject("messages", "ends with the assistant's turn: to continue one is not supported");
  }

  void read_tools(OrderedJson& out) const {
    if (const OrderedJson* tools = found(body_, "tools")) {
      if (!tools->is_array()) reject("tools", "expected a list");
      OrderedJson list = OrderedJson::array();
      for (size_t i = 0; i < tools->size(); ++i)
        list.push_back(tool_of((*tools)[i], "tools[" + std::to_string(i) + "]"));
      out["tools"] = std::move(list);
    }
    const OrderedJson* choice = found(body_, "tool_choice");
    if (!choice) return;
    if (!choice->is_object()) reject("tool_choice", "expected an object");
    const std::string& type = needed_text(*choice, "type", "tool_choice");
    if (type == "auto" || type == "none") out["tool_choice"] = type;
    else if (type == "any") out["tool_choice"] = "required";
    else if (type == "tool")
      out["tool_choice"] = {{"type", "function"},
                            {"function", {{"name", needed_text(*choice, "name", "tool_choice")}}}};
    else reject("tool_choice.type", "is \"" + type + "\", expected auto, any, tool or none");
    if (const OrderedJson* one = found(*choice, "disable_parallel_tool_use")) {
      if (!one->is_boolean()) reject("tool_choice.disable_parallel_tool_use", "expected true or false");
      out["parallel_tool_calls"] = !one->get<bool>();
    }
  }

  static OrderedJson tool_of(const OrderedJson& tool, const std::string& path) {
    if (!tool.is_object()) reject(path, "expected an object");
    if (found(tool, "type") && needed_text(tool, "type", path) != "custom")
      throw HttpError(400, path + ".type: only tools of the caller are supported, with an input_schema",
                      "unsupported_parameter", path + ".type");
    const OrderedJson* schema = found(tool, "input_schema");
    if (!schema || !schema->is_object()) reject(path + ".input_schema", "expected a JSON schema");
    OrderedJson function = {{"name", needed_text(tool, "name", path)}};
    if (found(tool, "description")) function["description"] = needed_text(tool, "description", path);
    function["parameters"] = *schema;
    return {{"type", "function"}, {"function", std::move(function)}};
  }

  /// Of the template; without the field a model does not think, if its template leaves that open.
  void read_thinking(OrderedJson& out) const {
    std::optional<bool> enabled = false;
    std::string effort;
    if (const OrderedJson* thinking = found(body_, "thinking")) {
      if (!thinking->is_object()) reject("thinking", "expected an object");
      const std::string& type = needed_text(*thinking, "type", "thinking");
      if (type == "adaptive") enabled.reset();
      else if (type == "enabled") enabled = true;
      else if (type != "disabled")
        reject("thinking.type", "is \"" + type + "\", expected enabled, adaptive or disabled");
    }
    if (const OrderedJson* config = found(body_, "output_config")) {
      if (!config->is_object()) reject("output_config", "expected an object");
      if (found(*config, "effort")) effort = needed_text(*config, "effort", "output_config");
      if (const OrderedJson* format = found(*config, "format")) {
        if (!format->is_object()) reject("output_config.format", "expected an object");
        out["response_format"] = {{"type", needed_text(*format, "type", "output_config.format")},
                                  {"json_schema", *format}};
      }
    }
    set_thinking(enabled, effort, out);
  }

  const OrderedJson body_;
  OrderedJson messages_ = OrderedJson::array();
};

class MessageWriter : public BlockWriter {
 public:
  /// `prompt`: its tokens; `stops`: what ends the text.
  MessageWriter(Form form, const Chat& chat, int64_t prompt, std::vector<std::string> stops)
      : BlockWriter(std::move(form), chat.tools), prompt_(prompt), stops_(std::move(stops)) {}

  void begin(std::string& out) override {
    if (!form().streaming.on) return;
    Totals totals;
    totals.prompt = prompt_;
    write_event({{"type", "message_start"}, {"message", message(totals)}}, out);
    ping(out);
  }

  void event(int32_t choice, const plait_event& event, std::string& out) override {
    BlockWriter::event(choice, event, out);
    if (event.stop >= 0) stop_ = stops_[static_cast<size_t>(event.stop)];
  }

  void end(const Totals& totals, const std::vector<plait_api::Request>&, std::string& out) override {
    if (finish() == PLAIT_FINISH_ERROR || finish() == PLAIT_FINISH_CANCELLED)
      throw HttpError(500, "the answer was ended before it was complete", "cancelled");
    if (!form().streaming.on) {
      out = dumped(message(totals));
      return;
    }
    write_event({{"type", "message_delta"},
                 {"delta", {{"stop_reason", reason()}, {"stop_sequence", stop_}}},
                 {"usage", usage(totals)}},
                out);
    write_event({{"type", "message_stop"}}, out);
  }

  std::string error(const HttpError& error) const override { return messages_error(error); }
  void failed(const HttpError& error, std::string& out) override {
    out.append("event: error\ndata: ").append(messages_error(error)).append("\n\n");
  }
  void ping(std::string& out) override { write_event({{"type", "ping"}}, out); }

 protected:
  std::string id_of(Kind kind) const override { return kind == Kind::call ? new_id("toolu_") : std::string(); }

  void opened(const Block& block, std::string& out) override {
    Block empty = block;
    empty.text.clear();
    write_event({{"type", "content_block_start"}, {"index", index()}, {"content_block", block_of(empty)}}, out);
  }

  void more(const Block& block, const std::string& text, std::string& out) override {
    switch (block.kind) {
      case Kind::call: return delta({{"type", "input_json_delta"}, {"partial_json", text}}, out);
      case Kind::thought: return delta({{"type", "thinking_delta"}, {"thinking", text}}, out);
      default: return delta({{"type", "text_delta"}, {"text", text}}, out);
    }
  }

  void closed(const Block& block, std::string& out) override {
    if (block.kind == Kind::thought) delta({{"type", "signature_delta"}, {"signature", ""}}, out);
    write_event({{"type", "content_block_stop"}, {"index", index()}}, out);
  }

 private:
  size_t index() const { return blocks().size() - 1; }
  void delta(Json what, std::string& out) const {
    write_event({{"type", "content_block_delta"}, {"index", index()}, {"delta", std::move(what)}}, out);
  }

  /// Thoughts are not signed: they are taken back without it.
  static Json block_of(const Block& block) {
    switch (block.kind) {
      case Kind::call: {
        Json input = Json::parse(block.text, nullptr, false);
        if (!input.is_object()) input = Json::object();  // cut, as stop_reason tells
        return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", std::move(input)}};
      }
      case Kind::thought: return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
      default: return {{"type", "text"}, {"text", block.text}};
    }
  }

  Json reason() const {
    switch (finish()) {
      case PLAIT_FINISH_NONE: return nullptr;
      case PLAIT_FINISH_LENGTH: return "max_tokens";
      default: break;
    }
    if (!stop_.is_null()) return "stop_sequence";
    return has_calls() ? "tool_use" : "end_turn";
  }

  Json usage(const Totals& totals) const {
    return {{"input_tokens", totals.prompt - totals.cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", totals.cached},
            {"output_tokens", totals.generated}};
  }

  Json message(const Totals& totals) const {
    Json content = Json::array();
    for (const Block& block : blocks()) content.push_back(block_of(block));
    return {{"id", form().id},    {"type", "message"},       {"role", "assistant"},    {"model", form().model},
            {"content", content}, {"stop_reason", reason()}, {"stop_sequence", stop_}, {"usage", usage(totals)}};
  }

  const int64_t prompt_;
  const std::vector<std::string> stops_;  ///< that end the text
  Json stop_;                             ///< which of them did
};

}  // namespace

std::string messages_error(const HttpError& error) {
  const auto type = [&] {
    switch (error.status) {
      case 401: return "authentication_error";
      case 403: return "permission_error";
      case 404: return "not_found_error";
      case 413: return "request_too_large";
      case 429: return "rate_limit_error";
      case 503: return "overloaded_error";
      default: return error.status >= 500 ? "api_error" : "invalid_request_error";
    }
  };
  return dumped({{"type", "error"}, {"error", {{"type", type()}, {"message", error.what()}}}});
}

std::unique_ptr<Answer> messages(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  check_fields(body, Wire::messages);
  body.required("max_tokens");
  const ChatBody chat_body = MessageReader(text).read();
  Chat chat = chat_of(models, chat_body);
  Form form;
  form.streaming.on = body.flag("stream").value_or(false);
  form.id = new_id("msg_");
  form.model = chat.named.name;
  std::vector<std::string> stops;
  if (const Json* given = body.find("stop_sequences"))
    for (const Json& stop : *given)
      if (!stop.get_ref<const std::string&>().empty()) stops.push_back(stop.get<std::string>());
  std::vector<plait_api::Request> requests;
  try {
    requests.push_back(submit(chat));
  } catch (const HttpError& error) {
    throw renamed(error, chat_body);
  }
  const bool stream = form.streaming.on;
  const int64_t prompt = requests.front().usage().prompt_tokens;
  auto writer = std::make_unique<MessageWriter>(std::move(form), chat, prompt, std::move(stops));
  return std::make_unique<Generation>(std::move(requests), 1, std::move(writer), stream, models.meter());
}

std::unique_ptr<Answer> count_tokens(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  check_fields(Fields(json), Wire::messages);
  const Chat chat = chat_of(models, MessageReader(text).read());
  return std::make_unique<Reply>(dumped({{"input_tokens", prompt_tokens(chat, false).size()}}));
}

}  // namespace plait::http
