#include "serving/http/server.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "serving/http/base/failure.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace plait::http {

namespace {

constexpr int64_t stop_tag = -1;  // calls are numbered from 1
constexpr size_t long_body = 256 << 10;

bool is_long(const Call& call) { return call.body.size() > long_body; }

/// Of texts that became tokens, which take up to a hundred times their size: the allocator would keep it.
void release_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

Server::Server(const ServerSettings& settings) : settings_(settings), access_(settings.access) {
  transport_ = std::make_unique<Transport>(settings_.transport, static_cast<Host&>(*this));
  threads_.emplace_back([this] { pump(); });
  for (int64_t i = 0; i < settings_.workers; ++i) threads_.emplace_back([this] { work(); });
}

Server::~Server() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  plait_mailbox_post(mailbox_.get(), stop_tag);
  for (std::thread& thread : threads_) thread.join();
  transport_.reset();  // drops the calls that are left
}

void Server::add(const std::string& name, plait_model* model, plait_generator* generator) {
  std::lock_guard lock(mutex_);
  if (!served_.emplace(name, std::make_shared<Served>(name, model, generator)).second)
    throw std::runtime_error("a model named \"" + name + "\" is served already");
}

std::string Server::address() const {
  const std::string& given = settings_.transport.address;
  if (given.starts_with("unix:")) return given;
  const char* scheme = settings_.transport.certificate.empty() ? "http://" : "https://";
  return scheme + given.substr(0, given.rfind(':')) + ":" + std::to_string(transport_->port());
}

bool Server::drain(std::chrono::milliseconds timeout) {
  draining_ = true;
  transport_->close();
  std::unique_lock lock(mutex_);
  const auto none = [&] { return calls_.empty(); };
  if (timeout.count() >= 0) ended_.wait_for(lock, timeout, none);
  else ended_.wait(lock, none);
  if (none()) return true;
  const auto left = calls_;
  lock.unlock();
  for (const auto& [number, call] : left) {
    const HttpError why(503, "the server is shutting down", "shutting_down");
    {
      std::lock_guard own(call->mutex);
      if (call->answer) call->answer->abort(why);
      else if (!call->gone) call->answer = Reply::of(why, call->route ? call->route->errors : nullptr);
    }
    transport_->wake(number);
  }
  constexpr std::chrono::seconds to_send_why(1);
  lock.lock();
  ended_.wait_for(lock, to_send_why, none);
  return false;
}

ServerStats Server::stats() const {
  const int64_t connections = transport_->connections();
  std::lock_guard lock(mutex_);
  ServerStats out = stats_;
  out.connections = connections;
  out.calls = static_cast<int64_t>(calls_.size());
  out.certificate_expires = transport_->certificate_expires();
  return out;
}

ServedModels Server::served() const {
  std::lock_guard lock(mutex_);
  return served_;
}

Named Server::named(const std::string& name) const {
  const ServedModels served = this->served();
  const auto found = served.find(name);
  if (found != served.end()) return {found->second, name, {}};
  for (const auto& [own, one] : served) {
    if (!one->ready()) continue;
    for (const std::string& adapter : one->adapters())
      if (adapter == name) return {one, name, adapter};
  }
  throw HttpError(404, "the model \"" + name + "\" does not exist; /v1/models lists those that do", "model_not_found",
                  "model");
}

std::shared_ptr<Call> Server::find(uint64_t number) const {
  std::lock_guard lock(mutex_);
  const auto found = calls_.find(number);
  return found == calls_.end() ? nullptr : found->second;
}

void Server::set_answer(const std::shared_ptr<Call>& call, std::unique_ptr<Answer> made) {
  std::lock_guard lock(call->mutex);
  if (!call->gone) std::swap(call->answer, made);
  // What is left in `made` ends here: its requests are cancelled.
}

void Server::arrived(uint64_t number, const Head& head) {
  auto call = std::make_shared<Call>(head, access_.fields(head));
  {
    std::lock_guard lock(mutex_);
    calls_.emplace(number, call);
  }
  call->number = number;
  try {
    access_.check_host(head);
    if (head.method == "OPTIONS") return set_answer(call, std::make_unique<Reply>("", 204));
    const Route& route = route_of(head);
    {
      std::lock_guard own(call->mutex);
      call->route = &route;
    }
    if (!route.open) access_.check_key(head);
    if (route.at_once) return answer(call);
    std::lock_guard lock(mutex_);
    if (static_cast<int64_t>(queue_.size()) >= settings_.queue) {
      HttpError full(429, "the server has too many calls to read", "overloaded");
      full.retry_after_ms = 1000;
      throw full;
    }
    queue_.push_back(call);
    queued_.notify_one();
  } catch (const HttpError& error) {
    meter_.refused(error.status);
    set_answer(call, Reply::of(error, call->route ? call->route->errors : nullptr));
  }
}

