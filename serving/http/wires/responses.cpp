// POST /v1/responses: platform.openai.com/docs/api-reference/responses. Nothing is kept: each call has the whole conversation.
#include "serving/http/wires/chat.h"
#include "serving/http/wires/known_fields.h"

namespace plait::http {
namespace {

using Kind = AnswerPart::Kind;

/// A body as one of chat completions.
class ResponseReader {
 public:
  explicit ResponseReader(std::string_view text) : body_(OrderedJson::parse(text.begin(), text.end())) {}

  ChatBody read() {
    ChatBody out;
    out.fields = body_;  // how tokens are chosen has the same names
    for (const char* field : {"input", "instructions", "text", "tools", "tool_choice", "reasoning", "stream_options",
                              "max_output_tokens", "max_tokens", "n", "logprobs", "top_logprobs"})
      out.fields.erase(field);
    if (const OrderedJson* most = found(body_, "max_output_tokens")) out.fields["max_completion_tokens"] = *most;
    read_input();
    read_instructions();
    out.fields["messages"] = std::move(messages_);
    read_format(out.fields);
    read_tools(out.fields);
    read_reasoning(out.fields);
    out.names = {{"max_completion_tokens", "max_output_tokens"},
                 {"response_format.json_schema", "text.format"},
                 {"response_format", "text.format"},
                 {"tool_choice.function.name", "tool_choice.name"},
                 {"messages", "input"},
                 {"].function", "]"}};
    return out;
  }

 private:
  static std::string content_of(const OrderedJson& content, const std::string& path) {
    return joined_text(content, path, "parts", [](const std::string& type, const std::string& own) {
      if (type == "refusal") return "refusal";
      if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
          type != "summary_text")
        throw HttpError(400, own + ".type: content of type \"" + type + "\" is not supported, only text",
                        "unsupported_content", own + ".type");
      return "text";
    });
  }

  /// The assistant's turn that calls and thoughts belong to.
  OrderedJson& assistant() {
    const bool last = !messages_.empty() && messages_.back()["role"].get_ref<const std::string&>() == "assistant";
    if (!last) messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
  }

  void read_message(const OrderedJson& item, const std::string& path) {
    const std::string& role = needed_text(item, "role", path);
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      reject(path + ".role", "is \"" + role + "\", expected user, assistant, system or developer");
    const OrderedJson* content = found(item, "content");
    if (!content) throw HttpError(400, path + ".content is missing", "missing_required_parameter", path + ".content");
    std::string text = content_of(*content, path + ".content");
    if (role == "assistant") {
      OrderedJson& turn = assistant();
      // A thought is of the text after it; a text after calls is a turn of its own.
      if (turn["content"].get_ref<const std::string&>().empty() && !turn.contains("tool_calls"))
        turn["content"] = text;
      else messages_.push_back({{"role", role}, {"content", std::move(text)}});
      return;
    }
    messages_.push_back({{"role", role == "developer" ? "system" : role}, {"content", std::move(text)}});
  }

