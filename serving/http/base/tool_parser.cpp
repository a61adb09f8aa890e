#include "serving/http/base/tool_parser.h"

namespace plait::http {
namespace {

using Kind = AnswerPart::Kind;

constexpr size_t most_before_name = 4096, most_whole_call = 65536;

using OrderedJson = nlohmann::ordered_json;

std::string cat_quoted(const std::string& key) { return "\"" + key + "\""; }

/// The place after the object that begins at `at`; npos if it is not complete.
size_t end_of_object(const std::string& text, size_t at) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string::npos;
}

bool blank(std::string_view text) { return text.find_first_not_of(" \n\r\t") == std::string_view::npos; }

/// A JSON string that begins at `at`: its value and the place after it; nullopt if it is not complete.
std::optional<std::string> string_at(const std::string& text, size_t& at) {
  if (at >= text.size() || text[at] != '"') return std::nullopt;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') ++i;
    else if (text[i] == '"') {
      const Json value = Json::parse(text.substr(at, i + 1 - at), nullptr, false);
      at = i + 1;
      return value.is_string() ? value.get<std::string>() : std::string();
    }
  }
  return std::nullopt;
}

}  // namespace

ToolParser::ToolParser(ToolFormat format, Callable tools, bool thinking)
    : format_(std::move(format)),
      tools_(std::move(tools)),
      lead_(format_.lead()),
      state_(thinking ? State::thought : State::text),
      object_(format_.is_object()) {
  if (format_.tags) tags_.emplace(*format_.tags);
  if (!object_) {
    join_ = trimmed_mark(format_.next);
    end_ = trimmed_mark(format_.end);
    return;
  }
  end_ = trimmed_mark(format_.end.substr(format_.end.rfind('}') + 1));
  const size_t close = format_.next.find('}'), open = format_.next.find('{', close);
  if (close != std::string::npos && open != std::string::npos)
    join_ = trimmed_mark(format_.next.substr(close + 1, open - close - 1));
}

std::vector<AnswerPart> ToolParser::push(std::string_view text) {
  std::vector<AnswerPart> out;
  held_ += text;
  while (step(out, false)) continue;
  return out;
}

std::vector<AnswerPart> ToolParser::finish() {
  std::vector<AnswerPart> out;
  while (step(out, true)) continue;
  const bool of_call = state_ == State::after || state_ == State::arguments;
  if (!held_.empty() && !of_call) emit(out, Kind::text, std::move(held_));
  held_.clear();
  return out;
}

void ToolParser::emit(std::vector<AnswerPart>& out, Kind kind, std::string text) {
  if (text.empty()) return;
  if (!out.empty() && out.back().kind == kind && kind != Kind::call) out.back().text += text;
  else out.push_back({kind, std::move(text)});
}

void ToolParser::begin_call(std::vector<AnswerPart>& out, std::string name) {
  ++calls_;
  before_.clear();
  if (tags_) tags_->begin(tools_.at(name));
  emit(out, Kind::call, std::move(name));
  state_ = State::arguments;
  depth_ = 0;
  in_string_ = escaped_ = closed_ = false;
}

void ToolParser::no_call(std::vector<AnswerPart>& out) {
  some_text_ = true;
  emit(out, Kind::text, before_ + lead_ + held_);
  before_.clear();
  held_.clear();
  state_ = State::text;
}

/// Whether more can be done with what is held.
bool ToolParser::step(std::vector<AnswerPart>& out, bool last) {
  switch (state_) {
    case State::thought: {
      if (!thought_text_) {
        held_.erase(0, after_blanks(held_, 0));
        thought_text_ = !held_.empty();
      }
      const std::string mark = trimmed_mark(format_.think_end);
      const size_t at = held_.find(mark);
      if (at != std::string::npos) {
        const size_t end = held_.find_last_not_of(" \n", at == 0 ? std::string::npos : at - 1);
        emit(out, Kind::thought, at == 0 || end == std::string::npos ? "" : held_.substr(0, end + 1));
        held_.erase(0, at + mark.size());
        state_ = State::text;
        return true;
      }
      size_t keep = last ? 0 : begun(held_, mark);
      // Blanks before the end are not of the thought.
      while (!last && keep < held_.size() && blank(std::string_view(held_).substr(held_.size() - keep - 1, 1)))
        ++keep;
      emit(out, Kind::thought, held_.substr(0, held_.size() - keep));
      held_.erase(0, held_.size() - keep);
      return false;
    }
    case State::text: return in_text(out, last);
    case State::call: return tags_ ? in_tagged(out, last) : object_ ? in_object(out, last) : in_marked(out, last);
    case State::arguments: return in_arguments(out, last);
    case State::after: return in_after(last);
  }
  return false;
}

