// Whatever the bytes, restoring a conversation gives one that can be continued, or throws plait::Error. They have a
// checksum, which is no protection from those who forge it: it is put right here, so that what is after it is
// reached.
#include <cstring>

#include "core/base/crc32c.h"
#include "serving/scheduler.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/support/adapters.h"

namespace plait::fuzz {
namespace {

Scheduler& scheduler() {
  static auto* instance = [] {
    EngineOptions options = test::small_engine();
    options.threads = 1;
    auto engine = test::engine_with_capacity(test::fixture_graph("gemma3-standard23"), test::capacity_of(1, 2),
                                         test::World::get().options(), options);
    const AdapterWeights adapter = test::random_adapter(engine->decoder(), 2, 1);
    auto* out = new Scheduler(std::move(engine), {}, {});
    out->add_adapter("adapter", adapter);
    return out;
  }();
  return *instance;
}

std::shared_ptr<Conversation> conversation(size_t prompt, const std::string& adapter = "") {
  RequestOptions options;
  options.adapter = adapter;
  for (size_t i = 0; i < prompt; ++i) options.prompt.push_back(static_cast<int32_t>(3 + i * 7 % 500));
  options.max_tokens = 3;
  options.keep = true;
  auto request = scheduler().submit(options);
  while (request->next(std::chrono::milliseconds(-1))) continue;
  return request->conversation();
}

/// What was restored works: its tokens and pages are those of a sequence.
void go_on(std::shared_ptr<Conversation> kept) {
  RequestOptions options;
  options.prompt = {5};
  options.max_tokens = 1;
  options.parent = std::move(kept);
  auto request = scheduler().submit(options);
  while (request->next(std::chrono::milliseconds(-1))) continue;
}

}  // namespace

/// Of less than a page, of several, of more than a window, and with an adapter.
std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (size_t prompt : {2, 20, 70, 21}) {
    auto bytes = scheduler().save(*conversation(prompt, prompt == 21 ? "adapter" : ""));
    out.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

}  // namespace plait::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t mark = 8, header = mark + sizeof(uint32_t);  // serving/scheduler.cpp
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  if (bytes.size() >= header) {
    const uint32_t checksum = plait::crc32c(std::span<const std::byte>(bytes).subspan(header));
    std::memcpy(bytes.data() + mark, &checksum, sizeof checksum);
  }
  try {
    plait::fuzz::go_on(plait::fuzz::scheduler().restore(bytes));
    ++plait::fuzz::accepted;
  } catch (const plait::Error& error) {
    plait::fuzz::check_error(error);
  }
  return 0;
}
