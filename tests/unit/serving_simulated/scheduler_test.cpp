// The scheduler in virtual time. A seed decides what comes, when, what fails and who leaves; afterwards tokens are those of a request that
// runs with no other, each request has ended, no page is lost, and one more request works. A seed replays on every machine.
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/text.h"
#include "serving/scheduler.h"
#include "tests/unit/serving_simulated/simulated.h"

namespace plait {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t ms = 1'000'000;

struct Client {
  RequestOptions options;
  int64_t comes_at = 0, leaves_at = -1;
  std::shared_ptr<Request> request;
  std::vector<std::vector<int32_t>> outputs;
  std::vector<FinishReason> ends;
  std::optional<Error> error;
  bool over = false;
};

class World {
 public:
  World(uint64_t seed, bool faults) : draw_(seed), faults_(faults) {
    Clock::ticks = 1'000'000'000;
    SimulatedLimits limits;
    limits.page_tokens = draw_.between(1, 6);
    limits.pages = draw_.between(4, 40);
    limits.step_tokens = draw_.between(2, 24);
    limits.step_sequences = draw_.between(1, 6);
    limits.steps_in_flight = draw_.once_in(3) ? 2 : 1;
    if (draw_.once_in(3)) limits.step_fails = draw_.between(4, 40);
    if (draw_.once_in(4)) limits.step_is_late = draw_.between(4, 30);
    SchedulerOptions options;
    options.queue = draw_.between(1, 12);
    options.running = draw_.between(1, 8);
    options.overtakes = draw_.between(0, 4);
    if (draw_.once_in(4)) options.queue_tokens = draw_.between(4, 60);
    if (draw_.once_in(4)) options.step_goal = std::chrono::milliseconds(draw_.between(1, 5));
    auto engine = std::make_unique<SimulatedEngine>(limits, seed + 1);
    engine_ = engine.get();
    scheduler_ = std::make_unique<Scheduler>(std::move(engine), TokenizerFuture(), options);
    clients_.resize(static_cast<size_t>(draw_.between(1, 10)));
    for (Client& client : clients_) {
      client.options = request();
      client.comes_at = Clock::ticks + ms * draw_.between(0, 60);
      if (draw_.once_in(5)) client.leaves_at = client.comes_at + ms * draw_.between(0, 40);
    }
  }
  ~World() { scheduler_.reset(); }

  /// "" or what is wrong.
  std::string run() {
    constexpr int64_t most = 20'000;
    for (int64_t i = 0; i < most; ++i) {
      if (all_over()) return settle();
      if (!turn() && !all_over()) return cat("requests are left, and nothing is due: ", left());
    }
    return "requests are left after many iterations";
  }
  uint64_t digest() const { return digest_; }

  bool all_over() const {
    return std::all_of(clients_.begin(), clients_.end(), [](const Client& one) { return one.over; });
  }
  std::string left() const {
    std::string out;
    for (const Client& client : clients_)
      if (!client.over)
        out += cat(" prompt ", client.options.prompt.size(), ", tokens ", client.outputs.empty() ? 0 : client.outputs[0].size(), " of ",
                   client.options.max_tokens, ", samples ", client.options.samples, ", prompt_logprobs ",
                   client.options.prompt_logprobs, client.request ? "" : ", not submitted", ";");
    const SchedulerStats stats = scheduler_->stats();
    return cat(out, " running ", stats.running, ", waiting ", stats.waiting, ", pages free ", engine_->cache.pages_free(), " of ",
               engine_->cache.pages());
  }

 private:
  RequestOptions request() {
    RequestOptions out;
    const int64_t same = draw_.below(4);  // prompts share beginnings
    for (int64_t i = draw_.between(1, 14); i > 0; --i) out.prompt.push_back(static_cast<int32_t>((7 * same + i) % 32));
    out.max_tokens = draw_.between(0, 12);
    out.samples = draw_.once_in(4) ? static_cast<int32_t>(draw_.between(2, 3)) : 1;
    out.priority = static_cast<int32_t>(draw_.between(0, 2));
    out.sampling.temperature = 0;
    out.sampling.top_logprobs = draw_.once_in(5) ? 2 : -1;
    if (draw_.once_in(5)) out.deadline = std::chrono::milliseconds(draw_.between(1, 60));
    if (draw_.once_in(5)) out.queue_deadline = std::chrono::milliseconds(draw_.between(1, 40));
    if (draw_.once_in(8)) out.prompt_logprobs = 1;
    return out;
  }

  /// One iteration, or the next time at which there is something to do; false: there never is.
  bool turn() {
    int64_t next = INT64_MAX;
    for (Client& client : clients_) {
      if (client.over) continue;
      if (!client.request && client.comes_at <= Clock::ticks) submit(client);
      if (client.request && client.leaves_at >= 0 && client.leaves_at <= Clock::ticks) client.request->cancel(), client.leaves_at = -1;
      if (!client.request && !client.over) next = std::min(next, client.comes_at);
      if (client.leaves_at >= 0) next = std::min(next, client.leaves_at);
    }
    const auto due = simulated_work->next_due();
    if (std::exchange(simulated_wake, false) || due == EngineThread::now || due <= Clock::now()) {
      if (faults_ && draw_.once_in(6)) MemoryFault::left = draw_.between(1, 60);
      simulated_work->iterate();
      MemoryFault::left = 0;
      Clock::ticks += 1000;
    } else {
      if (due != EngineThread::never) next = std::min(next, static_cast<int64_t>(due.time_since_epoch().count()));
      if (next == INT64_MAX) return false;
      Clock::ticks = std::max(Clock::ticks, next);
    }
    for (Client& client : clients_) take(client);
    return true;
  }

