#include "serving/http/wires/tag_rules.h"

#include <set>
#include <vector>

#include "serving/http/base/failure.h"
#include "serving/http/wires/lark.h"

namespace plait::http {
namespace {

constexpr int most_references = 16;
constexpr const char* text_keywords[] = {"minLength", "maxLength", "pattern", "format"};

bool has(const OrderedJson& object, const char* name) { return object.contains(name) && !object[name].is_null(); }

unsigned type_named(const std::string& name) {
  if (name == "string") return text_value;
  if (name == "integer") return number_value;
  if (name == "number") return number_value | fraction_value;
  if (name == "boolean") return boolean_value;
  if (name == "null") return null_value;
  if (name == "object") return object_value;
  if (name == "array") return array_value;
  return 0;
}

unsigned type_of_value(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::string: return text_value;
    case OrderedJson::value_t::boolean: return boolean_value;
    case OrderedJson::value_t::null: return null_value;
    case OrderedJson::value_t::object: return object_value;
    case OrderedJson::value_t::array: return array_value;
    case OrderedJson::value_t::number_float: return fraction_value;
    default: return number_value;
  }
}

/// What a schema's $ref names within `root`; null if it names nothing there.
const OrderedJson* referenced(const OrderedJson& schema, const OrderedJson& root) {
  const OrderedJson& reference = schema["$ref"];
  if (!reference.is_string()) return nullptr;
  const auto& text = reference.get_ref<const std::string&>();
  for (const char* place : {"$defs", "definitions"}) {
    const std::string begin = std::string("#/") + place + "/";
    if (!text.starts_with(begin) || !root.contains(place) || !root[place].is_object()) continue;
    const auto found = root[place].find(text.substr(begin.size()));
    if (found != root[place].end()) return &*found;
  }
  return nullptr;
}

unsigned types_of(const OrderedJson& schema, const OrderedJson& root, int references) {
  if (!schema.is_object() || references > most_references) return any_value;
  unsigned out = any_value;
  if (has(schema, "$ref")) {
    const OrderedJson* other = referenced(schema, root);
    if (other) out &= types_of(*other, root, references + 1);
  }
  if (has(schema, "type")) {
    unsigned named = 0;
    if (schema["type"].is_string()) named = type_named(schema["type"].get<std::string>());
    if (schema["type"].is_array())
      for (const OrderedJson& one : schema["type"])
        if (one.is_string()) named |= type_named(one.get<std::string>());
    out &= named == 0 ? static_cast<unsigned>(any_value) : named;
  }
  const auto any_of = [&](const OrderedJson& list, const auto& types) {
    if (!list.is_array()) return;
    unsigned open = 0;
    for (const OrderedJson& one : list) open |= types(one);
    out &= open;
  };
  if (schema.contains("const")) out &= type_of_value(schema["const"]);
  if (has(schema, "enum")) any_of(schema["enum"], [](const OrderedJson& one) { return type_of_value(one); });
  for (const char* name : {"anyOf", "oneOf"})
    if (has(schema, name))
      any_of(schema[name], [&](const OrderedJson& one) { return types_of(one, root, references + 1); });
  if (has(schema, "allOf") && schema["allOf"].is_array())
    for (const OrderedJson& one : schema["allOf"]) out &= types_of(one, root, references + 1);
  return out;
}

/// Keywords that bound nothing.
bool is_note(const std::string& keyword) {
  static const std::set<std::string> notes = {"title",    "description", "default",    "examples",    "$comment",
                                              "$schema",  "$id",         "$defs",      "definitions", "deprecated",
                                              "readOnly", "writeOnly",   "x-guidance", "strict",      "nullable"};
  return notes.count(keyword) > 0 || keyword.starts_with("x-");
}

/// A regular expression between slashes.
std::string lark_regex(const std::string& text) {
  std::string out = "/";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    else if (text[i] == '/') out += '\\';
    if (text[i] == '\n') out += "\\n";
    else out += text[i];
  }
  return out + "/";
}

