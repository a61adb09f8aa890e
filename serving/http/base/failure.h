#pragma once
// What a client did wrong, or the server cannot do: an HTTP status, and the error object that OpenAI's clients read.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

#include "bindings/c/plait.hpp"

namespace plait::http {

class HttpError : public std::runtime_error {
 public:
  /// `param`: path of the field, "": none; `code`: OpenAI's word for it, "": none.
  HttpError(int32_t status, const std::string& message, std::string code = {}, std::string param = {})
      : std::runtime_error(message), status(status), code(std::move(code)), param(std::move(param)) {}

  HttpError&& with_field(const std::string& line) && {
    fields += line;
    return std::move(*this);
  }

  const int32_t status;
  const std::string code, param;
  std::string fields;          ///< lines "name: value\n" of the head
  int64_t retry_after_ms = 0;  ///< 0: not told
};

/// The field at that path is wrong.
[[noreturn]] void reject(const std::string& param, const std::string& message);

/// 503, to be tried again: the machine lacks memory, threads or descriptors.
HttpError no_memory(const std::string& message = "the machine has no memory left");

/// What the engine's failure is to a client.
HttpError http_error(const plait_api::Failure& failure);

/// Whether it is about what was given, so that what tries may try something else; false for failures of the machine, of time and of
/// cancellation, which are not about it.
bool is_about_input(const plait_api::Failure& failure);

/// {"error": {"message", "type", "param", "code"}}
std::string error_body(const HttpError& error);

}  // namespace plait::http
