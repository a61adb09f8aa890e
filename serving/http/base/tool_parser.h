#pragma once
// Splits generated text into thoughts, text and tool calls as it comes.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/http/base/tag_reader.h"
#include "serving/http/base/tool_format.h"

namespace plait::http {

/// A part of an answer.
struct AnswerPart {
  enum class Kind {
    thought,
    text,
    call,       ///< a call begins: `text` is its name
    arguments,  ///< more of the last call's arguments
  } kind;
  std::string text;
};

/// The tools that may be called, by name.
using Callable = std::map<std::string, ArgumentTypes>;

/// Not thread-safe. Held text is bounded by the longest mark, by a call's text before its name, and by the longest argument that TagReader
/// holds.
class ToolParser {
 public:
  /// `tools`: if empty, calls are text. `thinking`: the prompt ends within a thought.
  ToolParser(ToolFormat format, Callable tools, bool thinking);

  std::vector<AnswerPart> push(std::string_view text);
  /// The end of the text: what was held, as text if it is no call.
  std::vector<AnswerPart> finish();
  int calls() const { return calls_; }
  /// Whether the text so far ends within a thought.
  bool thinking() const { return state_ == State::thought; }

 private:
  enum class State { thought, text, call, arguments, after };
  bool step(std::vector<AnswerPart>& out, bool last);
  bool in_text(std::vector<AnswerPart>& out, bool last);
  bool in_object(std::vector<AnswerPart>& out, bool last);
  /// A whole call, whose object is not of the usual form: arguments before the name, none, or as a text.
  bool whole_object(size_t begin, std::vector<AnswerPart>& out);
  bool in_marked(std::vector<AnswerPart>& out, bool last);
  bool in_tagged(std::vector<AnswerPart>& out, bool last);
  bool in_arguments(std::vector<AnswerPart>& out, bool last);
  bool in_after(bool last);
  void emit(std::vector<AnswerPart>& out, AnswerPart::Kind kind, std::string text);
  void begin_call(std::vector<AnswerPart>& out, std::string name);
  /// What seemed to be a call is text.
  void no_call(std::vector<AnswerPart>& out);

  const ToolFormat format_;
  const Callable tools_;
  const std::string lead_;
  std::string join_, end_;  ///< between the arguments' object and the next call, and after the last
  State state_ = State::text;
  std::string held_, before_;  ///< before_: blanks before a call's mark
  bool object_;  ///< a call is a JSON object with its name
  std::optional<TagReader> tags_;
  bool some_text_ = false;  ///< text that is not blank was seen
  bool thought_text_ = false;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
  bool closed_ = false;  ///< the call's object, behind its arguments
  int calls_ = 0;
};

}  // namespace plait::http
