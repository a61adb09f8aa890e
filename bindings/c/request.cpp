// Requests of the C API.
#include <cstddef>
#include <limits>

#include "bindings/c/objects.h"

namespace plait::c_api {

Request& RequestObject::running() {
  if (request) return *request;
  throw Error(Code::invalid_argument, "the request was restored from bytes: there is nothing to pull from it",
              "submit a prompt with it as the parent");
}

std::shared_ptr<Conversation> RequestObject::kept() {
  if (!request) return conversation;
  return request->finished() ? request->conversation() : nullptr;
}

namespace {

/// Storage of the last event that this thread pulled.
struct Pulled {
  Event event;
  std::vector<int32_t> top_tokens;
  std::vector<float> top_logprobs;
};

Pulled& pulled() {
  thread_local Pulled last;
  return last;
}

plait_event empty_event() {
  plait_event out{};
  out.token = -1;
  out.logprob = std::numeric_limits<float>::quiet_NaN();
  out.text = "";
  out.stop = -1;
  return out;
}

/// Keeps `event` for this thread and points to it.
plait_event keep_event(Event event, bool logprobs) {
  Pulled& kept = pulled();
  kept.top_tokens.clear();
  kept.top_logprobs.clear();
  kept.event = std::move(event);
  for (auto [token, logprob] : kept.event.token.top) {
    kept.top_tokens.push_back(token);
    kept.top_logprobs.push_back(logprob);
  }
  plait_event out = empty_event();
  out.kind = kept.event.of_prompt        ? PLAIT_EVENT_PROMPT
             : kept.event.has_token      ? PLAIT_EVENT_TOKEN
             : kept.event.logits.empty() ? PLAIT_EVENT_FINISH
                                         : PLAIT_EVENT_LOGITS;
  out.finish = static_cast<plait_finish>(kept.event.finish);
  out.sample = kept.event.sample;
  if (kept.event.has_token) out.token = kept.event.token.id;
  if (kept.event.of_prompt || (kept.event.has_token && logprobs)) {
    out.logprob = kept.event.token.logprob;
    out.rank = kept.event.token.rank;
  }
  out.top_count = static_cast<int32_t>(kept.top_tokens.size());
  out.top_tokens = kept.top_tokens.data();
  out.top_logprobs = kept.top_logprobs.data();
  out.text = kept.event.text.c_str();
  out.text_length = static_cast<int64_t>(kept.event.text.size());
  out.logits = kept.event.logits.empty() ? nullptr : kept.event.logits.data();
  out.logits_count = static_cast<int64_t>(kept.event.logits.size());
  out.stop = kept.event.stop;
  return out;
}

/// The next event. Distinguishes the deadline from this call's timeout.
std::optional<Event> next_of(Request& request, std::chrono::milliseconds timeout) {
  try {
    return request.next(timeout);
  } catch (const Error& error) {
    if (error.code() != Code::timeout) throw;
    throw Error(Code::cancelled, error.message(), error.hint());
  }
}

/// Pools rows of `width` into one.
std::vector<float> pooled(const std::vector<float>& rows, size_t width, const std::string& pooling) {
  if (pooling == "last") return {rows.end() - static_cast<std::ptrdiff_t>(width), rows.end()};
  std::vector<double> sums(width);
  for (size_t i = 0; i < rows.size(); ++i) sums[i % width] += rows[i];
  std::vector<float> out;
  out.reserve(width);
  for (double sum : sums)
    out.push_back(static_cast<float>(sum / (static_cast<double>(rows.size()) / static_cast<double>(width))));
  return out;
}

Tensor matrix_of(RequestObject& object) {
  Request& request = object.running();
  while (!request.finished()) next_of(request, std::chrono::milliseconds(-1));
  std::vector<float> values = request.take_matrix();
  bool embed = object.kind == RequestOptions::Kind::embed;
  // A cancelled prompt has fewer rows, and the width cannot be derived.
  auto tokens = static_cast<size_t>(request.usage().prompt_tokens);
  if (values.empty() || tokens == 0 || values.size() % tokens != 0) {
    throw Error(Code::cancelled, "the request ended before its result was there");
  }
  size_t width = values.size() / tokens;
  bool pool = embed && object.pooling != "none";
  auto owner = std::make_shared<std::vector<float>>(pool ? pooled(values, width, object.pooling) : std::move(values));
  auto columns = static_cast<int64_t>(width);
  auto blob = borrow_blob(reinterpret_cast<std::byte*>(owner->data()),
                          static_cast<int64_t>(owner->size() * sizeof(float)), owner);
  return Tensor(DType::f32, pool ? Shape{columns} : Shape{static_cast<int64_t>(tokens), columns}, blob);
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_request_next(plait_request* request, int64_t timeout_ms, plait_event* out) {
  return guarded([&] {
    constexpr size_t first_size = offsetof(plait_event, stop);
    fill(out, empty_event(), first_size);
    auto object = object_of<RequestObject>(request);
    auto event = next_of(object->running(), timeout_of(timeout_ms));
    if (event) return fill(out, keep_event(std::move(*event), object->logprobs), first_size);
    if (!object->running().finished()) throw Error(Code::timeout, "no event came in time");
  });
}

plait_status plait_request_attach(plait_request* request, plait_mailbox* mailbox, int64_t tag) {
  return guarded(
      [&] { object_of<RequestObject>(request)->running().attach(optional_object_of<Mailbox>(mailbox), tag); });
}

plait_status plait_request_push(plait_request* request, int32_t token) {
  return guarded([&] { object_of<RequestObject>(request)->running().push(token); });
}

plait_status plait_request_cancel(plait_request* request) {
  return guarded([&] { object_of<RequestObject>(request)->running().cancel(); });
}

plait_status plait_request_usage(plait_request* request, plait_usage* out) {
  return guarded([&] {
    auto object = object_of<RequestObject>(request);
    RequestUsage usage = object->running().usage();
    plait_usage filled{};
    filled.prompt_tokens = usage.prompt_tokens;
    filled.cached_tokens = usage.cached_tokens;
    filled.new_tokens = usage.new_tokens;
    filled.queued_s = usage.queued_s;
    filled.first_token_s = usage.first_token_s;
    filled.total_s = usage.total_s;
    filled.prefill_s = usage.prefill_s;
    filled.seed = object->seed;
    fill(out, filled);
  });
}

plait_status plait_request_result(plait_request* request, plait_tensor** out) {
  return create(out, [&] {
    auto object = object_of<RequestObject>(request);
    if (object->kind == RequestOptions::Kind::generate) {
      throw Error(Code::invalid_argument, "the request has no result but its events",
                  "set the option kind to score or embed");
    }
    std::lock_guard lock(object->mutex);
    if (!object->result.present()) object->result = matrix_of(*object);
    return share(object->result);
  });
}

plait_status plait_request_save(plait_request* request, plait_tensor** bytes) {
  return create(bytes, [&] {
    auto object = object_of<RequestObject>(request);
    auto kept = object->kept();
    if (!kept) {
      throw Error(Code::invalid_argument, "the request has no conversation to save",
                  "set the option keep on it, and pull its events to the end first");
    }
    auto saved = object->generator->scheduler().save(*kept);
    auto size = static_cast<int64_t>(saved.size());
    return share(Tensor(DType::u8, Shape{size}, copy_blob(saved)));
  });
}

plait_status plait_mailbox_create(plait_mailbox** out) {
  return create(out, [] { return std::make_shared<Mailbox>(); });
}

plait_status plait_mailbox_next(plait_mailbox* mailbox, int64_t timeout_ms, int64_t* tag) {
  return guarded([&] {
    required(tag, "tag");
    const auto next = object_of<Mailbox>(mailbox)->next(timeout_of(timeout_ms));
    if (!next) throw Error(Code::timeout, "no request had anything to return in time");
    *tag = *next;
  });
}

plait_status plait_mailbox_post(plait_mailbox* mailbox, int64_t tag) {
  return guarded([&] { object_of<Mailbox>(mailbox)->post(tag); });
}

plait_status plait_mailbox_release(plait_mailbox* mailbox) { return release<Mailbox>(mailbox); }

plait_status plait_request_release(plait_request* request) { return release<RequestObject>(request); }
