#include "serving/http/wires/chat.h"

namespace plait::http {
namespace {

/// Parts of a content are only texts.
void check_parts(const Json& parts, const std::string& path) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Fields part(parts[i], path + "[" + std::to_string(i) + "]");
    const std::string kind = part.required_text("type");
    const bool text = kind == "text" || kind == "input_text" || kind == "output_text";
    if (!text && kind != "refusal" && kind != "thinking")
      throw HttpError(400, part.path("type") + ": content of type \"" + kind + "\" is not supported, only text",
                      "unsupported_content", part.path("type"));
    part.required_text(text ? "text" : kind.c_str());
  }
}

/// The fields of a turn next to its content, as templates read them.
void check_turn(const Fields& turn) {
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) turn.text(name);
  if (const Json* call = turn.find("function_call")) Fields(*call, turn.path("function_call")).required_text("name");
  const Json* calls = turn.find("tool_calls");
  if (!calls) return;
  const std::string path = turn.path("tool_calls");
  if (!calls->is_array()) reject(path, "expected a list of calls");
  for (size_t i = 0; i < calls->size(); ++i) {
    const Fields call((*calls)[i], path + "[" + std::to_string(i) + "]");
    call.text("id");
    const Fields function(call.required("function"), call.path("function"));
    function.required_text("name");
    const Json* arguments = function.find("arguments");
    if (arguments && !arguments->is_string() && !arguments->is_object())
      reject(function.path("arguments"), "expected a text, or an object");
  }
}

/// The conversation, checked; what templates need of it is done where they are rendered, as for training.
OrderedJson messages_of(std::string_view text, const Fields& body) {
  const Json& given = body.required("messages");
  if (!given.is_array() || given.empty()) reject("messages", "expected a list of at least one message");
  for (size_t i = 0; i < given.size(); ++i) {
    const Fields fields(given[i], "messages[" + std::to_string(i) + "]");
    const std::string role = fields.required_text("role");
    bool known = false;
    for (const char* name : {"system", "developer", "user", "assistant", "tool", "function"}) known |= role == name;
    if (!known) reject(fields.path("role"), "is \"" + role + "\", expected system, user, assistant or tool");
    if (const Json* content = fields.find("content")) {
      if (content->is_array()) check_parts(*content, fields.path("content"));
      else if (!content->is_string()) reject(fields.path("content"), "expected a text, or a list of parts");
    } else {
      bool other = false;
      for (const char* name :
           {"tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "refusal"})
        other |= fields.find(name) != nullptr;
      if (!other || role != "assistant") reject(fields.path("content"), "is missing");
    }
    check_turn(fields);
  }
  return OrderedJson::parse(text.begin(), text.end()).at("messages");
}

/// A message's text, of its parts if it has some.
std::string text_of(const OrderedJson& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string out;
  for (const OrderedJson& part : *content)
    for (const char* name : {"text", "refusal"})
      if (part.contains(name)) out += part.at(name).get<std::string>();
  return out;
}

/// For a template that does not write tools: they stand in the system's message, if it takes one (`system`).
void describe_tools(const std::string& list, bool system, OrderedJson& messages) {
  const std::string text =
      "You may call these tools, given as JSON schemas:\n" + list +
      "\nTo call one, answer only with a JSON object: {\"name\": \"its name\", \"arguments\": {its arguments}}";
  if (!system) {  // then the first message has them
    messages[0]["content"] = text + "\n\n" + text_of(messages[0]);
    return;
  }
  const std::string role = messages[0]["role"].get<std::string>();
  if (role != "system" && role != "developer") {
    messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", text}});
    return;
  }
  messages[0]["content"] = text_of(messages[0]) + "\n\n" + text;
}

/// Of the chat template: "chat_template_kwargs", and "reasoning_effort" as it is in /v1/responses.
std::string variables_of(const Fields& body) {
  OrderedJson fields = OrderedJson::object();
  if (const Json* given = body.find("chat_template_kwargs")) fields["chat_template_kwargs"] = *given;
  if (const auto effort = body.text("reasoning_effort"))
    set_thinking(*effort != "none" && *effort != "minimal", *effort, fields);
  return fields.contains("chat_template_kwargs") ? dumped(Json(fields["chat_template_kwargs"])) : "";
}

}  // namespace

Chat chat_of(const Models& models, std::string_view text, const Fields& body) {
  Chat out;
  out.named = model_of(models, body);
  out.variables = variables_of(body);
  out.tools = tools_of(text, body, out.named, out.variables);
  const Tools& tools = out.tools;
  out.structure = structure_of_calls(text, tools, out.named, structure_of(text, body));
  OrderedJson conversation = messages_of(text, body);
  if (!tools.list.empty() && !tools.format.lists_tools) describe_tools(tools.list, tools.format.system, conversation);
  out.messages = conversation.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  out.options = sampling_options(body, out.named, {"max_completion_tokens", "max_tokens"});
  if (!out.variables.empty()) out.options.set("chat_variables", out.variables);
  if (!tools.list.empty()) out.options.set("tools", tools.list);
  if (tools.special_text) out.options.set("special_text", "true");
  return out;
}

plait_api::Request submit(Chat& chat) {
  return submit_with(chat.structure, chat.options, [&] {
    return plait_api::Request(plait_api::made<plait_request>([&](plait_request** out) {
      return plait_generator_submit_chat(chat.named.served->generator(), chat.messages.data(),
                                         static_cast<int64_t>(chat.messages.size()), chat.options.get(), out);
    }));
  });
}

std::vector<int32_t> prompt_tokens(const Chat& chat, bool special) {
  const plait_api::Tokenizer tokenizer = chat.named.served->tokenizer();
  plait_api::Options options;
  if (!chat.variables.empty()) options.set("chat_variables", chat.variables);
  if (!chat.tools.list.empty()) options.set("tools", chat.tools.list);
  const plait_api::Tensor prompt = plait_api::tensor([&](plait_tensor** out) {
    return plait_tokenizer_chat(tokenizer.get(), chat.messages.data(), static_cast<int64_t>(chat.messages.size()),
                                options.get(), out);
  });
  return tokenizer.encode(prompt.text(), special);
}

Chat chat_of(const Models& models, const ChatBody& body) {
  const std::string text = body.fields.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  try {
    const Json json = parse_body(text);
    return chat_of(models, text, Fields(json));
  } catch (const HttpError& error) {
    throw renamed(error, body);
  }
}

HttpError renamed(const HttpError& error, const ChatBody& body) {
  std::string param = error.param, message = error.what();
  for (const auto& [from, to] : body.names) {
    const size_t at = param.find(from);
    if (at == std::string::npos || (at > 0 && from.front() != ']')) continue;
    param.replace(at, from.size(), to);
    break;
  }
  if (message.starts_with(error.param)) message.replace(0, error.param.size(), param);
  HttpError out(error.status, message, error.code, param);
  out.retry_after_ms = error.retry_after_ms;
  return out;
}

void set_thinking(std::optional<bool> enabled, const std::string& effort, OrderedJson& fields) {
  OrderedJson& variables = fields["chat_template_kwargs"];
  if (variables.is_null()) variables = OrderedJson::object();
  if (!variables.is_object()) reject("chat_template_kwargs", "expected an object");
  if (enabled && !variables.contains("enable_thinking")) variables["enable_thinking"] = *enabled;
  if (!effort.empty() && !variables.contains("reasoning_effort")) variables["reasoning_effort"] = effort;
  if (variables.empty()) fields.erase("chat_template_kwargs");
}

const std::string& needed_text(const OrderedJson& object, const char* name, const std::string& path) {
  const OrderedJson* value = found(object, name);
  const std::string own = path.empty() ? name : path + "." + name;
  if (!value) throw HttpError(400, own + " is missing", "missing_required_parameter", own);
  if (!value->is_string()) reject(own, "expected a text");
  return value->get_ref<const std::string&>();
}

std::string joined_text(
    const OrderedJson& content, const std::string& path, const char* what,
    const std::function<const char*(const std::string& type, const std::string& path)>& field_of) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) reject(path, std::string("expected a text, or a list of ") + what);
  std::string out;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string own = path + "[" + std::to_string(i) + "]";
    if (!content[i].is_object()) reject(own, "expected an object");
    const char* const field = field_of(needed_text(content[i], "type", own), own);
    out += needed_text(content[i], field, own);
  }
  return out;
}

