#include "serving/http/wires/tools.h"

#include "serving/http/base/failure.h"

namespace plait::http {
namespace {

constexpr size_t most_tools = 128;
/// Between the parts of arguments, as the option json_schema has it: a model may otherwise write blanks without end.
constexpr const char* blanks = "[\\x20\\x0A\\x0D\\x09]{1,64}";

std::string written(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

/// The function of a tool; its name in `names` otherwise an error.
const OrderedJson& function_of(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object()) reject(path, "expected an object");
  const auto type = tool.find("type");
  if (type == tool.end() || !type->is_string() || type->get_ref<const std::string&>() != "function")
    reject(path + ".type", "expected \"function\"");
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) reject(path + ".function", "expected an object");
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string() || name->get_ref<const std::string&>().empty() ||
      name->get_ref<const std::string&>().size() > 256)
    reject(path + ".function.name", "expected a name of 1 to 256 bytes");
  const auto parameters = function->find("parameters");
  if (parameters != function->end() && !parameters->is_object() && !parameters->is_null())
    reject(path + ".function.parameters", "expected a JSON schema");
  return *function;
}

/// Lark text that matches the mark: texts, and special tokens by number.
std::string lark_of(const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  std::string out, text;
  const auto flush = [&] {
    if (!text.empty()) out += dumped(Json(text)) + " ";
    text.clear();
  };
  // Special tokens are found one by one, since tokens of the text around them depend on it.
  for (size_t at = 0; at < mark.size();) {
    size_t taken = 0;
    for (const int32_t id : tokenizer.encode(mark.substr(at), false)) {
      const std::string piece = tokenizer.decode({id}, false);
      if (!piece.empty() && tokenizer.decode({id}, true).empty()) {
        const size_t found = mark.find(piece, at);
        if (found == std::string::npos) continue;
        text += mark.substr(at, found - at);
        flush();
        out += "<[" + std::to_string(id) + "]> ";
        taken = found + piece.size() - at;
        break;
      }
    }
    if (taken == 0) {
      text += mark.substr(at);
      break;
    }
    at += taken;
  }
  flush();
  return out;
}

/// As `lark_of`, with an id that the template wrote as any of nine letters and digits, as Mistral's are.
std::string lark_with_ids(const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  const std::string id = "PLAITID00";
  const size_t at = mark.find(id);
  if (at == std::string::npos) return lark_of(mark, tokenizer);
  return lark_of(mark.substr(0, at), tokenizer) + "/[a-zA-Z0-9]{9}/ " +
         lark_with_ids(mark.substr(at + id.size()), tokenizer);
}

bool has_special(const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  return lark_of(mark, tokenizer).find("<[") != std::string::npos;
}

/// Whether the assistant's turn begins within a thought.
bool begins_thinking(const ToolFormat& format, const Named& named, const std::string& variables) {
  if (format.think_end.empty()) return false;
  std::string prompt;
  try {
    prompt =
        named.served->render(Json::array({Json{{"role", "user"}, {"content", "probe"}}}), nullptr, true, variables);
  } catch (const plait_api::Failure&) {
    return false;  // submitting it tells why
  }
  const auto trimmed = [](std::string text) {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
    return text;
  };
  std::string begin = trimmed(format.think_begin);
  if (const size_t last = begin.find_last_of("<["); last != std::string::npos) begin.erase(0, last);
  return !begin.empty() && trimmed(prompt).ends_with(begin);
}

void read_choice(const Fields& body, Tools& out) {
  const Json* choice = body.find("tool_choice");
  if (!choice) return;
  if (choice->is_string()) {
    const auto& word = choice->get_ref<const std::string&>();
    if (word == "none") out.names.clear();
    else if (word == "required") out.required = true;
    else if (word != "auto")
      reject("tool_choice", "is \"" + word + "\", expected none, auto, required, or a function");
    return;
  }
  const Fields fields(*choice, "tool_choice");
  const std::string name = Fields(fields.required("function"), "tool_choice.function").required_text("name");
  if (out.names.count(name) == 0) reject("tool_choice.function.name", "\"" + name + "\" is not one of the tools");
  out.names = {name};
  out.required = true;
}

}  // namespace