  void read_item(const OrderedJson& item, const std::string& path) {
    if (!item.is_object()) reject(path, "expected an object");
    const OrderedJson* given = found(item, "type");
    if (!given) return read_message(item, path);
    const std::string& type = needed_text(item, "type", path);
    if (type == "message") return read_message(item, path);
    if (type == "function_call") {
      assistant()["tool_calls"].push_back(
          {{"id", needed_text(item, "call_id", path)},
           {"type", "function"},
           {"function",
            {{"name", needed_text(item, "name", path)}, {"arguments", needed_text(item, "arguments", path)}}}});
      return;
    }
    if (type == "function_call_output") {
      const OrderedJson* output = found(item, "output");
      if (!output) throw HttpError(400, path + ".output is missing", "missing_required_parameter", path + ".output");
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", needed_text(item, "call_id", path)},
                           {"content", content_of(*output, path + ".output")}});
      return;
    }
    if (type == "reasoning") {
      const OrderedJson* content = found(item, "content");
      const char* field = content && !content->empty() ? "content" : "summary";
      const OrderedJson* parts = found(item, field);
      const std::string thought = parts ? content_of(*parts, path + "." + field) : std::string();
      if (!thought.empty()) assistant()["reasoning_content"] = thought;
      return;
    }
    if (type == "item_reference")
      reject(path + ".type", "no items are kept, so none can be referred to: send the item itself");
    reject(path + ".type",
           "items of type \"" + type +
               "\" are not supported, only message, function_call, function_call_output and reasoning");
  }

  void read_input() {
    const OrderedJson* input = found(body_, "input");
    if (!input) throw HttpError(400, "input is missing", "missing_required_parameter", "input");
    if (input->is_string()) {
      messages_.push_back({{"role", "user"}, {"content", *input}});
      return;
    }
    if (!input->is_array() || input->empty()) reject("input", "expected a text, or a list of items");
    for (size_t i = 0; i < input->size(); ++i) read_item((*input)[i], "input[" + std::to_string(i) + "]");
    if (messages_.empty()) reject("input", "has no message");
  }

  /// Before the conversation, in the system's message.
  void read_instructions() {
    const OrderedJson* given = found(body_, "instructions");
    if (!given) return;
    if (!given->is_string()) reject("instructions", "expected a text");
    const auto& text = given->get_ref<const std::string&>();
    OrderedJson& first = messages_.front();
    if (first["role"].get_ref<const std::string&>() == "system")
      first["content"] = text + "\n\n" + first["content"].get<std::string>();
    else messages_.insert(messages_.begin(), OrderedJson{{"role", "system"}, {"content", text}});
  }

  void read_format(OrderedJson& out) const {
    const OrderedJson* text = found(body_, "text");
    if (!text) return;
    if (!text->is_object()) reject("text", "expected an object");
    const OrderedJson* format = found(*text, "format");
    if (!format) return;
    if (!format->is_object()) reject("text.format", "expected an object");
    out["response_format"] = {{"type", needed_text(*format, "type", "text.format")}, {"json_schema", *format}};
  }

  void read_tools(OrderedJson& out) const {
    if (const OrderedJson* tools = found(body_, "tools")) {
      if (!tools->is_array()) reject("tools", "expected a list");
      OrderedJson list = OrderedJson::array();
      for (size_t i = 0; i < tools->size(); ++i) {
        const std::string path = "tools[" + std::to_string(i) + "]";
        if (!(*tools)[i].is_object()) reject(path, "expected an object");
        OrderedJson function = (*tools)[i];
        const std::string type = needed_text(function, "type", path);
        if (type != "function")
          throw HttpError(400, path + ".type: tools of type \"" + type + "\" are not supported, only functions",
                          "unsupported_parameter", path + ".type");
        function.erase("type");
        list.push_back({{"type", "function"}, {"function", std::move(function)}});
      }
      out["tools"] = std::move(list);
    }
    const OrderedJson* choice = found(body_, "tool_choice");
    if (!choice) return;
    out["tool_choice"] = *choice;
    if (!choice->is_object()) return;
    const std::string& type = needed_text(*choice, "type", "tool_choice");
    if (type == "allowed_tools") {
      OrderedJson tools = OrderedJson::array();
      const OrderedJson* list = found(*choice, "tools");
      if (!list || !list->is_array()) reject("tool_choice.tools", "expected a list of tools");
      for (size_t i = 0; i < list->size(); ++i)
        tools.push_back({{"type", "function"},
                         {"function",
                          {{"name", needed_text((*list)[i], "name", "tool_choice.tools[" + std::to_string(i) + "]")}}}});
      out["tool_choice"] = {{"type", type},
                            {"allowed_tools", {{"mode", needed_text(*choice, "mode", "tool_choice")}, {"tools", tools}}}};
      return;
    }
    if (type != "function") reject("tool_choice.type", "is \"" + type + "\", expected function or allowed_tools");
    out["tool_choice"] = {{"type", "function"},
                          {"function", {{"name", needed_text(*choice, "name", "tool_choice")}}}};
  }

  void read_reasoning(OrderedJson& out) const {
    const OrderedJson* reasoning = found(body_, "reasoning");
    if (!reasoning) return;
    if (!reasoning->is_object()) reject("reasoning", "expected an object");
    if (!found(*reasoning, "effort")) return;
    const std::string& effort = needed_text(*reasoning, "effort", "reasoning");
    set_thinking(effort != "none" && effort != "minimal", effort, out);
  }

  const OrderedJson body_;
  OrderedJson messages_ = OrderedJson::array();
};