bool ToolParser::in_text(std::vector<AnswerPart>& out, bool last) {
  const std::string think = trimmed_mark(format_.think_begin);
  if (!some_text_ && calls_ == 0 && !think.empty()) {
    const size_t first = after_blanks(held_, 0);
    const std::string_view rest = std::string_view(held_).substr(first);
    if (rest.starts_with(think)) {
      held_.erase(0, after_blanks(held_, first + think.size()));
      state_ = State::thought;
      return true;
    }
    if (!last && std::string_view(think).starts_with(rest)) return false;  // may become one
  }
  if (!tools_.empty() && lead_.empty()) {
    // A call is an object at the beginning, or after another.
    const size_t first = after_blanks(held_, 0);
    if (first == held_.size() && !last) return false;
    if (!some_text_ && first < held_.size() && (held_[first] == '{' || held_[first] == '[')) {
      held_.erase(0, first);
      state_ = State::call;
      return true;
    }
  }
  if (!tools_.empty() && !lead_.empty()) {
    const size_t at = held_.find(lead_);
    if (at != std::string::npos) {
      std::string before = held_.substr(0, at);
      // Blanks before the mark are of the call, if it is one.
      const size_t end = blank(before) ? 0 : before.find_last_not_of(" \n") + 1;
      before_ = before.substr(end);
      emit(out, Kind::text, before.substr(0, end));
      held_.erase(0, at + lead_.size());
      state_ = State::call;
      return true;
    }
  }
  size_t keep = last || tools_.empty() ? 0 : begun(held_, lead_);
  // Blanks before a call, and before the first text, are not of the answer.
  if (!last && (!tools_.empty() || !some_text_))
    while (keep < held_.size() && blank(std::string_view(held_).substr(held_.size() - keep - 1, 1))) ++keep;
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  if (!some_text_ && !format_.think_end.empty()) text.erase(0, after_blanks(text, 0));
  some_text_ = some_text_ || !blank(text);
  emit(out, Kind::text, std::move(text));
  return false;
}

/// An object {"name": ..., "arguments": ...}, perhaps in a list, whose keys may have other blanks than the template's.
bool ToolParser::in_object(std::vector<AnswerPart>& out, bool last) {
  size_t at = after_blanks(held_, 0);
  while (at < held_.size() && (held_[at] == '[' || held_[at] == ',')) at = after_blanks(held_, at + 1);
  if (at == held_.size()) {
    if (!last) return false;
  } else if (held_[at] == '{') {
    std::string name;
    size_t i = after_blanks(held_, at + 1);
    for (;;) {  // keys until the arguments
      std::optional<std::string> key = string_at(held_, i);
      if (!key) break;
      i = after_blanks(held_, i);
      if (i >= held_.size() || held_[i] != ':') break;
      i = after_blanks(held_, i + 1);
      if (i >= held_.size()) break;
      if (held_[i] == '{' && *key == format_.arguments_key() && tools_.count(name) > 0) {
        held_.erase(0, i);
        begin_call(out, std::move(name));
        return true;
      }
      std::optional<std::string> value = string_at(held_, i);
      if (!value) break;
      if (*key == format_.name_key()) name = *value;
      i = after_blanks(held_, i);
      if (i < held_.size() && held_[i] == ',') i = after_blanks(held_, i + 1);
    }
    if (whole_object(at, out)) return true;
    // An unknown name is text, and so is what has none for long.
    const bool unknown = !name.empty() && tools_.count(name) == 0;
    const bool begun = name.empty() && held_.find(cat_quoted(format_.arguments_key())) != std::string::npos;
    if (!unknown && !last && held_.size() < (begun ? most_whole_call : most_before_name)) return false;
  }
  no_call(out);
  return false;
}