Tools tools_of(std::string_view text, const Fields& body, const Named& named, const std::string& variables) {
  Tools out;
  const plait_api::Tokenizer tokenizer = named.served->tokenizer();
  const Json* given = body.find("tools");
  if (given && !(given->is_array() && given->empty())) {
    const auto ordered = OrderedJson::parse(text.begin(), text.end()).at("tools");
    if (!ordered.is_array()) reject("tools", "expected a list");
    if (ordered.size() > most_tools)
      reject("tools",
             "has " + std::to_string(ordered.size()) + " tools, expected at most " + std::to_string(most_tools));
    for (size_t i = 0; i < ordered.size(); ++i)
      out.names.insert(function_of(ordered[i], "tools[" + std::to_string(i) + "]").at("name").get<std::string>());
    out.list = written(ordered);
  }
  if (out.list.empty() && body.find("tool_choice")) {
    const Json* choice = body.find("tool_choice");
    const bool none = choice->is_string() && choice->get_ref<const std::string&>() != "required";
    if (!none) reject("tool_choice", "there are no tools");
  }
  if (!out.list.empty()) read_choice(body, out);
  for (size_t i = 0; !out.names.empty() && i < given->size(); ++i) {
    const Fields function((*given)[i].at("function"), "tools[" + std::to_string(i) + "].function");
    out.strict |= function.flag("strict").value_or(false) && out.names.count(function.required_text("name")) > 0;
  }
  out.parallel = body.flag("parallel_tool_calls").value_or(true);
  out.format = named.served->tool_format();
  out.thinking = begins_thinking(out.format, named, variables);
  const ToolFormat& format = out.format;
  for (const std::string& mark : {format.think_begin, format.think_end})
    out.special_text |= has_special(mark, tokenizer);
  if (!out.names.empty())
    for (const std::string& mark : {format.begin, format.between, format.next, format.end})
      out.special_text |= has_special(mark, tokenizer);
  return out;
}

namespace {

/// Whether a function's arguments are bound: those of required calls are, otherwise those of strict functions.
bool is_bound(const OrderedJson& function, const Tools& tools) {
  const auto strict = function.find("strict");
  return tools.required || (strict != function.end() && strict->is_boolean() && strict->get<bool>());
}

/// Rules of a call from its name on: `call`.
std::string rules_of_calls(const OrderedJson& list, const Tools& tools, const plait_api::Tokenizer& tokenizer) {
  std::string calls, rules;
  for (size_t i = 0; i < list.size(); ++i) {
    const OrderedJson& function = list[i].at("function");
    const auto name = function.at("name").get<std::string>();
    if (tools.names.count(name) == 0) continue;
    OrderedJson schema = {{"type", "object"}};
    const bool given = function.contains("parameters") && function["parameters"].is_object();
    if (given && is_bound(function, tools)) schema = function["parameters"];
    if (!schema.contains("type")) schema["type"] = "object";
    if (!schema.contains("x-guidance")) schema["x-guidance"] = {{"whitespace_pattern", blanks}};
    const std::string rule = "call_" + std::to_string(i);
    calls += (calls.empty() ? "" : " | ") + rule;
    rules += rule + ": " + dumped(Json(name)) + " " + lark_with_ids(tools.format.between, tokenizer) + "%json " +
             written(schema) + "\n";
  }
  return "call: " + calls + "\n" + rules;
}

/// Any text, in which the mark that begins a call is followed by calls; "" if there is no such mark, or none that a grammar can find.
std::string start_of_free_text(const Tools& tools, const plait_api::Tokenizer& tokenizer, const std::string& calls) {
  const ToolFormat& format = tools.format;
  const std::string lead = format.lead();
  if (lead.empty()) return {};
  const std::string mark = lark_of(lead, tokenizer);
  const bool special = mark.starts_with("<[");
  if (!special && mark.find("<[") != std::string::npos) return {};
  const std::string rest = format.begin.substr(format.begin.find(lead) + lead.size());
  const std::string after = lark_with_ids(rest, tokenizer) + calls;
  // Text has no special tokens, so that one ends it; any other mark ends it where it first stands.
  const std::string turn = special ? "TEXT? " + mark + after : "lead " + after;
  std::string out = "start: " + std::string(tools.thinking ? "( thought main )? TEXT?\nmain: " : "") + "( " + turn +
                    (tools.parallel ? ")*" : ")?") + " TEXT?\nTEXT: /(.|\\n)+/\n";
  if (!special) out += "lead[suffix=" + dumped(Json(lead)) + "]: /(.|\\n)*/\n";
  return out;
}

}  // namespace

Structure structure_of_calls(std::string_view text, const Tools& tools, const Named& named, Structure structure) {
  if (!tools.required && (!tools.strict || !structure.field.empty())) return structure;
  if (!structure.field.empty()) reject(structure.field, "bounds the answer, as tool_choice does: give one of them");
  const plait_api::Tokenizer tokenizer = named.served->tokenizer();
  const auto list = OrderedJson::parse(text.begin(), text.end()).at("tools");
  const ToolFormat& format = tools.format;
  std::string calls = "call ";
  if (format.many() && tools.parallel) calls += "( " + lark_with_ids(format.next, tokenizer) + "call )* ";
  calls += lark_with_ids(format.end, tokenizer);
  std::string start = "start: " + std::string(tools.thinking ? "thought " : "") +
                      lark_with_ids(format.begin, tokenizer) + calls + "\n";
  if (!tools.required) start = start_of_free_text(tools, tokenizer, calls);
  if (start.empty()) return structure;
  if (tools.thinking) start += "thought[suffix=" + dumped(Json(format.think_end)) + "]: /(.|\\n)*/\n";
  return {"grammar", start + rules_of_calls(list, tools, tokenizer), "tools"};
}

}  // namespace plait::http
