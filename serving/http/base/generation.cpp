#include "serving/http/base/generation.h"

#include <utility>

#include "serving/http/base/failure.h"

namespace plait::http {

using Clock = std::chrono::steady_clock;

const char* finish_reason(plait_finish finish) {
  switch (finish) {
    case PLAIT_FINISH_LENGTH: return "length";
    case PLAIT_FINISH_CANCELLED: return "cancelled";
    case PLAIT_FINISH_ERROR: return "error";
    default: return "stop";
  }
}

std::string Writer::error(const HttpError& error) const { return error_body(error); }

void Writer::failed(const HttpError& error, std::string& out) {
  out.append("data: ").append(error_body(error)).append("\n\n");
}

Generation::Generation(std::vector<plait_api::Request> requests, int32_t samples, std::unique_ptr<Writer> writer,
                       bool stream, Meter& meter)
    : requests_(std::move(requests)),
      ended_(requests_.size()),
      samples_(samples),
      writer_(std::move(writer)),
      stream_(stream),
      meter_(meter),
      sent_(Clock::now()),
      tokens_(requests_.size() * static_cast<size_t>(samples)) {}

void Generation::attach(plait_mailbox* mailbox, uint64_t tag) {
  for (const plait_api::Request& request : requests_)
    plait_api::check(plait_request_attach(request.get(), mailbox, static_cast<int64_t>(tag)));
}

void Generation::pull(size_t index) {
  plait_event event{};
  while (!ended_[index]) {
    if (!requests_[index].next(event, 0)) return;
    if (event.kind == PLAIT_EVENT_END) {
      ended_[index] = true;
      meter_.used(requests_[index].usage());
      return;
    }
    const auto choice = static_cast<size_t>(samples_) * index + static_cast<size_t>(event.sample);
    if (event.kind == PLAIT_EVENT_TOKEN) {
      const Clock::time_point now = Clock::now();
      Clock::time_point& last = tokens_[choice];
      meter_.token(last == Clock::time_point() ? -1 : std::chrono::duration<double>(now - last).count());
      last = now;
    }
    if (event.finish != PLAIT_FINISH_NONE) meter_.finished(finish_reason(event.finish));
    writer_->event(static_cast<int32_t>(choice), event, out_);
  }
}

Totals Generation::totals() {
  Totals out;
  for (const plait_api::Request& request : requests_) {
    const plait_usage usage = request.usage();
    out.prompt += usage.prompt_tokens;
    out.cached += usage.cached_tokens;
    out.generated += usage.new_tokens;
  }
  return out;
}

Taken Generation::failed(const HttpError& error, Part& part) {
  over_ = true;
  refusal_ = error.status;
  for (const plait_api::Request& request : requests_) plait_request_cancel(request.get());
  if (stream_) {
    writer_->failed(error, out_);
  } else {
    out_ = writer_->error(error);
    part.status = error.status;
  }
  part.data = out_;
  return Taken::end;
}

Taken Generation::take(Part& part) {
  part.content_type = stream_ ? "text/event-stream" : "application/json";
  if (stream_) part.fields = "cache-control: no-store\nx-accel-buffering: no\n";
  if (over_) return Taken::end;
  out_.clear();
  if (!std::exchange(begun_, true)) {
    sent_ = {};  // the head is sent at once
    writer_->begin(out_);
  }
  if (aborted_) return failed(*aborted_, part);
  try {
    bool all = true;
    for (size_t i = 0; i < requests_.size(); ++i) {
      pull(i);
      all = all && ended_[i];
    }
    if (all) {
      over_ = true;
      writer_->end(totals(), requests_, out_);
      part.data = out_;
      return Taken::end;
    }
  } catch (const plait_api::Failure& failure) {
    return failed(http_error(failure), part);
  } catch (const HttpError& error) {
    return failed(error, part);
  } catch (const std::exception& error) {
    return failed(HttpError(500, error.what(), "internal"), part);
  }
  if (std::exchange(silent_, false) && out_.empty()) writer_->ping(out_);
  if (!stream_ || (out_.empty() && sent_ != Clock::time_point())) return Taken::wait;
  sent_ = Clock::now();
  part.data = out_;
  return Taken::more;
}

void Generation::abort(const HttpError& why) { aborted_ = std::make_unique<HttpError>(why); }

bool Generation::keep_alive() {
  constexpr std::chrono::seconds quiet(10);
  silent_ = stream_ && begun_ && !over_ && Clock::now() - sent_ > quiet;
  return silent_;
}

}  // namespace plait::http