bool ToolParser::whole_object(size_t begin, std::vector<AnswerPart>& out) {
  const size_t end = end_of_object(held_, begin);
  if (end == std::string::npos) return false;
  const OrderedJson call = OrderedJson::parse(held_.substr(begin, end - begin), nullptr, false);
  if (!call.is_object()) return false;
  const auto name = call.find(format_.name_key());
  if (name == call.end() || !name->is_string() || tools_.count(name->get_ref<const std::string&>()) == 0) return false;
  const auto given = call.find(format_.arguments_key());
  OrderedJson arguments = given == call.end() || given->is_null() ? OrderedJson::object() : *given;
  if (arguments.is_string()) arguments = OrderedJson::parse(arguments.get_ref<const std::string&>(), nullptr, false);
  if (!arguments.is_object()) return false;
  held_.erase(0, end);
  begin_call(out, name->get<std::string>());
  emit(out, Kind::arguments, arguments.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  state_ = State::after;
  closed_ = true;
  return true;
}

/// NAME, a mark, ARGUMENTS. A mark may have the call's id in it, and so may what comes before the name.
bool ToolParser::in_marked(std::vector<AnswerPart>& out, bool last) {
  const auto around_id = [](const std::string& mark) {
    constexpr std::string_view id = "PLAITID00";
    const size_t at = mark.find(id);
    if (at == std::string::npos) return std::pair(std::string(), trimmed_mark(mark));
    return std::pair(trimmed_mark(mark.substr(0, at)), trimmed_mark(mark.substr(at + id.size())));
  };
  const auto [before_id, behind_id] = around_id(format_.between);
  const std::string& mark = before_id.empty() ? behind_id : before_id;
  const size_t end = mark.empty() ? held_.find('{', 1) : held_.find(mark);
  const size_t begin = end == std::string::npos ? end : held_.find('{', end + mark.size());
  // A call without arguments: the name, and the end at once.
  if (const size_t close = end_.empty() ? std::string::npos : held_.find(end_); close < begin) {
    std::string name = trimmed_mark(held_.substr(0, std::min(end, close)));
    if (tools_.count(name)) {
      held_.erase(0, close);
      begin_call(out, std::move(name));
      emit(out, Kind::arguments, "{}");
      state_ = State::after;
      return true;
    }
  }
  if (begin == std::string::npos) {
    if (!last && held_.size() < most_before_name) return false;
  } else {
    size_t first = 0;
    if (format_.begin.find("PLAITID00") != std::string::npos) {
      const std::string before_name = around_id(format_.begin).second;
      const size_t at = held_.find(before_name);
      if (at < end) first = at + before_name.size();
    }
    std::string name = trimmed_mark(held_.substr(first, end - first));
    if (tools_.count(name)) {
      held_.erase(0, begin);
      begin_call(out, std::move(name));
      return true;
    }
  }
  no_call(out);
  return false;
}

/// NAME, then a first argument or the end. Only the tools' names are looked for: what ends one may be a blank.
bool ToolParser::in_tagged(std::vector<AnswerPart>& out, bool last) {
  const size_t first = after_blanks(held_, 0);
  bool waits = first == held_.size();
  for (const auto& [name, types] : tools_) {
    const std::string_view rest = std::string_view(held_).substr(first);
    if (!rest.starts_with(name)) {
      waits = waits || name.starts_with(rest);
      continue;
    }
    for (const std::string& next : {format_.tags->open, format_.end}) {
      size_t end = name.size();
      const Match match = match_mark(rest, end, format_.between + next);
      waits = waits || match == Match::part;
      if (match != Match::whole) continue;
      end = name.size();
      match_mark(rest, end, format_.between);
      held_.erase(0, first + end);
      begin_call(out, name);
      return true;
    }
  }
  if (!waits || last) no_call(out);
  return false;
}

bool ToolParser::in_arguments(std::vector<AnswerPart>& out, bool last) {
  if (tags_) {
    std::string text;
    const bool ended = tags_->read(held_, last, text);
    emit(out, Kind::arguments, std::move(text));
    if (ended) state_ = State::after;
    return ended;
  }
  for (size_t i = 0; i < held_.size(); ++i) {
    const char c = held_[i];
    if (in_string_) {
      if (escaped_) escaped_ = false;
      else if (c == '\\') escaped_ = true;
      else if (c == '"') in_string_ = false;
      continue;
    }
    if (c == '"') in_string_ = true;
    else if (c == '{' || c == '[') ++depth_;
    else if ((c == '}' || c == ']') && --depth_ == 0) {
      emit(out, Kind::arguments, held_.substr(0, i + 1));
      held_.erase(0, i + 1);
      depth_ = 0;
      state_ = State::after;
      return true;
    }
  }
  emit(out, Kind::arguments, std::move(held_));
  held_.clear();
  return false;
}

/// The rest of a call: its object's, then what joins the next call, or ends the last.
bool ToolParser::in_after(bool last) {
  if (object_ && !closed_) {
    for (size_t i = 0; i < held_.size(); ++i) {
      const char c = held_[i];
      if (in_string_) {
        if (escaped_) escaped_ = false;
        else if (c == '\\') escaped_ = true;
        else if (c == '"') in_string_ = false;
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && --depth_ < 0) {
        held_.erase(0, i + 1);
        closed_ = true;
        return true;
      }
    }
    held_.clear();
    return false;
  }
  if (blank(held_)) return false;
  size_t join = 0, end = 0;
  const Match joins = join_.empty() ? Match::no : match_mark(held_, join, join_),
              ends = end_.empty() ? Match::no : match_mark(held_, end, end_);
  const bool part = joins == Match::part || ends == Match::part;
  if (joins != Match::whole && !last && part) return false;
  if (joins == Match::whole || ends == Match::whole) held_.erase(0, joins == Match::whole ? join : end);
  else if (last) return false;
  state_ = joins == Match::whole ? State::call : State::text;
  some_text_ = false;
  return true;
}

}  // namespace plait::http