void Server::answer(const std::shared_ptr<Call>& call) {
  std::unique_ptr<Answer> made;
  const ErrorForm form = call->route->errors;
  try {
    made = (this->*call->route->handler)(*call);
  } catch (HttpError& error) {
    meter_.refused(error.status);
    if (error.status == 429) error.retry_after_ms = meter_.retry_after_ms();
    made = Reply::of(error, form);
  } catch (const plait_api::Failure& failure) {
    const HttpError error = http_error(failure);
    meter_.refused(error.status);
    made = Reply::of(error, form);
  } catch (const std::exception& error) {
    meter_.refused(500);
    made = Reply::of(HttpError(500, error.what(), "internal"), form);
  }
  Answer& waits = *made;
  std::lock_guard lock(call->mutex);
  if (call->gone) return;
  call->answer = std::move(made);
  waits.attach(mailbox_.get(), call->number);
}

Taken Server::take(uint64_t number, Part& part) {
  const std::shared_ptr<Call> call = find(number);
  if (!call) return Taken::end;
  std::lock_guard lock(call->mutex);
  if (!call->answer) return Taken::wait;
  const Taken taken = call->answer->take(part);
  if (taken != Taken::wait && !std::exchange(call->begun, true)) {
    call->fields.append(part.fields);
    part.fields = call->fields;
  } else {
    part.content_type = part.fields = {};  // of the first part only
  }
  call->complete = taken == Taken::end;
  return taken;
}

void Server::dropped(uint64_t number) {
  std::shared_ptr<Call> call;
  {
    std::lock_guard lock(mutex_);
    const auto found = calls_.find(number);
    if (found == calls_.end()) return;
    call = std::move(found->second);
    calls_.erase(found);
    // A client may send and cancel at a high rate: what it left must not fill the queue.
    const auto waits = std::find(queue_.rbegin(), queue_.rend(), call);
    if (waits != queue_.rend()) queue_.erase(std::next(waits).base());
    if (calls_.empty()) ended_.notify_all();
  }
  std::unique_ptr<Answer> answer;
  bool complete = false;
  {
    std::lock_guard lock(call->mutex);
    call->gone = true;
    complete = call->complete;
    answer = std::move(call->answer);  // its requests are cancelled when it ends
  }
  if (!complete) meter_.cancelled();
  std::lock_guard lock(mutex_);
  ++(complete ? stats_.answered : stats_.cancelled);
}

std::deque<std::shared_ptr<Call>>::iterator Server::next_call() {
  if (settings_.workers < 2 || reading_long_ + 1 < settings_.workers) return queue_.begin();
  return std::find_if(queue_.begin(), queue_.end(), [](const auto& call) { return !is_long(*call); });
}

void Server::work() {
  for (;;) {
    std::shared_ptr<Call> call;
    {
      std::unique_lock lock(mutex_);
      queued_.wait(lock, [&] { return stopping_ || next_call() != queue_.end(); });
      if (stopping_) return;
      const auto next = next_call();
      call = std::move(*next);
      queue_.erase(next);
      reading_long_ += is_long(*call);
    }
    if (!call->is_gone()) {
      answer(call);
      transport_->wake(call->number);
    }
    if (!is_long(*call)) continue;
    release_memory();
    std::lock_guard lock(mutex_);
    --reading_long_;
    queued_.notify_one();  // who waits for another long one
  }
}

void Server::pump() {
  constexpr int64_t tick_ms = 1000;
  auto ticked = std::chrono::steady_clock::now();
  for (;;) {
    int64_t tag = 0;
    const plait_status status = plait_mailbox_next(mailbox_.get(), tick_ms, &tag);
    if (status == PLAIT_OK && tag == stop_tag) return;
    if (status == PLAIT_OK) transport_->wake(static_cast<uint64_t>(tag));
    const auto now = std::chrono::steady_clock::now();
    if (now - ticked < std::chrono::milliseconds(tick_ms)) continue;
    ticked = now;
    keep_alive();
  }
}

void Server::keep_alive() {
  std::unordered_map<uint64_t, std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    calls = calls_;
  }
  for (const auto& [number, call] : calls) {
    {
      std::lock_guard lock(call->mutex);
      if (!call->answer || !call->answer->keep_alive()) continue;
    }
    transport_->wake(number);
  }
}

}  // namespace plait::http
