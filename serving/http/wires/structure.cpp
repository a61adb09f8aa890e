#include "serving/http/wires/structure.h"

#include "serving/http/base/failure.h"

namespace plait::http {
namespace {

/// Fields by which a text is bounded, and the options of the engine that they are.
struct Way {
  const char *field, *option;
  enum class Value { schema, text, list, flag } value;
};
constexpr Way vllm_ways[] = {{"json", "json_schema", Way::Value::schema},
                             {"json_object", "json_object", Way::Value::flag},
                             {"regex", "regex", Way::Value::text},
                             {"grammar", "grammar", Way::Value::text},
                             {"choice", "choices", Way::Value::list}};

class Reader {
 public:
  explicit Reader(std::string_view text) : body_(OrderedJson::parse(text.begin(), text.end())) {}

  Structure read() {
    response_format();
    if (const OrderedJson* outputs = found(body_, "structured_outputs")) {
      if (!outputs->is_object()) reject("structured_outputs", "expected an object");
      for (const Way& way : vllm_ways) take(*outputs, way, way.field, "structured_outputs.");
      check_names(*outputs);
      compact(*outputs);
    }
    for (const Way& way : vllm_ways) take(body_, way, std::string("guided_") + way.field, "");
    return std::move(out_);
  }

 private:
  static const OrderedJson* found(const OrderedJson& object, const std::string& name) {
    const auto at = object.find(name);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }

  static std::string written(const OrderedJson& value) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }

  static void check_names(const OrderedJson& outputs) {
    for (const auto& [name, value] : outputs.items()) {
      bool known = name == "disable_any_whitespace" || name == "disable_fallback" || value.is_null();
      for (const Way& way : vllm_ways) known = known || name == way.field;
      if (!known)
        throw HttpError(400, "structured_outputs." + name + ": is not supported", "unsupported_parameter",
                        "structured_outputs." + name);
    }
  }

  /// JSON without blanks, if it is asked for.
  void compact(const OrderedJson& outputs) {
    const OrderedJson* without = found(outputs, "disable_any_whitespace");
    if (!without) return;
    if (!without->is_boolean()) reject("structured_outputs.disable_any_whitespace", "expected true or false");
    if (!without->get<bool>()) return;
    if (out_.option == "json_object") out_ = {"json_schema", R"({"type": "object"})", out_.field};
    if (out_.option != "json_schema") return;
    OrderedJson schema = OrderedJson::parse(out_.value, nullptr, false);
    if (!schema.is_object()) return;  // told where it is compiled
    schema["x-guidance"] = {{"whitespace_flexible", false}};
    out_.value = written(schema);
  }

  void set(std::string option, std::string value, std::string field) {
    if (!out_.option.empty()) reject(field, "bounds the answer, as " + out_.field + " does: give one of them");
    out_ = {std::move(option), std::move(value), std::move(field)};
  }

  void take(const OrderedJson& object, const Way& way, const std::string& name, const std::string& before) {
    const OrderedJson* value = found(object, name);
    if (!value) return;
    const std::string path = before + name;
    switch (way.value) {
      case Way::Value::schema:
        // Older clients write a schema as a text.
        if (value->is_string()) return set(way.option, value->get<std::string>(), path);
        if (!value->is_object()) reject(path, "expected a JSON schema");
        return set(way.option, written(*value), path);
      case Way::Value::text: {
        if (!value->is_string()) reject(path, "expected a text");
        const auto& text = value->get_ref<const std::string&>();
        if (text.empty() || text.find('\0') != std::string::npos) reject(path, "is empty, or has a NUL");
        return set(way.option, text, path);
      }
      case Way::Value::list:
        if (!value->is_array() || value->empty()) reject(path, "expected a list of texts");
        for (size_t i = 0; i < value->size(); ++i)
          if (!(*value)[i].is_string()) reject(path + "[" + std::to_string(i) + "]", "expected a text");
        return set(way.option, written(*value), path);
      case Way::Value::flag:
        if (!value->is_boolean()) reject(path, "expected true or false");
        if (value->get<bool>()) set(way.option, "true", path);
    }
  }

  void response_format() {
    const OrderedJson* format = found(body_, "response_format");
    if (!format) return;
    if (!format->is_object()) reject("response_format", "expected an object");
    const OrderedJson* type = found(*format, "type");
    if (!type || !type->is_string()) reject("response_format.type", "expected text, json_object or json_schema");
    const auto& name = type->get_ref<const std::string&>();
    if (name == "text") return;
    if (name == "json_object") return set("json_object", "true", "response_format");
    if (name != "json_schema")
      reject("response_format.type", "is \"" + name + "\", expected text, json_object or json_schema");
    const OrderedJson* named = found(*format, "json_schema");
    if (!named || !named->is_object()) reject("response_format.json_schema", "expected an object with a schema");
    const OrderedJson *title = found(*named, "name"), *strict = found(*named, "strict");
    if (title && !title->is_string()) reject("response_format.json_schema.name", "expected a text");
    if (strict && !strict->is_boolean()) reject("response_format.json_schema.strict", "expected true or false");
    const OrderedJson* schema = found(*named, "schema");
    if (!schema || !schema->is_object()) reject("response_format.json_schema.schema", "expected a JSON schema");
    set("json_schema", written(*schema), "response_format.json_schema.schema");
  }

  const OrderedJson body_;
  Structure out_;
};

}  // namespace

Structure structure_of(std::string_view text, const Fields& body) {
  bool any = body.find("response_format") || body.find("structured_outputs");
  for (const Way& way : vllm_ways) any = any || body.find((std::string("guided_") + way.field).c_str());
  return any ? Reader(text).read() : Structure();
}

HttpError structure_error(const plait_api::Failure& failure, const Structure& structure) {
  const HttpError plain = http_error(failure);
  const std::string message = failure.what();
  bool of_grammar = false;
  for (const char* begin : {"the JSON schema", "the regular expression", "the grammar", "the list of choices"})
    of_grammar = of_grammar || message.starts_with(begin);
  if (structure.field.empty() || !of_grammar) return plain;
  std::string param = structure.field;
  const size_t at = message.find(" at "), end = message.find(" cannot be followed");
  if (at != std::string::npos && end != std::string::npos && at < end)
    param += "." + message.substr(at + 4, end - at - 4);
  return {400, param + ": " + plain.what(), "invalid_value", param};
}

}  // namespace plait::http
