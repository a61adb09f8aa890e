#pragma once
// What is sent to a client: taken part by part, as its socket has room.
#include <atomic>
#include <memory>
#include <string>

#include "serving/http/base/transport.h"

struct plait_mailbox;

namespace plait::http {

class HttpError;

/// The body of an error. nullptr: OpenAI's, `error_body`.
using ErrorForm = std::string (*)(const HttpError& error);

/// One thread at a time.
class Answer {
 public:
  virtual ~Answer() = default;
  /// The next part, which the answer owns until the next call.
  virtual Taken take(Part& part) = 0;
  /// It waits for events of requests, whose tag is the call's number.
  virtual void attach(plait_mailbox*, uint64_t) {}
  /// A stream that has sent nothing for a while sends a comment, by which a client that has gone is noticed.
  /// Whether it has one to send now.
  virtual bool keep_alive() { return false; }
  /// The status of the error that ended it; 0: no error did.
  virtual int32_t refusal() const { return 0; }
  /// Ends one that is not complete.
  virtual void abort(const HttpError&) {}
};

/// An answer that is complete.
class Reply : public Answer {
 public:
  explicit Reply(std::string body, int32_t status = 200, std::string content_type = "application/json",
                 std::string fields = {})
      : body_(std::move(body)), content_type_(std::move(content_type)), fields_(std::move(fields)), status_(status) {}
  /// An error's, in that form; with Retry-After if it has one.
  static std::unique_ptr<Answer> of(const HttpError& error, ErrorForm form = nullptr);

  Taken take(Part& part) override {
    part = {status_, content_type_, fields_, body_};
    return Taken::end;
  }

 private:
  const std::string body_, content_type_, fields_;
  const int32_t status_;
};

}  // namespace plait::http
