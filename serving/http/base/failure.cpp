#include "serving/http/base/failure.h"

#include <nlohmann/json.hpp>

namespace plait::http {
namespace {

/// OpenAI's type of a status: clients make their exception classes of the status, and show this.
const char* type_of(int32_t status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

void reject(const std::string& param, const std::string& message) {
  throw HttpError(400, (param.empty() ? "the body" : param) + ": " + message, "invalid_value", param);
}

HttpError no_memory(const std::string& message) {
  HttpError out(503, message, "out_of_memory");
  out.retry_after_ms = 1000;
  return out;
}

HttpError http_error(const plait_api::Failure& failure) {
  std::string message = failure.what();
  if (!failure.hint().empty()) message += " (" + failure.hint() + ")";
  const bool long_prompt = message.find("the context") != std::string::npos ||
                           message.find("the cache of") != std::string::npos;
  switch (failure.status()) {
    case PLAIT_INVALID_ARGUMENT:
    case PLAIT_UNSUPPORTED: return {400, message, long_prompt ? "context_length_exceeded" : "invalid_value"};
    case PLAIT_NOT_FOUND: return {404, message, "not_found"};
    case PLAIT_OUT_OF_MEMORY:
      // A budget of one call, which its template, schema or text exceeds; otherwise the machine's.
      if (message.find("takes more than") != std::string::npos) return {400, message, "invalid_value"};
      return no_memory(message);
    case PLAIT_OVERLOADED: {
      HttpError out(429, message, "overloaded");
      out.retry_after_ms = 1000;
      return out;
    }
    case PLAIT_CANCELLED: return {408, message, "deadline_exceeded"};
    case PLAIT_CLOSED: return {503, message, "closed"};
    default: return {500, message, plait_status_name(failure.status())};
  }
}

bool is_about_input(const plait_api::Failure& failure) {
  switch (failure.status()) {
    case PLAIT_INVALID_ARGUMENT:
    case PLAIT_NOT_FOUND:
    case PLAIT_BAD_MODEL:
    case PLAIT_UNSUPPORTED: return true;
    default: return false;
  }
}

std::string error_body(const HttpError& error) {
  const auto text = [](const std::string& value) { return value.empty() ? nlohmann::json() : nlohmann::json(value); };
  const nlohmann::json body = {{"error",
                                {{"message", error.what()},
                                 {"type", type_of(error.status)},
                                 {"param", text(error.param)},
                                 {"code", text(error.code)}}}};
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace plait::http
