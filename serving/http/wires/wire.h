#pragma once
// The protocols that the server speaks. A wire reads a request's body into an answer; a new protocol is a file with such a function.
#include <memory>
#include <string>
#include <string_view>

#include "serving/http/base/generation.h"
#include "serving/http/base/json_fields.h"
#include "serving/http/base/served.h"

namespace plait::http {

/// What a wire may use.
class Models {
 public:
  virtual ~Models() = default;
  /// Throws HttpError(404).
  virtual Named named(const std::string& name) const = 0;
  /// Names of models and adapters, as JSON of /v1/models.
  virtual Json list() const = 0;
  virtual Meter& meter() const = 0;
};

std::unique_ptr<Answer> chat_completions(const Models& models, std::string_view body);
std::unique_ptr<Answer> responses(const Models& models, std::string_view body);
std::unique_ptr<Answer> messages(const Models& models, std::string_view body);
std::unique_ptr<Answer> count_tokens(const Models& models, std::string_view body);
/// An error in the form of /v1/messages.
std::string messages_error(const HttpError& error);
std::unique_ptr<Answer> completions(const Models& models, std::string_view body);
std::unique_ptr<Answer> embeddings(const Models& models, std::string_view body);
std::unique_ptr<Answer> tokenize(const Models& models, std::string_view body);
std::unique_ptr<Answer> detokenize(const Models& models, std::string_view body);

}  // namespace plait::http