const OrderedJson* found(const OrderedJson& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

Parts::Parts(const Tools& tools) {
  if (!tools.names.empty() || !tools.format.think_end.empty())
    parser_.emplace(tools.format, tools.names, tools.thinking);
}

std::vector<AnswerPart> Parts::read(const plait_event& event) {
  const std::string_view text(event.text, static_cast<size_t>(event.text_length));
  std::vector<AnswerPart> out;
  if (!parser_) {
    if (!text.empty()) out.push_back({AnswerPart::Kind::text, std::string(text)});
    return out;
  }
  if (event.token >= 0 && parser_->thinking()) ++thought_tokens_;
  out = parser_->push(text);
  if (event.finish != PLAIT_FINISH_NONE)
    for (AnswerPart& part : parser_->finish()) out.push_back(std::move(part));
  return out;
}

void BlockWriter::event(int32_t, const plait_event& event, std::string& out) {
  using Kind = AnswerPart::Kind;
  for (AnswerPart& part : parts_.read(event)) {
    const bool follows = part.kind == Kind::arguments ||
                         (part.kind != Kind::call && !blocks_.empty() && blocks_.back().kind == part.kind);
    if (!follows) {
      close(out);
      blocks_.push_back({part.kind, id_of(part.kind), part.kind == Kind::call ? part.text : std::string(), {}});
      if (form_.streaming.on) opened(blocks_.back(), out);
      if (part.kind == Kind::call) continue;
    }
    blocks_.back().text += part.text;
    if (form_.streaming.on) more(blocks_.back(), part.text, out);
  }
  if (event.finish == PLAIT_FINISH_NONE) return;
  finish_ = event.finish;
  if (!blocks_.empty()) blocks_.back().cut = finish_ != PLAIT_FINISH_EOS && finish_ != PLAIT_FINISH_STOP;
  close(out);
}

void BlockWriter::close(std::string& out) {
  if (form_.streaming.on && !blocks_.empty()) closed(blocks_.back(), out);
}

bool BlockWriter::has_calls() const {
  for (const Block& block : blocks_)
    if (block.kind == AnswerPart::Kind::call) return true;
  return false;
}

void write_event(const Json& object, std::string& out) {
  out.append("event: ").append(object.at("type").get_ref<const std::string&>()).append("\n");
  write_frame(object, out);
}

}  // namespace plait::http
