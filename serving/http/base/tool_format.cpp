#include "serving/http/base/tool_format.h"

#include <algorithm>
#include <utility>

#include "bindings/c/plait.hpp"
#include "serving/http/base/failure.h"

namespace plait::http {
namespace {

// Names that no template has.
constexpr const char *name_mark = "PLAITNAME", *other_name = "PLAITOTHER", *key_mark = "PLAITKEY",
                     *value_mark = "PLAITVALUE", *id_mark = "PLAITID00", *text_mark = "PLAITTEXT",
                     *thought_mark = "PLAITTHOUGHT";

// Arguments of three types, in the order that a sorted object has, too. A quote tells a text from its JSON.
constexpr const char *text_key = "PLAITKEYA", *number_key = "PLAITKEYB", *object_key = "PLAITKEYC",
                     *quoted_text = "PLAIT\"VALUE", *quoted_json = "\"PLAIT\\\"VALUE\"", *number_written = "271828";

Json one_argument() { return Json::object({{key_mark, value_mark}}); }
Json three_arguments() {
  return Json::object({{text_key, quoted_text},
                       {number_key, 271828},
                       {object_key, Json::object({{key_mark, Json::array({true, value_mark})}})}});
}

Json call_of(const char* name, Json arguments) {
  return {{"id", id_mark}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

Json tool_of(const char* name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", "a probe"},
            {"parameters",
             {{"type", "object"}, {"properties", {{key_mark, {{"type", "string"}}}}}, {"required", {key_mark}}}}}}};
}

Json user() { return {{"role", "user"}, {"content", "probe"}}; }

size_t common_prefix(const std::string& a, const std::string& b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin())
          .first -
      a.begin());
}

size_t common_suffix(const std::string& a, const std::string& b) {
  size_t out = 0;
  while (out < std::min(a.size(), b.size()) && a[a.size() - 1 - out] == b[b.size() - 1 - out]) ++out;
  return out;
}

/// "": the template refuses.
std::string rendered(const Render& render, const Json& messages, const Json& tools, bool generation = false) {
  try {
    return render(messages, tools, generation);
  } catch (const plait_api::Failure& failure) {
    if (!is_about_input(failure)) throw;  // a probe without an answer must not become the model's format
    return {};
  }
}

/// What an assistant's message is written as, told from one with another text. `whole`: with what both begin with, such as an empty
/// thought.
std::string written(const Render& render, const Json& message, const Json& tools, bool whole = false) {
  const Json plain = {{"role", "assistant"}, {"content", text_mark}};
  const std::string with = rendered(render, {user(), message}, tools),
                    without = rendered(render, {user(), plain}, tools);
  if (with.empty() || without.empty()) return {};
  size_t begin = common_prefix(with, without);
  const std::string generation = rendered(render, Json::array({user()}), tools, true);
  if (whole && !generation.empty() && with.starts_with(generation)) begin = generation.size();
  // A mark that differs may begin as the other does.
  if (const size_t open = with.rfind("<|", begin); open != std::string::npos && with.find("|>", open) >= begin)
    begin = open;
  while (begin > 0 && (with[begin - 1] == '<' || with[begin - 1] == '|' || with[begin - 1] == '[')) --begin;
  const size_t same = std::min(common_suffix(with, without), with.size() - std::min(begin, with.size()));
  std::string out = with.substr(begin, with.size() - begin - same);
  // A token of the turn's end that differs for calls: "<|eom_id|>" after a call, "<|eot_id|>" after a text.
  const size_t open = out.rfind("<|");
  if (open != std::string::npos && out.find("|>", open) == std::string::npos) out.resize(open);
  return out;
}

/// The JSON object around the marked argument: its first byte and one past its last; false if it is written otherwise.
bool find_arguments(const std::string& text, size_t from, size_t& begin, size_t& end) {
  const size_t key = text.find(std::string("\"") + key_mark + "\"", from), value = text.find(value_mark, from);
  if (key == std::string::npos || value == std::string::npos || value < key) return false;
  begin = text.rfind('{', key);
  end = text.find('}', value);
  if (begin == std::string::npos || begin < from || end == std::string::npos) return false;
  ++end;
  const Json object = Json::parse(text.substr(begin, end - begin), nullptr, false);
  return object.is_object() && object.size() == 1 && object.contains(key_mark);
}

