#include "serving/http/wires/tools.h"

#include <cctype>
#include <set>

#include "serving/http/base/failure.h"
#include "serving/http/wires/lark.h"
#include "serving/http/wires/tag_rules.h"

namespace plait::http {
namespace {

constexpr size_t most_tools = 128;

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

/// Whether the assistant's turn begins within a thought.
bool begins_thinking(const ToolFormat& format, const Named& named, const std::string& variables) {
  if (format.think_end.empty()) return false;
  std::string prompt;
  try {
    prompt =
        named.served->render(Json::array({Json{{"role", "user"}, {"content", "probe"}}}), nullptr, true, variables);
  } catch (const plait_api::Failure& failure) {
    if (!is_about_input(failure)) throw;
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

ArgumentTypes types_of_function(const OrderedJson& function) {
  const auto parameters = function.find("parameters");
  return parameters == function.end() ? ArgumentTypes() : argument_types(*parameters);
}

/// Some of the tools, of which the model may call, or has to. The others stay in the prompt, which the cache has.
void read_allowed(const Fields& choice, Tools& out) {
  const Fields allowed(choice.required("allowed_tools"), choice.path("allowed_tools"));
  const std::string mode = allowed.required_text("mode");
  if (mode != "auto" && mode != "required")
    reject(allowed.path("mode"), "is \"" + mode + "\", expected auto or required");
  const Json& list = allowed.required("tools");
  if (!list.is_array() || list.empty()) reject(allowed.path("tools"), "expected a list of at least one tool");
  std::set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    const Fields one(list[i], allowed.path("tools") + "[" + std::to_string(i) + "]");
    const std::string name = Fields(one.required("function"), one.path("function")).required_text("name");
    if (out.names.count(name) == 0) reject(one.path("function.name"), "\"" + name + "\" is not one of the tools");
    names.insert(name);
  }
  std::erase_if(out.names, [&](const auto& one) { return names.count(one.first) == 0; });
  out.required = mode == "required";
}

void read_choice(const Fields& body, Tools& out) {
  const Json* choice = body.find("tool_choice");
  if (!choice) return;
  if (choice->is_string()) {
    const auto& word = choice->get_ref<const std::string&>();
    if (word == "none") out.names.clear();
    else if (word == "required") out.required = true;
    else if (word != "auto")
      reject("tool_choice", "is \"" + word + "\", expected none, auto, required, a function, or allowed_tools");
    return;
  }
  const Fields fields(*choice, "tool_choice");
  const std::string type = fields.text("type").value_or("function");
  if (type == "allowed_tools") return read_allowed(fields, out);
  if (type != "function") reject("tool_choice.type", "is \"" + type + "\", expected function or allowed_tools");
  const std::string name = Fields(fields.required("function"), "tool_choice.function").required_text("name");
  if (out.names.count(name) == 0) reject("tool_choice.function.name", "\"" + name + "\" is not one of the tools");
  std::erase_if(out.names, [&](const auto& one) { return one.first != name; });
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
    for (size_t i = 0; i < ordered.size(); ++i) {
      const OrderedJson& function = function_of(ordered[i], "tools[" + std::to_string(i) + "]");
      out.names.emplace(function.at("name").get<std::string>(), types_of_function(function));
    }
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
    for (const std::string& mark : format.marks()) out.special_text |= has_special(mark, tokenizer);
  return out;
}

namespace {

/// Whether a function's arguments are bound: those of required calls are, otherwise those of strict functions.
bool is_bound(const OrderedJson& function, const Tools& tools) {
  const auto strict = function.find("strict");
  return tools.required || (strict != function.end() && strict->is_boolean() && strict->get<bool>());
}

/// What arguments are bound by. A function without parameters has none.
OrderedJson schema_of(const OrderedJson& function, const Tools& tools) {
  const auto parameters = function.find("parameters");
  const bool given = parameters != function.end() && parameters->is_object();
  OrderedJson schema = given ? *parameters : OrderedJson{{"type", "object"}, {"properties", OrderedJson::object()}};
  if (!is_bound(function, tools)) return {{"type", "object"}};
  if (!schema.contains("type")) schema["type"] = "object";
  const auto properties = schema.find("properties");
  const bool none = properties != schema.end() && properties->is_object() && properties->empty();
  if (none && !schema.contains("additionalProperties") && !schema.contains("patternProperties"))
    schema["additionalProperties"] = false;
  return schema;
}

/// Rules of a call from its name on: `call`.
std::string rules_of_calls(const OrderedJson& list, const Tools& tools, const plait_api::Tokenizer& tokenizer) {
  std::string calls, rules;
  for (size_t i = 0; i < list.size(); ++i) {
    const OrderedJson& function = list[i].at("function");
    const auto name = function.at("name").get<std::string>();
    if (tools.names.count(name) == 0) continue;
    OrderedJson schema = schema_of(function, tools);
    if (!schema.contains("x-guidance")) schema["x-guidance"] = {{"whitespace_pattern", json_blanks}};
    const std::string rule = "call_" + std::to_string(i);
    calls += (calls.empty() ? "" : " | ") + rule;
    rules += rule + ": " + lark_text(name) + " " + lark_with_ids(tools.format.between, tokenizer);
    if (!tools.format.tags) {
      rules += "%json " + written(schema) + "\n";
      continue;
    }
    const std::string arguments = rule + "_arguments", path = "tools[" + std::to_string(i) + "].function.parameters";
    rules += arguments + "\n" + tag_rules(arguments, schema, path, tools.format, tokenizer);
  }
  return "call: " + calls + "\n" + rules;
}

/// Text up to a mark's end, where the mark first stands.
struct Until {
  std::string use, rules;
};

/// One terminal: with two, the lexer's longest first one would take the beginning of the mark. `name`: of the terminal.
Until until(const std::string& name, const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  const std::string core = trimmed_mark(mark), any = lark_any;
  // Text has no special tokens, so that one ends it.
  if (has_special(core, tokenizer)) return {name + "? " + lark_of(core, tokenizer), name + ": /(.|\\n)+/\n"};
  const std::string text = lark_text(core);
  return {name + " ", name + ": ( " + any + " " + text + " ) & ~( " + any + " " + text + " /(.|\\n)+/ )\n"};
}

/// The rule `main`: any text, in which the mark that begins a call is followed by calls; "" if none that a grammar can find begins them.
std::string marked_text(const Tools& tools, const plait_api::Tokenizer& tokenizer, const std::string& calls) {
  const ToolFormat& format = tools.format;
  const std::string lead = format.lead(), mark = lark_of(lead, tokenizer);
  const bool special = mark.starts_with("<[");
  if (!special && mark.find("<[") != std::string::npos) return {};
  const std::string rest = format.begin.substr(format.begin.find(lead) + lead.size());
  const std::string after = lark_with_ids(rest, tokenizer) + calls;
  // Text has no special tokens, so that one ends it; any other mark ends it where it first stands.
  const Until before = until(special ? "TEXT" : "LEAD", lead, tokenizer);
  std::string out = "main: ( " + before.use + after + (tools.parallel ? ")*" : ")?") + " TEXT?\n" + before.rules;
  if (!special)
    out += std::string("TEXT: /(.|\\n)+/ & ~( ") + lark_any + " " + lark_text(lead) + " " + lark_any + " )\n";
  return out;
}

/// As above, of calls that are objects at the beginning, or after another: text that does not begin as they do, or calls. A text may begin
/// with neither a brace nor a bracket, then, nor with what joins two calls; nor as a thought, which stands before all else.
std::string unmarked_text(const Tools& tools, const plait_api::Tokenizer& tokenizer, const std::string& calls) {
  const ToolFormat& format = tools.format;
  std::string begins = "\\[{";
  const size_t close = format.next.rfind('}', format.next.rfind('{'));
  const size_t join = close == std::string::npos ? format.next.size() : after_blanks(format.next, close + 1);
  if (join < format.next.size() && std::ispunct(static_cast<unsigned char>(format.next[join])))
    begins += std::string("\\") + format.next[join];
  std::string out = "main: ( BLANKS? " + lark_with_ids(format.begin, tokenizer) + calls +
                    (tools.parallel ? ")*" : ")?") + " OTHER?\nBLANKS: /[ \\n\\r\\t]{1,64}/\n" +
                    "OTHER: /[ \\n\\r\\t]*[^ \\n\\r\\t" + begins + "](.|\\n)*/";
  const std::string think = trimmed_mark(format.think_begin);
  if (!think.empty() && !has_special(think, tokenizer))
    out += " & ~( /[ \\n\\r\\t]*/ " + lark_text(think) + " " + lark_any + " )";
  return out + "\n";
}

/// Any text with calls that are calls, after a thought or without one; "" if that cannot be told.
std::string start_of_free_text(const Tools& tools, const plait_api::Tokenizer& tokenizer, const std::string& calls) {
  const ToolFormat& format = tools.format;
  const bool marked = !format.lead().empty();
  const std::string main = marked ? marked_text(tools, tokenizer, calls) : unmarked_text(tools, tokenizer, calls);
  if (main.empty()) return main;
  const std::string begin = trimmed_mark(format.think_begin), end = trimmed_mark(format.think_end), any = lark_any;
  const Until thought = until("THOUGHT", end, tokenizer);
  if (tools.thinking) {  // it may not come to an end
    std::string start = "start: ( " + thought.use + "main | UNENDED )?\nUNENDED: /(.|\\n)+/";
    if (!has_special(end, tokenizer)) start += " & ~( " + any + " " + lark_text(end) + " " + any + " )";
    return start + "\n" + thought.rules + main;
  }
  // Between marks a thought is a part of the text, if it is made of text.
  if (begin.empty() || end.empty() || (marked && !has_special(begin, tokenizer))) return "start: main\n" + main;
  return "start: ( BEFORE? " + lark_of(begin, tokenizer) + thought.use + ")? main\nBEFORE: /[ \\n\\r\\t]{1,64}/\n" +
         thought.rules + main;
}

/// The rule `answer`: text that the structure bounds. Calls that are bare objects are other values of the same JSON, since a lexer
/// could not tell where they part.
std::string rules_of_answer(const Structure& structure, const OrderedJson& list, const Tools& tools) {
  const auto json = [&](OrderedJson schema) {
    if (!schema.contains("x-guidance")) schema["x-guidance"] = {{"whitespace_pattern", json_blanks}};
    if (tools.format.lead().empty()) {
      OrderedJson either = OrderedJson::array();
      const OrderedJson guidance = schema["x-guidance"];
      schema.erase("x-guidance");
      OrderedJson definitions;
      for (const char* place : {"$defs", "definitions"})
        if (schema.contains(place)) definitions[place] = schema[place];
      either.push_back(std::move(schema));
      for (const OrderedJson& tool : list) {
        const OrderedJson& function = tool.at("function");
        if (tools.names.count(function.at("name").get<std::string>()) == 0) continue;
        either.push_back({{"type", "object"},
                          {"properties",
                           {{tools.format.name_key(), {{"const", function.at("name")}}},
                            {tools.format.arguments_key(), schema_of(function, tools)}}},
                          {"required", {tools.format.name_key(), tools.format.arguments_key()}},
                          {"additionalProperties", false}});
      }
      schema = {{"anyOf", std::move(either)}, {"x-guidance", guidance}};
      if (!definitions.is_null()) schema.update(definitions);
    }
    return "answer: %json " + written(schema) + "\n";
  };
  if (structure.option == "json_object") return json({{"type", "object"}});
  OrderedJson schema = OrderedJson::parse(structure.value, nullptr, false);
  if (!schema.is_object()) reject(structure.field, "expected a JSON schema");
  return json(std::move(schema));
}

/// Text that the structure bounds, or calls, after a thought or without one.
std::string start_of_bound_text(const Structure& structure, const OrderedJson& list, const Tools& tools,
                                const plait_api::Tokenizer& tokenizer, const std::string& calls) {
  const ToolFormat& format = tools.format;
  std::string out = "main: answer";
  if (!format.lead().empty()) out += " | " + lark_with_ids(format.begin, tokenizer) + calls;
  out += "\n" + rules_of_answer(structure, list, tools);
  if (!tools.thinking) return "start: main\n" + out;
  const Until thought = until("THOUGHT", format.think_end, tokenizer);
  return "start: " + thought.use + "AFTER? main\nAFTER: /[ \\n\\r\\t]{1,64}/\n" + thought.rules + out;
}

}  // namespace

Structure structure_of_calls(std::string_view text, const Tools& tools, const Named& named, Structure structure) {
  if (tools.names.empty()) return structure;
  // OpenAI's field bounds the text, and no calls: with required ones there is no text. vLLM's bound all that is written.
  const bool of_text = structure.field.starts_with("response_format");
  const bool of_all = !structure.field.empty() && !of_text;
  if (of_all && tools.required) reject(structure.field, "bounds the answer, as tool_choice does: give one of them");
  if (of_all || (!tools.required && !tools.strict && !of_text)) return structure;
  const plait_api::Tokenizer tokenizer = named.served->tokenizer();
  const auto list = OrderedJson::parse(text.begin(), text.end()).at("tools");
  const ToolFormat& format = tools.format;
  std::string calls = "call ";
  if (format.many() && tools.parallel) calls += "( " + lark_with_ids(format.next, tokenizer) + "call )* ";
  calls += lark_with_ids(format.end, tokenizer);
  std::string start;
  if (!tools.required && of_text) {
    start = start_of_bound_text(structure, list, tools, tokenizer, calls);
    const bool rules = !tools.format.lead().empty();
    return {"grammar", start + (rules ? rules_of_calls(list, tools, tokenizer) : ""), structure.field};
  }
  if (!tools.required) {
    start = start_of_free_text(tools, tokenizer, calls);
    if (start.empty()) return structure;
  } else if (tools.thinking) {
    const Until thought = until("THOUGHT", format.think_end, tokenizer);
    const std::string after = format.think_end.substr(format.think_end.find_last_not_of(" \n") + 1);
    start = "start: " + thought.use + lark_of(after, tokenizer) + lark_with_ids(format.begin, tokenizer) + calls +
            "\n" + thought.rules;
  } else {
    start = "start: " + lark_with_ids(format.begin, tokenizer) + calls + "\n";
  }
  return {"grammar", start + rules_of_calls(list, tools, tokenizer), "tools"};
}

}  // namespace plait::http