  void submit(Client& client) {
    client.outputs.resize(static_cast<size_t>(client.options.samples));
    client.ends.resize(client.outputs.size(), FinishReason::none);
    try {
      client.request = scheduler_->submit(client.options);
    } catch (const Error& error) {
      client.error = error;
      client.over = true;
    }
  }

  void take(Client& client) {
    if (!client.request || client.over) return;
    try {
      while (const auto event = client.request->next(std::chrono::milliseconds(0))) {
        const auto sample = static_cast<size_t>(event->sample);
        if (event->has_token && !event->of_prompt) client.outputs[sample].push_back(event->token.id);
        if (event->finish != FinishReason::none) client.ends[sample] = event->finish;
      }
      client.over = client.request->finished();
    } catch (const Error& error) {
      client.error = error;
      client.over = true;
    }
  }

  /// What must be true at rest.
  std::string settle() {
    for (const Client& client : clients_)
      if (std::string wrong = judge(client); !wrong.empty()) return wrong;
    faults_ = false;
    for (int i = 0; i < 8; ++i) simulated_work->iterate();
    for (Client& client : clients_) client.request.reset();
    for (int i = 0; i < 8; ++i) simulated_work->iterate();
    if (engine_->cache.sequences() != 0) return cat(engine_->cache.sequences(), " sequences are left");
    if (engine_->cache.pages_free() != engine_->cache.pages())
      return cat(engine_->cache.pages() - engine_->cache.pages_free(), " pages are lost");
    return one_more();
  }

  std::string judge(const Client& client) {
    note(client.error ? static_cast<uint64_t>(client.error->code()) : 0);
    if (client.error) {
      const Code code = client.error->code();
      const bool may = code == Code::overloaded || code == Code::timeout || code == Code::numeric || code == Code::invalid_argument ||
                       (faults_ && code == Code::out_of_memory);
      if (!may) return cat("a request ends with ", code_name(code), ": ", client.error->message());
    }
    for (size_t k = 0; k < client.outputs.size(); ++k) {
      std::vector<int32_t> all = client.options.prompt;
      for (int32_t token : client.outputs[k]) {
        if (token != next_of(all)) return cat("token ", token, " in place of ", next_of(all));
        all.push_back(token);
        note(static_cast<uint64_t>(token));
      }
      const bool whole = client.ends[k] == FinishReason::length;
      if (!client.error && whole && static_cast<int64_t>(client.outputs[k].size()) != client.options.max_tokens)
        return cat("a sample ends with ", client.outputs[k].size(), " of ", client.options.max_tokens, " tokens");
    }
    return "";
  }

  std::string one_more() {
    Client last;
    last.options.prompt = {3};
    last.options.max_tokens = 2;
    last.options.sampling.temperature = 0;
    for (int attempt = 0; attempt < 50; ++attempt) {  // its own steps may fail, too
      clients_ = {last};
      clients_[0].comes_at = Clock::ticks;
      for (int i = 0; i < 100 && !clients_[0].over; ++i)
        if (!turn()) return "one more request waits without an end";
      if (!clients_[0].over) return "one more request does not end";
      if (!clients_[0].error) return judge(clients_[0]);
      if (clients_[0].error->code() != Code::numeric) return cat("one more request: ", clients_[0].error->message());
    }
    return "one more request fails each time";
  }

  void note(uint64_t value) { digest_ = mixed_bits(digest_, value + 1); }

  Chance draw_;
  bool faults_;
  SimulatedEngine* engine_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Client> clients_;
  uint64_t digest_ = 1;
};

/// PLAIT_SEED=N runs that one only, PLAIT_SEEDS=N so many.
uint64_t run_seeds(uint64_t count, bool faults) {
  const char* one = std::getenv("PLAIT_SEED");
  const char* many = std::getenv("PLAIT_SEEDS");
  if (many) count = std::strtoull(many, nullptr, 10);
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 0;
  uint64_t digest = 0;
  for (uint64_t seed = first; seed < (one ? first + 1 : count); ++seed) {
    World world(seed, faults);
    const std::string wrong = world.run();
    EXPECT_EQ(wrong, "") << "PLAIT_SEED=" << seed << (faults ? " with memory faults" : "");
    digest = mixed_bits(digest, world.digest());
    if (testing::Test::HasFailure() && !one) break;
  }
  return digest;
}

TEST(SimulatedScheduler, KeepsItsPromises) {
  run_seeds(2000, false);
  if (!std::getenv("PLAIT_SEED") && !std::getenv("PLAIT_SEEDS")) EXPECT_EQ(run_seeds(50, false), run_seeds(50, false));
}

TEST(SimulatedScheduler, LosesNothingWithoutMemory) {
  const int64_t before = MemoryFault::happened;
  run_seeds(500, true);
  if (!std::getenv("PLAIT_SEED")) EXPECT_GT(MemoryFault::happened, before) << "no fault happened";
}

}  // namespace
}  // namespace plait
