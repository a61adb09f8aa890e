#include "serving/http/server.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "serving/http/base/failure.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace plait::http {

namespace {

constexpr int64_t stop_tag = -1;  // calls are numbered from 1
constexpr size_t long_body = 256 << 10;
constexpr int32_t no_memory_status = 503;

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
  const int64_t threads = settings_.workers + 1;
  try {
    threads_.reserve(static_cast<size_t>(threads));
    threads_.emplace_back([this] { pump(); });
    for (int64_t i = 0; i < settings_.workers; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    const size_t which = threads_.size() + 1;
    end();
    throw NoThread("cannot start thread " + std::to_string(which) + " of the server's " + std::to_string(threads) + ": " +
                   error.code().message());
  } catch (...) {
    end();
    throw;
  }
}

Server::~Server() { end(); }

void Server::end() noexcept {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  plait_mailbox_post(mailbox_.get(), stop_tag);  // without memory for it the next tick notices
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
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
  if (!transport_->runs()) throw std::runtime_error("a fault ended the server's thread: no call is answered any more");
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

/// The answer of an error, which is counted.
std::unique_ptr<Answer> Server::refusal(Call& call, const HttpError& error) {
  auto out = Reply::of(error, call.route ? call.route->errors : nullptr);
  std::lock_guard lock(call.mutex);
  if (!std::exchange(call.refused, true)) meter_.refused(error.status);  // unless its client has left
  return out;
}

/// There is no memory for an answer, nor for the error's text: `take` answers without either.
void Server::fail(Call& call) noexcept {
  std::unique_ptr<Answer> left;
  std::lock_guard lock(call.mutex);
  left.swap(call.answer);
  call.failed = true;
  if (!std::exchange(call.refused, true)) meter_.refused(no_memory_status);
}

void Server::arrived(uint64_t number, const Head& head) noexcept {
  std::shared_ptr<Call> call;
  try {
    call = std::make_shared<Call>(head, access_.fields(head));
    call->number = number;
    std::lock_guard lock(mutex_);
    calls_.emplace(number, call);
  } catch (...) {
    return refused(number);
  }
  meter_.came();
  try {
    admit(call, head);
  } catch (...) {
    fail(*call);
  }
}

void Server::refused(uint64_t) noexcept {
  meter_.came();
  meter_.refused(no_memory_status);  // `take` finds no call
}

void Server::admit(const std::shared_ptr<Call>& call, const Head& head) {
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
    set_answer(call, refusal(*call, error));
  }
}

/// What the route's handler makes, or the answer of its error.
std::unique_ptr<Answer> Server::made(Call& call) {
  try {
    return (this->*call.route->handler)(call);
  } catch (HttpError& error) {
    if (error.status == 429) error.retry_after_ms = meter_.retry_after_ms();
    return refusal(call, error);
  } catch (const plait_api::Failure& failure) {
    return refusal(call, http_error(failure));
  } catch (const std::bad_alloc&) {
    return refusal(call, no_memory());
  } catch (const std::exception& error) {
    return refusal(call, HttpError(500, error.what(), "internal"));
  }
}

void Server::answer(const std::shared_ptr<Call>& call) noexcept {
  try {
    std::unique_ptr<Answer> answer = made(*call);
    Answer& waits = *answer;
    std::lock_guard lock(call->mutex);
    if (call->gone) return;
    call->answer = std::move(answer);
    waits.attach(mailbox_.get(), call->number);
  } catch (...) {
    fail(*call);
  }
}

Taken Server::take(uint64_t number, Part& part) noexcept {
  constexpr Part without_text{no_memory_status, "application/json", "retry-after: 1\n",
                              R"({"error":{"message":"the machine has no memory left","type":"server_error"}})"};
  const std::shared_ptr<Call> call = find(number);
  if (!call) return part = without_text, Taken::end;
  std::lock_guard lock(call->mutex);
  if (!call->answer && !call->failed) return Taken::wait;
  try {
    if (call->failed) throw std::bad_alloc();
    const Taken taken = call->answer->take(part);
    if (taken != Taken::wait && !call->begun) {
      call->fields.append(part.fields);
      call->begun = true;
      part.fields = call->fields;
    } else {
      part.content_type = part.fields = {};  // of the first part only
    }
    call->complete = taken == Taken::end;
    const int32_t status = call->answer->refusal();
    if (status && !std::exchange(call->refused, true)) meter_.refused(status);
    return taken;
  } catch (...) {
    part = call->begun ? Part{} : without_text;
    if (!std::exchange(call->refused, true)) meter_.refused(no_memory_status);
    return Taken::end;
  }
}

void Server::dropped(uint64_t number) noexcept {
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
  bool complete = false, refused = false;
  {
    std::lock_guard lock(call->mutex);
    call->gone = true;
    complete = call->complete;
    answer = std::move(call->answer);  // its requests are cancelled when it ends
    refused = std::exchange(call->refused, true);  // once counted
  }
  if (!refused) complete ? meter_.answered() : meter_.cancelled();
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
      call = *next;
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
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    if (status == PLAIT_OK) transport_->wake(static_cast<uint64_t>(tag));
    const auto now = std::chrono::steady_clock::now();
    if (now - ticked < std::chrono::milliseconds(tick_ms)) continue;
    ticked = now;
    try {
      keep_alive();
    } catch (...) {  // no memory: the next tick is soon enough
    }
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
