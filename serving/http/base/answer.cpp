#include "serving/http/base/answer.h"

#include "serving/http/base/failure.h"

namespace plait::http {

std::unique_ptr<Answer> Reply::of(const HttpError& error, ErrorForm form) {
  std::string fields = error.fields;
  if (error.retry_after_ms > 0)
    fields += "retry-after: " + std::to_string((error.retry_after_ms + 999) / 1000) +
              "\nretry-after-ms: " + std::to_string(error.retry_after_ms) + "\n";
  if (error.status == 401) fields += "www-authenticate: Bearer\n";
  return std::make_unique<Reply>(form ? form(error) : error_body(error), error.status, "application/json",
                                 std::move(fields));
}

}  // namespace plait::http
