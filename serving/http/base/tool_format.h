#pragma once
// How a model writes tool calls and thoughts, found by rendering its own chat template with marked ones.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "serving/http/base/json_fields.h"

namespace plait::http {

/// Arguments that are not one JSON object: for each `open` KEY, a mark, VALUE, `close`. Texts may have another mark before them than
/// other values do.
struct ArgumentTags {
  std::string open, before_text, before_json, close;
  bool raw_text = true;  ///< texts are written as they are; otherwise as JSON, as all other values are
};

/// A call is `begin` NAME `between` ARGUMENTS, more of them with `next` instead of `begin`, and `end`. ARGUMENTS is a JSON object, or
/// `tags` for each of them. For Qwen 2.5: `<tool_call>\n{"name": "`, `", "arguments": `, `}\n</tool_call>\n<tool_call>\n{"name": "`,
/// `}\n</tool_call>`. For MiniMax M2: `<minimax:tool_call>\n<invoke name="`, `">\n`, `</invoke>\n<invoke name="`,
/// `</invoke>\n</minimax:tool_call>`, with the tags `<parameter name="`, `">`, `</parameter>\n`.
struct ToolFormat {
  std::string begin, between, next, end;
  std::optional<ArgumentTags> tags;
  bool of_template = false;  ///< the template writes calls; otherwise they are JSON objects
  bool lists_tools = false;  ///< the template writes what tools there are; otherwise the conversation has to
  /// Before and after a thought; "" if the template knows none.
  std::string think_begin, think_end;

  bool system = false;  ///< it takes a system's message

  /// Whether a call is a JSON object with the name as a value, of `name_key`, next to the arguments, of `arguments_key`.
  bool is_object() const { return !tags && !name_key().empty() && !arguments_key().empty(); }
  std::string name_key() const;
  std::string arguments_key() const;
  /// What tells a call from other text: `begin`, up to the object if it is one. "" if a call is an object at the beginning.
  std::string lead() const;
  bool many() const { return !next.empty(); }
  /// All marks of calls that are not empty.
  std::vector<std::string> marks() const;
};

/// A prompt by the chat template: of a conversation, tools (null: none), with the beginning of the assistant's turn or not. Throws
/// plait_api::Failure.
using Render = std::function<std::string(const Json& messages, const Json& tools, bool generation)>;

/// Never throws because of the template: what it refuses, it does not write.
ToolFormat probe_tool_format(const Render& render);

}  // namespace plait::http
