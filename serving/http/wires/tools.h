#pragma once
// Tools of a chat: what a body offers, what bounds the answer to calls of them, and how the model writes calls and thoughts.
#include <string>

#include "serving/http/base/tool_parser.h"
#include "serving/http/wires/structure.h"

namespace plait::http {

struct Tools {
  std::string list;       ///< JSON for the chat template; "": none
  Callable names;         ///< that may be called; empty: calls are text
  bool required = false;  ///< the answer is calls, by a grammar
  bool strict = false;  ///< of one that may be called: its calls follow its schema, also where they are not required
  bool parallel = true;
  ToolFormat format;
  bool thinking = false;      ///< the prompt ends within a thought
  bool special_text = false;  ///< marks have special tokens, which the text must contain
};

/// Of `tools`, `tool_choice` and `parallel_tool_calls`; `variables`: of the template. Throws HttpError(400).
Tools tools_of(std::string_view text, const Fields& body, const Named& named, const std::string& variables);

/// The grammar of calls, if they are required; if a function is strict, that of any text with such calls. `text`: the body. Throws
/// HttpError(400) if `structure` bounds the answer too.
Structure structure_of_calls(std::string_view text, const Tools& tools, const Named& named, Structure structure);

}  // namespace plait::http