/// The body's fields that an answer repeats.
Json repeated(const Fields& body) {
  Json out = Json::object();
  for (const char* field : {"instructions", "max_output_tokens", "temperature", "top_p", "user", "reasoning"}) {
    const Json* value = body.find(field);
    out[field] = value ? *value : Json();
  }
  const auto given = [&](const char* field, Json otherwise) {
    const Json* value = body.find(field);
    out[field] = value ? *value : std::move(otherwise);
  };
  given("metadata", Json::object());
  given("parallel_tool_calls", true);
  given("tool_choice", "auto");
  given("tools", Json::array());
  given("text", Json::object());
  if (!out["text"].contains("format")) out["text"]["format"] = {{"type", "text"}};
  return out;
}

class ResponseWriter : public BlockWriter {
 public:
  ResponseWriter(Form form, const Tools& tools, Json own)
      : BlockWriter(std::move(form), tools), own_(std::move(own)) {}

  void begin(std::string& out) override {
    if (!form().streaming.on) return;
    send({{"type", "response.created"}, {"response", response("in_progress", nullptr)}}, out);
    send({{"type", "response.in_progress"}, {"response", response("in_progress", nullptr)}}, out);
  }

  void end(const Totals& totals, const std::vector<plait_api::Request>&, std::string& out) override {
    const char* status = finish() == PLAIT_FINISH_LENGTH                                        ? "incomplete"
                         : finish() == PLAIT_FINISH_CANCELLED || finish() == PLAIT_FINISH_ERROR ? "failed"
                                                                                                : "completed";
    const Json usage = {{"input_tokens", totals.prompt},
                        {"input_tokens_details", {{"cached_tokens", totals.cached}, {"cache_write_tokens", 0}}},
                        {"output_tokens", totals.generated},
                        {"output_tokens_details", {{"reasoning_tokens", thought_tokens()}}},
                        {"total_tokens", totals.prompt + totals.generated}};
    Json object = response(status, usage);
    if (finish() == PLAIT_FINISH_LENGTH) object["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (finish() == PLAIT_FINISH_ERROR || finish() == PLAIT_FINISH_CANCELLED)
      object["error"] = {{"code", "server_error"}, {"message", "the answer was ended before it was complete"}};
    if (!form().streaming.on) out = dumped(object);
    else send({{"type", std::string("response.") + status}, {"response", std::move(object)}}, out);
  }

  void failed(const HttpError& error, std::string& out) override {
    Json object = response("failed", nullptr);
    object["error"] = {{"code", error.status == 429 ? "rate_limit_exceeded" : "server_error"},
                       {"message", error.what()}};
    send({{"type", "response.failed"}, {"response", std::move(object)}}, out);
  }

 protected:
  std::string id_of(Kind kind) const override {
    return new_id(kind == Kind::call ? "fc_" : kind == Kind::thought ? "rs_" : "msg_");
  }

  void opened(const Block& block, std::string& out) override {
    Block empty = block;
    empty.text.clear();
    Json item = item_of(empty, "in_progress");
    if (block.kind != Kind::call) item["content"] = Json::array();
    send({{"type", "response.output_item.added"}, {"output_index", index()}, {"item", std::move(item)}}, out);
    if (block.kind == Kind::call) return;
    Json part = place("response.content_part.added", block);
    part["part"] = part_of(empty);
    send(std::move(part), out);
  }

  void more(const Block& block, const std::string& text, std::string& out) override {
    Json delta = place(name_of(block.kind) + ".delta", block);
    delta["delta"] = text;
    if (block.kind == Kind::text) delta["logprobs"] = Json::array();
    send(std::move(delta), out);
  }

  void closed(const Block& block, std::string& out) override {
    Json done = place(name_of(block.kind) + ".done", block);
    if (block.kind == Kind::call) done["name"] = block.name;
    done[block.kind == Kind::call ? "arguments" : "text"] = block.text;
    if (block.kind == Kind::text) done["logprobs"] = Json::array();
    send(std::move(done), out);
    if (block.kind != Kind::call) {
      Json part = place("response.content_part.done", block);
      part["part"] = part_of(block);
      send(std::move(part), out);
    }
    send({{"type", "response.output_item.done"}, {"output_index", index()}, {"item", item_of(block)}}, out);
  }

 private:
  static std::string name_of(Kind kind) {
    return kind == Kind::call      ? "response.function_call_arguments"
           : kind == Kind::thought ? "response.reasoning_text"
                                   : "response.output_text";
  }
  size_t index() const { return blocks().size() - 1; }

  void send(Json event, std::string& out) {
    event["sequence_number"] = sent_++;
    write_event(event, out);
  }

  /// An event, and what it is about: the last block.
  Json place(const std::string& type, const Block& block) const {
    Json out = {{"type", type}, {"item_id", block.id}, {"output_index", index()}};
    if (block.kind != Kind::call) out["content_index"] = 0;
    return out;
  }

  static Json part_of(const Block& block) {
    if (block.kind == Kind::thought) return {{"type", "reasoning_text"}, {"text", block.text}};
    return {
        {"type", "output_text"}, {"text", block.text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  static Json item_of(const Block& block, const char* status = nullptr) {
    Json out = {{"id", block.id}, {"status", status ? status : block.cut ? "incomplete" : "completed"}};
    switch (block.kind) {
      case Kind::call:
        out["type"] = "function_call";
        out["call_id"] = "call_" + block.id.substr(block.id.find('_') + 1);
        out["name"] = block.name;
        out["arguments"] = block.text;
        return out;
      case Kind::thought:
        out["type"] = "reasoning";
        out["summary"] = Json::array();
        break;
      default: out["type"] = "message"; out["role"] = "assistant";
    }
    out["content"] = Json::array({part_of(block)});
    return out;
  }

  Json response(const char* status, Json usage) const {
    Json out = own_;
    out["id"] = form().id;
    out["object"] = "response";
    out["created_at"] = form().created;
    out["status"] = status;
    out["model"] = form().model;
    out["background"] = out["store"] = false;
    out["error"] = out["incomplete_details"] = out["previous_response_id"] = nullptr;
    out["truncation"] = "disabled";
    out["usage"] = std::move(usage);
    out["output"] = Json::array();
    for (const Block& block : blocks()) out["output"].push_back(item_of(block));
    return out;
  }

  const Json own_;
  int64_t sent_ = 0;
};

}  // namespace

std::unique_ptr<Answer> responses(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  for (const char* flag : {"store", "background"}) body.flag(flag);
  check_fields(body, Wire::responses);
  if (body.integer("top_logprobs", 0, 20).value_or(0) > 0)
    reject("top_logprobs", "log-probabilities are not supported here; /v1/chat/completions has them");
  if (body.text("truncation").value_or("disabled") != "disabled")
    reject("truncation", "only \"disabled\" is supported: a conversation that is too long is an error");
  if (const Json* include = body.find("include"))
    for (size_t i = 0; include->is_array() && i < include->size(); ++i) {
      const Json& one = (*include)[i];
      if (one.is_string() && one.get_ref<const std::string&>() == "message.output_text.logprobs")
        reject("include[" + std::to_string(i) + "]", "log-probabilities are not supported here");
    }
  const ChatBody chat_body = ResponseReader(text).read();
  Chat chat = chat_of(models, chat_body);
  Form form;
  form.streaming = streaming_of(body);
  form.id = new_id("resp_");
  form.model = chat.named.name;
  form.created = seconds_since_epoch();
  std::vector<plait_api::Request> requests;
  try {
    requests.push_back(submit(chat));
  } catch (const HttpError& error) {
    throw renamed(error, chat_body);
  }
  const bool stream = form.streaming.on;
  auto writer = std::make_unique<ResponseWriter>(std::move(form), chat.tools, repeated(body));
  return std::make_unique<Generation>(std::move(requests), 1, std::move(writer), stream, models.meter());
}

}  // namespace plait::http
