// Many requests at a time, of which a third are cancelled: the others get what each gets by itself, and nothing is left of them.
//
// usage: soak MODEL REQUESTS [OPTION=VALUE...]     options of a generator
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings/c/plait.hpp"

namespace {

constexpr int kinds = 12, together = 24, longest = 20;

/// A request of each kind is the same each time: greedy, or drawn with a seed.
plait_api::Request submit(const plait_api::Generator& generator, int kind) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 1 + kind * 3; ++i) prompt.push_back(3 + (kind * 7 + i * i) % 50);
  plait_api::Options options;
  options.set("max_tokens", 4 + kind * (longest - 4) / kinds).set("ignore_eos", "true").set("seed", kind);
  options.set("temperature", kind % 3 ? "0" : "0.8");
  return generator.submit(prompt, options);
}

/// The tokens that come until the end, or until `most` have come.
std::vector<int32_t> tokens(const plait_api::Request& request, size_t most = SIZE_MAX) {
  std::vector<int32_t> out;
  plait_event event{};
  while (out.size() < most && request.next(event) && event.kind != PLAIT_EVENT_END)
    if (event.token >= 0) out.push_back(event.token);
  return out;
}

/// Once nothing runs: a request's last event comes before its step ends. Waits at most 10 s.
plait_generator_stats at_rest(const plait_api::Generator& generator) {
  plait_generator_stats out{};
  for (int i = 0; i < 1000; ++i) {
    out = generator.statistics();
    if (!out.running && !out.waiting && out.pages_free == out.pages) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return out;
}

struct Running {
  int kind, number;
  plait_api::Request request;
};

int run(int count, char** words) {
  const plait_api::Model model(words[1]);
  plait_api::Options options;
  for (int i = 3; i < count; ++i) {
    const std::string word = words[i];
    const size_t at = word.find('=');
    if (at == std::string::npos) throw std::runtime_error("expected OPTION=VALUE: " + word);
    options.set(word.substr(0, at), word.substr(at + 1));
  }
  const plait_api::Generator generator(model, options);
  generator.wait();
  std::vector<std::vector<int32_t>> alone;
  for (int kind = 0; kind < kinds; ++kind) alone.push_back(tokens(submit(generator, kind)));
  const plait_generator_stats before = at_rest(generator);

  const int requests = std::atoi(words[2]);
  std::deque<Running> running;
  int cancelled = 0, wrong = 0;
  for (int i = 0; i < requests || !running.empty();) {
    while (i < requests && running.size() < together) {
      running.push_back({i % kinds, i, submit(generator, i % kinds)});
      ++i;
    }
    const Running one = std::move(running.front());
    running.pop_front();
    if (one.number % 3 == 1) {  // some before their first token
      tokens(one.request, static_cast<size_t>(one.number / 3 % 4));
      one.request.cancel();
      tokens(one.request);
      ++cancelled;
    } else if (tokens(one.request) != alone[static_cast<size_t>(one.kind)]) {
      std::printf("request %d, of kind %d, has other tokens than by itself\n", one.number, one.kind);
      ++wrong;
    }
  }
  const plait_generator_stats after = at_rest(generator);
  const int64_t left = after.running + after.waiting;
  std::printf(
      "%d requests, %d of them cancelled, up to %d at a time: %d wrong, %lld left, %lld of %lld pages free, %lld "
      "before\n",
      requests, cancelled, together, wrong, static_cast<long long>(left), static_cast<long long>(after.pages_free),
      static_cast<long long>(after.pages), static_cast<long long>(before.pages_free));
  return wrong || left || after.pages_free != before.pages_free || after.states_free != before.states_free;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: soak MODEL REQUESTS [OPTION=VALUE...]\n");
    return 2;
  }
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return 1;
  }
}
