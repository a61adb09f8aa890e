#include "serving/request_state.h"

#include "core/base/text.h"

namespace plait {

void Request::State::finish_sample() {
  if (--samples_left > 0) return;
  finished = true;
  usage.total_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - submitted).count();
}

void Request::State::announce() noexcept {
  changed.notify_all();
  unannounced = false;
  if (!mailbox || posted) return;
  try {
    mailbox->post(tag);
    posted = true;
  } catch (...) {
    unannounced = true;
  }
}

bool Request::State::is_announced() noexcept {
  std::lock_guard lock(mutex);
  if (unannounced) announce();
  return !unannounced;
}

void Request::State::emit(Event event) {
  std::lock_guard lock(mutex);
  if (finished) return;
  const bool last = event.finish != FinishReason::none, counts = event.has_token && !event.of_prompt;
  events.push_back(std::move(event));
  usage.new_tokens += counts;
  if (last) finish_sample();
  announce();
}

void Request::State::fail(const Error& why) noexcept {
  std::lock_guard lock(mutex);
  if (finished) return;
  try {
    error = why;
  } catch (...) {
    error.emplace(why.code(), "no memory left");
  }
  samples_left = 1;
  finish_sample();
  announce();
}

void Request::State::emit_cancelled() {
  for (size_t k = 0; k < static_cast<size_t>(options.samples); ++k) {
    if (k < samples.size() && samples[k].phase == Sample::Phase::done) continue;
    Event event;
    event.sample = static_cast<int32_t>(k);
    event.finish = FinishReason::cancelled;
    emit(std::move(event));
  }
}

void Request::State::end(const Error& why) noexcept {
  fail(why);
  release();
  for (Sample& sample : samples) sample.phase = Sample::Phase::done;
}

void Request::State::release() noexcept {
  for (Sample& sample : samples) {
    sample.mask.reset();
    if (!sample.in_flight) sample.sequence.reset();
  }
  options.parent.reset();
  adapter.reset();
}

Request::Request(std::shared_ptr<State> state) : state_(std::move(state)) {}

Request::~Request() { cancel(); }

std::optional<Event> Request::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  auto ready = [&] { return !state_->events.empty() || state_->finished; };
  if (timeout.count() < 0) state_->changed.wait(lock, ready);
  else if (!state_->changed.wait_for(lock, timeout, ready)) {
    state_->posted = false;
    return std::nullopt;
  }
  if (state_->events.empty()) {
    if (!state_->error) return std::nullopt;
    state_->error_seen = true;
    throw *state_->error;
  }
  Event event = std::move(state_->events.front());
  state_->events.pop_front();
  return event;
}

bool Request::finished() const {
  std::lock_guard lock(state_->mutex);
  return state_->finished && state_->events.empty() && (!state_->error || state_->error_seen);
}

void Request::attach(std::shared_ptr<Mailbox> mailbox, int64_t tag) {
  std::lock_guard lock(state_->mutex);
  state_->mailbox = std::move(mailbox);
  state_->tag = tag;
  state_->posted = false;
  if (!state_->events.empty() || state_->finished) state_->announce();
}

void Request::cancel() {
  state_->cancelled = true;
  if (state_->wake) state_->wake();
}

void Request::push(int32_t token) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->asking == 0)
      throw Error(Code::invalid_argument, "no logits wait for a token", "take the next event first");
    --state_->asking;
    state_->pushed.push_back(token);
  }
  state_->wake();
}

RequestUsage Request::usage() const {
  std::lock_guard lock(state_->mutex);
  return state_->usage;
}

std::shared_ptr<Conversation> Request::conversation() const {
  std::lock_guard lock(state_->mutex);
  return state_->conversation;
}

std::vector<float> Request::take_matrix() {
  std::lock_guard lock(state_->mutex);
  return std::move(state_->matrix);
}

}  // namespace plait
