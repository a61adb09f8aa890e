#pragma once
// The server: calls come from the transport, workers read them and submit requests, their events wake the transport, which takes
// what there is to send.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>

#include "serving/http/base/access.h"
#include "serving/http/base/answer.h"
#include "serving/http/call.h"
#include "serving/http/wires/wire.h"

namespace plait::http {

struct ServerSettings {
  TransportSettings transport;
  AccessSettings access;
  int64_t queue = 1024;     ///< calls that wait to be read
  int64_t workers = 2;      ///< threads that read them
  bool page = true;         ///< at /
  std::string adapter_dir;  ///< where adapters may be loaded from at run time; "": nowhere
};

using ServedModels = std::map<std::string, std::shared_ptr<const Served>>;  ///< by name

struct ServerStats {
  int64_t connections = 0, calls = 0, answered = 0, cancelled = 0;
  int64_t certificate_expires = 0;  ///< Unix seconds; 0: no TLS
};

/// Listens from its creation on; answers 503 until its models are loaded. Thread-safe.
class Server : public Models, private Host {
 public:
  /// Throws as Transport does.
  explicit Server(const ServerSettings& settings);
  /// Ends all calls.
  ~Server() override;
  Server(const Server&) = delete;

  /// Model and generator stay the host's, and must live as long as the server. Throws std::runtime_error if the name is taken.
  void add(const std::string& name, plait_model* model, plait_generator* generator);
  /// "http://127.0.0.1:8080", with TLS "https://127.0.0.1:8080", or "unix:PATH"
  std::string address() const;
  /// Takes no more connections, and waits until all calls are answered. False after the time: those that are left are ended.
  bool drain(std::chrono::milliseconds timeout);
  ServerStats stats() const;

  Named named(const std::string& name) const override;
  Json list() const override;
  Meter& meter() const override { return meter_; }

 private:
  friend struct Route;
  static const Route routes[];

  void arrived(uint64_t number, const Head& head) noexcept override;
  void refused(uint64_t number) noexcept override;
  Taken take(uint64_t number, Part& part) noexcept override;
  void dropped(uint64_t number) noexcept override;

  const Route& route_of(const Head& head) const;
  void admit(const std::shared_ptr<Call>& call, const Head& head);
  std::unique_ptr<Answer> made(Call& call);
  void answer(const std::shared_ptr<Call>& call) noexcept;
  std::unique_ptr<Answer> refusal(Call& call, const HttpError& error);
  void fail(Call& call) noexcept;
  void end() noexcept;
  void set_answer(const std::shared_ptr<Call>& call, std::unique_ptr<Answer> made);
  std::shared_ptr<Call> find(uint64_t number) const;
  ServedModels served() const;
  /// The first call of the queue that a worker may read: one of them reads no long bodies, whose texts take seconds to become tokens.
  std::deque<std::shared_ptr<Call>>::iterator next_call();
  void work();
  void pump();
  void keep_alive();

  std::unique_ptr<Answer> health(const Call& call);
  std::unique_ptr<Answer> ready(const Call& call);
  std::unique_ptr<Answer> page(const Call& call);
  std::unique_ptr<Answer> openapi(const Call& call);
  std::unique_ptr<Answer> models(const Call& call);
  std::unique_ptr<Answer> metrics(const Call& call);
  std::unique_ptr<Answer> ranks(const Call& call);
  std::unique_ptr<Answer> chat(const Call& call);
  std::unique_ptr<Answer> respond(const Call& call);
  std::unique_ptr<Answer> message(const Call& call);
  std::unique_ptr<Answer> count(const Call& call);
  std::unique_ptr<Answer> complete(const Call& call);
  std::unique_ptr<Answer> embed(const Call& call);
  std::unique_ptr<Answer> encode(const Call& call);
  std::unique_ptr<Answer> decode(const Call& call);
  std::unique_ptr<Answer> load_adapter(const Call& call);
  std::unique_ptr<Answer> unload_adapter(const Call& call);

  const ServerSettings settings_;
  const Access access_;
  mutable Meter meter_;
  const plait_api::Mailbox mailbox_;

  mutable std::mutex mutex_;
  std::condition_variable queued_, ended_;
  std::deque<std::shared_ptr<Call>> queue_;
  int64_t reading_long_ = 0;  ///< workers that read a long body
  std::unordered_map<uint64_t, std::shared_ptr<Call>> calls_;
  ServedModels served_;
  bool stopping_ = false;
  std::atomic<bool> draining_{false};
  ServerStats stats_;

  std::vector<std::thread> threads_;
  std::unique_ptr<Transport> transport_;
};

/// What is answered at a method and path.
struct Route {
  const char* method;
  const char* path;  ///< "{NAME}" at its end: anything
  std::unique_ptr<Answer> (Server::*handler)(const Call& call);
  bool at_once;  ///< on the transport's thread: it neither blocks nor takes long
  bool open;     ///< without a key
  ErrorForm errors = nullptr;
};

/// What the server takes and answers, in OpenAPI's form. `models`: as /v1/models lists them; `keys`: callers need one.
Json openapi_of(std::span<const Route> routes, const Json& models, bool keys);

}  // namespace plait::http