/// A schema's pattern, which may match anywhere in a text, as one that matches all of it; "" if its anchors are within it.
std::string whole_pattern(const std::string& pattern) {
  const bool begins = pattern.starts_with("^"), ends = pattern.ends_with("$") && !pattern.ends_with("\\$");
  const std::string inner = pattern.substr(begins, pattern.size() - begins - ends);
  int depth = 0;
  for (size_t i = 0; i < inner.size(); ++i) {
    const char c = inner[i];
    if (c == '\\') {
      ++i;
      continue;
    }
    if (c == '[') {  // a class, in which no byte but the backslash has a meaning that counts here
      for (++i; i < inner.size() && inner[i] != ']'; ++i) i += inner[i] == '\\';
      continue;
    }
    if (c == '^' || c == '$' || (c == '|' && depth == 0 && (begins || ends))) return {};
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  const std::string any = "(?s:.*)";
  return (begins ? "" : any) + "(?:" + inner + ")" + (ends ? "" : any);
}

/// Of formats that a text without quotes has.
std::string format_pattern(const std::string& name) {
  const std::string date =
      "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
      "02-(?:0[1-9]|1[0-9]|2[0-8]))";
  const std::string time =
      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  const std::string label = "[a-zA-Z0-9](?:[a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9])?", host = label + "(?:\\." + label + ")*";
  if (name == "date") return date;
  if (name == "time") return time;
  if (name == "date-time") return date + "T" + time;
  if (name == "uuid") return "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (name == "ipv4") return byte + "(?:\\." + byte + "){3}";
  if (name == "hostname") return host;
  if (name == "email") return "[a-zA-Z0-9_+\\-]+(?:\\.[a-zA-Z0-9_+\\-]+)*@" + host;
  if (name == "uri") return "[a-zA-Z][a-zA-Z0-9+.\\-]*://" + host + "(?::[0-9]{1,5})?(?:[/?#][!-~]*)?";
  return {};
}

/// The other formats of JSON Schema (draft 2020-12, Validation, section 7.3). What is of neither kind is a remark (section 7.2.3).
constexpr std::string_view other_formats[] = {
    "duration",     "idn-email",    "idn-hostname",          "ipv6", "uri-reference", "iri", "iri-reference",
    "uri-template", "json-pointer", "relative-json-pointer", "regex"};

/// The name of a terminal of a rule.
std::string terminal(const std::string& rule, const char* end) {
  std::string out;
  for (const char c : rule) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out + end;
}

/// What one argument may be written as.
struct Written {
  std::vector<std::string> texts;    ///< expressions of terminals
  std::vector<std::string> words;    ///< values that are no texts, as JSON
  std::vector<OrderedJson> schemas;  ///< of other values
  bool any = false;                  ///< whatever it is
  std::string begins;                ///< what no text begins with: a class of bytes
};

class TagRules {
 public:
  TagRules(std::string rule, const OrderedJson& root, std::string path, const ToolFormat& format,
           const plait_api::Tokenizer& tokenizer)
      : rule_(std::move(rule)),
        root_(root),
        path_(std::move(path)),
        tags_(*format.tags),
        tokenizer_(tokenizer),
        core_(trimmed_mark(tags_.close)),
        special_(has_special(core_, tokenizer)) {}

  std::string rules() {
    const OrderedJson* schema = &root_;
    for (int i = 0; has(*schema, "$ref") && i < most_references; ++i) {
      schema = referenced(*schema, root_);
      if (!schema || !schema->is_object()) reject(path_ + ".$ref", "names nothing in $defs");
    }
    std::set<std::string> required;
    for (const auto& [keyword, value] : schema->items()) {
      const bool followed = keyword == "type" || keyword == "properties" || keyword == "required" ||
                            keyword == "additionalProperties" || is_note(keyword);
      if (!followed) refuse(path_, keyword);
    }
    if (has(*schema, "type") && (types_of(*schema, root_, 0) & object_value) == 0)
      reject(path_ + ".type", "expected \"object\"");
    if (has(*schema, "required"))
      for (const OrderedJson& one : (*schema)["required"])
        if (one.is_string()) required.insert(one.get<std::string>());
    const bool listed = has(*schema, "properties");
    if (listed && !(*schema)["properties"].is_object()) reject(path_ + ".properties", "expected an object");
    const OrderedJson properties = listed ? (*schema)["properties"] : OrderedJson::object();
    OrderedJson others =
        has(*schema, "additionalProperties") ? (*schema)["additionalProperties"] : OrderedJson(!listed);
    std::string items;
    int count = 0;
    for (const auto& [name, property] : properties.items()) {
      const std::string own = rule_ + "_" + std::to_string(count++);
      items += own + (required.erase(name) > 0 ? " " : "? ");
      argument(own, key_of(name), property, path_ + ".properties." + name);
    }
    for (const std::string& name : required) {
      const std::string own = rule_ + "_" + std::to_string(count++);
      items += own + " ";
      argument(own, key_of(name), others, path_ + ".required");
    }
    const bool closed = others.is_boolean() && !others.get<bool>();
    if (!closed) {
      std::string known;
      for (const auto& [name, property] : properties.items()) known += (known.empty() ? "" : " | ") + lark_text(name);
      const std::string key = terminal(rule_, "_KEY");
      out_ += key + ": /[a-zA-Z_][a-zA-Z0-9_.\\-]{0,63}/" + (known.empty() ? "" : " & ~( " + known + " )") + "\n";
      argument(rule_ + "_other", key + " ", others, path_ + ".additionalProperties");
      items += rule_ + "_other* ";
    }
    return rule_ + ": " + (items.empty() ? "\"\"" : items) + "\n" + out_;
  }

 private:
  [[noreturn]] static void refuse(const std::string& path, const std::string& keyword) {
    reject(path + "." + keyword,
           "is not followed where a model writes each argument by itself: leave it out, or bind the tool less");
  }

  /// The mark of a property's name.
  std::string key_of(const std::string& name) const {
    for (const std::string& mark : {tags_.before_text, tags_.before_json})
      if (name.empty() || name != trimmed_mark(name) || name.find(trimmed_mark(mark)) != std::string::npos)
        reject(path_ + ".properties." + name, "is no name that the model's form of calls can have");
    return lark_text(name) + " ";
  }

  void argument(const std::string& own, const std::string& key, const OrderedJson& schema, const std::string& path) {
    const std::string open = lark_of(tags_.open, tokenizer_) + key, text = lark_of(tags_.before_text, tokenizer_),
                      json = lark_of(tags_.before_json, tokenizer_), close = lark_of(tags_.close, tokenizer_);
    Written written;
    if (tags_.raw_text) write(schema, path, written, 0);
    else written.schemas.push_back(schema);
    std::string ways;
    const auto add = [&](const std::string& way) { ways += (ways.empty() ? "" : " | ") + way; };
    if (text == json && (written.any || !written.texts.empty())) merge(written);
    std::string texts;
    for (const std::string& one : written.texts) texts += (texts.empty() ? "" : " | ") + one;
    if (written.any) texts = lark_any;
    if (!texts.empty()) add(text + closed_text(own, texts, written.begins));
    for (const std::string& word : written.words) add(json + lark_text(word) + " " + close);
    for (OrderedJson one : written.schemas) add(json + json_rule(std::move(one), path) + close);
    if (ways.empty()) reject(path, "expected a JSON schema that something follows");
    out_ += own + ": " + open + "( " + ways + " )\n";
  }

  /// Texts and other values have the same marks: what is read as another value is not written as a text. Words are read as they are from
  /// among the texts, and the rest has another beginning, by which the lexer tells it.
  void merge(Written& written) const {
    std::vector<OrderedJson> schemas;
    if (!written.any)
      for (OrderedJson& schema : written.schemas) {
        const unsigned types = types_of(schema, root_, 0);
        const auto may_be = [types](unsigned which) { return (types & which) != 0; };
        if (may_be(null_value)) written.words.emplace_back("null");
        if (may_be(boolean_value)) written.words.emplace_back("true");
        if (may_be(boolean_value)) written.words.emplace_back("false");
        if (may_be(number_value | fraction_value)) written.begins += "\\-0-9";
        if (may_be(object_value)) written.begins += "{";
        if (may_be(array_value)) written.begins += "\\[";
        if (may_be(any_value & ~(null_value | boolean_value))) schemas.push_back(std::move(schema));
      }
    for (const std::string& word : written.words) written.texts.push_back(lark_text(word));
    written.words.clear();
    written.schemas = std::move(schemas);
  }

  /// A value and the mark that closes it, which is the first one. One terminal: the lexer takes the longest one, so that the value would
  /// take the beginning of the mark.
  std::string closed_text(const std::string& own, const std::string& texts, const std::string& begins) {
    const std::string name = terminal(own, "_TEXT");
    const size_t core = tags_.close.find(core_);
    const std::string before = tags_.close.substr(0, core), after = tags_.close.substr(core + core_.size());
    const std::string mark = before + (special_ ? "" : core_), any = lark_any;
    out_ += name + ": ( " + texts + " )" + (mark.empty() ? "" : " " + lark_text(mark)) + " & ~( " + any + " " +
            lark_text(core_) + (special_ ? " " + any : " /(.|\\n)+/") + " )";
    if (!begins.empty()) out_ += " & ~( /[ \\n\\r\\t]*[" + begins + "](.|\\n)*/ )";
    out_ += "\n";
    return name + " " + lark_of((special_ ? core_ : "") + after, tokenizer_);
  }

  std::string json_rule(OrderedJson schema, const std::string& path) const {
    if (schema.is_boolean())
      schema = schema.get<bool>() ? OrderedJson::object() : OrderedJson{{"enum", OrderedJson::array()}};
    check_references(schema, path);
    for (const char* place : {"$defs", "definitions"})
      if (has(root_, place)) schema[place] = root_[place];
    if (!schema.contains("x-guidance"))
      schema["x-guidance"] = {{"whitespace_pattern", json_blanks}};
    return "%json " + schema.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + " ";
  }

  /// References are followed from the argument's schema on, which has the definitions, and nothing else, of the whole.
  static void check_references(const OrderedJson& schema, const std::string& path) {
    if (schema.is_object() && has(schema, "$ref") && schema["$ref"].is_string()) {
      const auto& text = schema["$ref"].get_ref<const std::string&>();
      if (!text.starts_with("#/$defs/") && !text.starts_with("#/definitions/"))
        reject(path + ".$ref", "is \"" + text + "\", expected one of $defs");
    }
    if (schema.is_structured())
      for (const auto& [name, part] : schema.items()) check_references(part, path + "." + name);
  }

  void write(const OrderedJson& schema, const std::string& path, Written& out, int references) {
    if (references > most_references) reject(path, "refers to itself");
    if (schema.is_boolean() ? schema.get<bool>() : schema.is_object() && bounds_nothing(schema)) {
      out.any = true;
      out.schemas.push_back(OrderedJson::object());
      return;
    }
    if (!schema.is_object()) reject(path, "expected a JSON schema that something follows");
    const unsigned types = types_of(schema, root_, 0);
    if ((types & text_value) == 0) return out.schemas.push_back(schema);
    if (schema.contains("const"))
      return write_values(OrderedJson::array({schema["const"]}), types, path, schema, out);
    if (has(schema, "enum")) return write_values(schema["enum"], types, path, schema, out);
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!has(schema, name) || !schema[name].is_array()) continue;
      only(schema, {name}, path);
      for (size_t i = 0; i < schema[name].size(); ++i)
        write(schema[name][i], path + "." + name + "[" + std::to_string(i) + "]", out, references + 1);
      return;
    }
    if (has(schema, "allOf") && schema["allOf"].is_array() && schema["allOf"].size() == 1) {
      only(schema, {"allOf"}, path);
      return write(schema["allOf"][0], path + ".allOf[0]", out, references + 1);
    }
    if (has(schema, "$ref")) {
      only(schema, {"$ref"}, path);
      const OrderedJson* other = referenced(schema, root_);
      if (!other) reject(path + ".$ref", "names nothing in $defs");
      return write(*other, path, out, references + 1);
    }
    if (!has(schema, "type")) return write_typed(schema, implied_type(schema), path, out);
    const OrderedJson& type = schema["type"];
    for (const OrderedJson& one : type.is_array() ? type : OrderedJson::array({type})) {
      if (!one.is_string() || type_named(one.get<std::string>()) == 0) reject(path + ".type", "is no type of JSON");
      write_typed(schema, one.get<std::string>(), path, out);
    }
  }

  void write_typed(const OrderedJson& schema, const std::string& type, const std::string& path, Written& out) const {
    if (type.empty()) reject(path + ".type", "is missing");
    if (type == "string") return out.texts.push_back(text_of(schema, path));
    OrderedJson own = schema;
    own["type"] = type;
    for (const char* name : text_keywords) own.erase(name);
    out.schemas.push_back(std::move(own));
  }

  /// The one that the keywords of a schema without a type are of.
  static std::string implied_type(const OrderedJson& schema) {
    for (const char* name : text_keywords)
      if (has(schema, name)) return "string";
    if (has(schema, "properties") || has(schema, "additionalProperties") || has(schema, "required")) return "object";
    return has(schema, "items") || has(schema, "prefixItems") ? "array" : "";
  }

  static bool bounds_nothing(const OrderedJson& schema) {
    for (const auto& [keyword, value] : schema.items())
      if (!is_note(keyword)) return false;
    return true;
  }

  static void only(const OrderedJson& schema, const std::set<std::string>& keywords, const std::string& path) {
    for (const auto& [keyword, value] : schema.items())
      if (keywords.count(keyword) == 0 && keyword != "type" && !is_note(keyword)) refuse(path, keyword);
  }

  void write_values(const OrderedJson& values, unsigned types, const std::string& path, const OrderedJson& schema,
                    Written& out) const {
    only(schema, {"const", "enum"}, path);
    if (!values.is_array()) reject(path + ".enum", "expected a list");
    for (const OrderedJson& one : values) {
      if ((type_of_value(one) & types) == 0) continue;
      // A text that reads as another value which is allowed is never read as a text.
      if (one.is_string() && tags_.before_text == tags_.before_json &&
          (type_read(one.get<std::string>()) & types & ~static_cast<unsigned>(text_value)) != 0)
        continue;
      if (one.is_string()) out.texts.push_back(lark_text(one.get<std::string>()));
      else out.words.push_back(one.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    }
  }

  /// The texts of a schema.
  std::string text_of(const OrderedJson& schema, const std::string& path) const {
    if (types_of(schema, root_, 0) == text_value) only(schema, {"minLength", "maxLength", "pattern", "format"}, path);
    const auto length = [&](const char* name, int64_t other) {
      if (!has(schema, name)) return other;
      if (!schema[name].is_number_integer() || schema[name] < 0 || schema[name] > 1000000)
        reject(path + "." + name, "expected an integer from 0 to 1000000");
      return schema[name].get<int64_t>();
    };
    const int64_t least = length("minLength", 0), most = length("maxLength", -1);
    if (most >= 0 && most < least) reject(path + ".maxLength", "is less than minLength");
    std::string out;
    if (least > 0 || most >= 0)
      out = most == 0 ? "\"\""
                      : "/(.|\\n){" + std::to_string(least) + "," + (most < 0 ? "" : std::to_string(most)) + "}/";
    const auto add = [&](const std::string& expression) {
      out += (out.empty() ? "" : " & ") + lark_regex(expression);
    };
    if (has(schema, "pattern")) {
      if (!schema["pattern"].is_string()) reject(path + ".pattern", "expected a text");
      const std::string whole = whole_pattern(schema["pattern"].get<std::string>());
      if (whole.empty())
        reject(path + ".pattern", "has anchors or alternatives that are not followed here: put it in parentheses");
      add(whole);
    }
    if (has(schema, "format")) {
      if (!schema["format"].is_string()) refuse(path, "format");
      const auto name = schema["format"].get<std::string>();
      const std::string pattern = format_pattern(name);
      if (!pattern.empty()) add(pattern);
      else if (std::ranges::find(other_formats, name) != std::end(other_formats)) refuse(path, "format");
    }
    return out.empty() ? lark_any : "( " + out + " )";
  }

  const std::string rule_;
  const OrderedJson& root_;
  const std::string path_;
  const ArgumentTags& tags_;
  const plait_api::Tokenizer& tokenizer_;
  const std::string core_;  ///< of the mark that closes a value
  const bool special_;      ///< it has a special token, which no text has
  std::string out_;
};

}  // namespace

ArgumentTypes argument_types(const OrderedJson& parameters) {
  ArgumentTypes out;
  if (!parameters.is_object()) return out;
  const OrderedJson* schema = &parameters;
  for (int i = 0; has(*schema, "$ref") && i < most_references; ++i) {
    const OrderedJson* other = referenced(*schema, parameters);
    if (!other || !other->is_object()) break;
    schema = other;
  }
  if (has(*schema, "additionalProperties")) out[""] = types_of((*schema)["additionalProperties"], parameters, 0);
  if (!has(*schema, "properties") || !(*schema)["properties"].is_object()) return out;
  for (const auto& [name, property] : (*schema)["properties"].items()) out[name] = types_of(property, parameters, 0);
  return out;
}

std::string tag_rules(const std::string& rule, const OrderedJson& parameters, const std::string& path,
                      const ToolFormat& format, const plait_api::Tokenizer& tokenizer) {
  return TagRules(rule, parameters, path, format, tokenizer).rules();
}

}  // namespace plait::http