/// What a turn with calls is written as: `one` with one call, `two` with another after it. Content that is missing is "" or null, whichever
/// the template takes.
struct WrittenCalls {
  std::string one, two;
};

WrittenCalls written_calls(const Render& render, const Json& arguments) {
  const Json tools = {tool_of(name_mark), tool_of(other_name)};
  const auto message = [](Json calls, Json content) {
    return Json{{"role", "assistant"}, {"content", std::move(content)}, {"tool_calls", std::move(calls)}};
  };
  WrittenCalls out;
  for (const Json& content : {Json(""), Json()}) {
    out.one = written(render, message({call_of(name_mark, arguments)}, content), tools);
    if (out.one.find(name_mark) != std::string::npos) break;
  }
  out.two = written(render, message({call_of(name_mark, arguments), call_of(other_name, arguments)}, ""), tools);
  return out;
}

/// Calls whose arguments are a JSON object.
bool read_object_calls(const Render& render, ToolFormat& out) {
  const auto [one, two] = written_calls(render, one_argument());
  const size_t name = one.find(name_mark);
  size_t begin = 0, end = 0;
  if (name == std::string::npos || !find_arguments(one, name, begin, end)) return false;
  const std::string name_text = name_mark;
  out.begin = one.substr(0, name);
  out.between = one.substr(name + name_text.size(), begin - name - name_text.size());
  out.end = one.substr(end);
  const size_t other = two.find(other_name);
  size_t first_end = 0;
  if (two.starts_with(one.substr(0, end)) && other != std::string::npos &&
      find_arguments(two, name, begin, first_end) && first_end <= other)
    out.next = two.substr(first_end, other - first_end);
  return true;
}

/// Texts in the order in which they stand in another, and what stands between them.
class Places {
 public:
  Places(const std::string& text, size_t from) : text_(text), at_(from) {}
  /// What comes before the next `what`, which is passed; nullopt if it does not come.
  std::optional<std::string> before(const std::string& what) {
    const size_t found = text_.find(what, at_);
    if (found == std::string::npos) return std::nullopt;
    const size_t from = std::exchange(at_, found + what.size());
    return text_.substr(from, found - from);
  }
  size_t at() const { return at_; }

 private:
  const std::string& text_;
  size_t at_;
};

bool blank_mark(const std::string& mark) { return mark.find_first_not_of(" \n") == std::string::npos; }

/// Calls whose arguments have tags.
bool read_tagged_calls(const Render& render, ToolFormat& out) {
  const auto [one, two] = written_calls(render, three_arguments());
  Places places(one, 0);
  const auto begin = places.before(name_mark), first = places.before(text_key);
  if (!begin || !first) return false;
  ArgumentTags tags;
  const bool raw = one.find(quoted_text, places.at()) != std::string::npos;
  const auto before_text = places.before(raw ? quoted_text : quoted_json), join = places.before(number_key),
             before_number = places.before(number_written), other_join = places.before(object_key),
             before_object = places.before("{");
  if (!before_text || !join || !before_number || join != other_join || before_number != before_object) return false;
  const size_t object = places.at() - 1, end = one.find('}', object);
  if (end == std::string::npos) return false;
  const Json read = Json::parse(one.substr(object, end + 1 - object), nullptr, false);
  if (read.is_discarded() || read != three_arguments().at(object_key)) return false;
  // Between two arguments stands what closes one and what opens the next; before the first, what ends the name and opens it.
  const size_t same = common_suffix(*first, *join);
  tags.open = join->substr(join->size() - same);
  size_t start = tags.open.find_first_of("<[");
  if (start == std::string::npos) start = tags.open.find_first_not_of(" \n");
  tags.open.erase(0, start);
  tags.close = join->substr(0, join->size() - tags.open.size());
  tags.before_text = *before_text;
  tags.before_json = *before_number;
  tags.raw_text = raw;
  const std::string rest = one.substr(end + 1);
  if (!rest.starts_with(tags.close)) return false;
  for (const std::string& mark : {*begin, tags.open, tags.close, tags.before_text, tags.before_json})
    if (blank_mark(mark) || mark.find(id_mark) != std::string::npos) return false;
  out.begin = *begin;
  out.between = first->substr(0, first->size() - tags.open.size());
  out.end = rest.substr(tags.close.size());
  const size_t after = end + 1 + tags.close.size(), other = two.find(other_name);
  if (two.starts_with(one.substr(0, after)) && other != std::string::npos)
    out.next = two.substr(after, other - after);
  out.tags = std::move(tags);
  return true;
}

