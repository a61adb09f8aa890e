#pragma once
// An answer that is generated: the events of its requests, in a wire's form.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"
#include "serving/http/base/answer.h"
#include "serving/http/base/meter.h"

namespace plait::http {

/// Tokens of all requests of an answer.
struct Totals {
  int64_t prompt = 0, cached = 0, generated = 0;
  int64_t thoughts = 0;  ///< of the generated: within thoughts, where a wire tells them apart
};

/// The form of an answer: it appends what is to be sent. With `stream` what it appends is sent as it comes.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Before all else.
  virtual void begin(std::string&) {}
  /// A token, or the end, of output number `choice`.
  virtual void event(int32_t choice, const plait_event& event, std::string& out) = 0;
  /// After all else: the whole answer, if it is not streamed.
  virtual void end(const Totals& totals, const std::vector<plait_api::Request>& requests, std::string& out) = 0;
  /// The body of an error that comes instead of an answer.
  virtual std::string error(const HttpError& error) const;
  /// Within a stream.
  virtual void failed(const HttpError& error, std::string& out);
  /// Within a stream that has nothing to send: something that clients pass over.
  virtual void ping(std::string& out) { out += ": ping\n\n"; }
};

class Generation : public Answer {
 public:
  /// Each request has `samples` outputs.
  Generation(std::vector<plait_api::Request> requests, int32_t samples, std::unique_ptr<Writer> writer, bool stream,
             Meter& meter);

  Taken take(Part& part) override;
  void attach(plait_mailbox* mailbox, uint64_t tag) override;
  bool keep_alive() override;
  void abort(const HttpError& why) override;
  int32_t refusal() const override { return refusal_; }

 private:
  /// What one request has to return now. Throws plait_api::Failure.
  void pull(size_t index);
  Totals totals();
  Taken failed(const HttpError& error, Part& part);

  std::vector<plait_api::Request> requests_;
  std::vector<bool> ended_;
  const int32_t samples_;
  const std::unique_ptr<Writer> writer_;
  const bool stream_;
  Meter& meter_;
  bool begun_ = false, over_ = false, silent_ = false;
  int32_t refusal_ = 0;
  std::string out_;
  std::unique_ptr<HttpError> aborted_;
  std::chrono::steady_clock::time_point sent_;                 ///< the last bytes of a stream
  std::vector<std::chrono::steady_clock::time_point> tokens_;  ///< the last of each output
};

/// OpenAI's word for how an output ended.
const char* finish_reason(plait_finish finish);

}  // namespace plait::http
