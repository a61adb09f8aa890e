#pragma once
// Structured output: the fields by which a body bounds an answer's text.
#include <string>
#include <string_view>

#include "serving/http/base/failure.h"
#include "serving/http/wires/common.h"

namespace plait::http {

/// Fields are read in the order in which they are written, which is the order of an answer's properties.
using OrderedJson = nlohmann::ordered_json;

/// What bounds an answer.
struct Structure {
  std::string option, value;  ///< of the request; "": nothing
  std::string field;          ///< path of the field in the body
};

/// Of OpenAI's `response_format`, and of vLLM's `structured_outputs` and `guided_json`, `guided_regex`, `guided_grammar`,
/// `guided_choice`. At most one may be given. `text`: the body, of which `body` are the fields. Throws HttpError(400).
Structure structure_of(std::string_view text, const Fields& body);

/// An error of the engine, with the field in `param` and the place in it if the grammar is the reason.
HttpError structure_error(const plait_api::Failure& failure, const Structure& structure);

/// submit() with the structure set, and its errors as `structure_error`.
template <class Submit>
auto submit_with(const Structure& structure, plait_api::Options& options, Submit submit) {
  if (!structure.option.empty()) options.set(structure.option.c_str(), structure.value);
  try {
    return submit();
  } catch (const plait_api::Failure& failure) {
    throw structure_error(failure, structure);
  }
}

}  // namespace plait::http