void read_thought(const Render& render, ToolFormat& out) {
  for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
    const Json message = {{"role", "assistant"}, {"content", "PLAIT2TEXT"}, {field, thought_mark}};
    const std::string text = written(render, message, nullptr, true);
    const size_t thought = text.find(thought_mark);
    if (thought == std::string::npos) continue;
    const size_t after = thought + std::string(thought_mark).size(), answer = text.find("PLAIT2", after);
    if (answer == std::string::npos) continue;
    out.think_begin = text.substr(0, thought);
    out.think_end = text.substr(after, answer - after);
    if (!out.think_end.empty()) return;
  }
  // A template that drops what is before the end of a thought knows it, though it never writes one.
  const auto ending = [&](const std::string& content) {
    return rendered(render, {user(), Json{{"role", "assistant"}, {"content", content}}, user()}, nullptr);
  };
  const std::string kept = ending(std::string("<think>") + thought_mark + "</think>" + text_mark);
  const bool drops = kept.find(text_mark) != std::string::npos && kept.find(thought_mark) == std::string::npos;
  out.think_begin = drops ? "<think>" : "";
  out.think_end = drops ? "</think>" : "";
}

}  // namespace

/// The JSON string that ends before `end`, but for blanks and a colon; "" if there is none.
static std::string key_before(const std::string& text, size_t end) {
  const size_t colon = text.find_last_not_of(" \n", end == 0 ? std::string::npos : end - 1);
  if (end == 0 || colon == std::string::npos || text[colon] != ':') return {};
  const size_t close = text.find_last_not_of(" \n", colon == 0 ? std::string::npos : colon - 1);
  if (colon == 0 || close == std::string::npos || close == 0 || text[close] != '"') return {};
  const size_t open = text.rfind('"', close - 1);
  return open == std::string::npos ? std::string() : text.substr(open + 1, close - open - 1);
}

std::string ToolFormat::name_key() const {
  if (begin.find('{') == std::string::npos || begin.back() != '"') return {};
  return key_before(begin, begin.size() - 1);
}

std::string ToolFormat::arguments_key() const { return key_before(between, between.size()); }

std::string ToolFormat::lead() const {
  std::string out = begin.substr(0, begin.find(id_mark));
  if (is_object()) {
    out.resize(std::min(out.size(), begin.find('{')));
    const size_t list = out.rfind('[');
    if (list != std::string::npos && out.find_first_not_of(" \n\t", list + 1) == std::string::npos) out.resize(list);
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
  const size_t first = out.find_first_not_of(" \n");
  return first == std::string::npos ? std::string() : out.substr(first);
}

std::vector<std::string> ToolFormat::marks() const {
  std::vector<std::string> out = {begin, between, next, end};
  if (tags) out.insert(out.end(), {tags->open, tags->before_text, tags->before_json, tags->close});
  std::erase(out, "");
  return out;
}

ToolFormat probe_tool_format(const Render& render) {
  ToolFormat out;
  // One that refuses any conversation, after a long time perhaps, is asked nothing else.
  const Json plain = {{"role", "assistant"}, {"content", text_mark}};
  const bool works = !rendered(render, Json::array({user()}), nullptr, true).empty() ||
                     !rendered(render, Json::array({user(), plain}), nullptr).empty();
  out.of_template = works && (read_object_calls(render, out) || read_tagged_calls(render, out));
  if (!out.of_template) {
    out.begin = R"({"name": ")";
    out.between = R"(", "arguments": )";
    out.end = "}";
    out.next.clear();
  }
  if (!works) return out;
  const Json tools = Json::array({tool_of(name_mark)});
  out.lists_tools = rendered(render, Json::array({user()}), tools, true).find(name_mark) != std::string::npos;
  out.system = !rendered(render, {Json{{"role", "system"}, {"content", text_mark}}, user()}, nullptr).empty();
  read_thought(render, out);
  return out;
}

}  // namespace plait::http
