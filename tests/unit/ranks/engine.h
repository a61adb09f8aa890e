#pragma once
// An engine of the tests: a counter on each rank, whose commands fail where a test specifies.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ranks/commands.h"
#include "core/ranks/rank_host.h"
#include "core/ranks/serve_rank.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {

/// Adds to the counter.
struct AddNumber {
  int64_t number = 0;
};
/// The sum of all ranks' counters, which every rank computes.
struct SumCounters {};
/// Each rank reports its counter.
struct TakeCounter {};
/// Each rank loads, and reports when it has.
struct LoadCounter {};
using CounterCommands = CommandSet<AddNumber, SumCounters, TakeCounter, LoadCounter>;

struct Counter {
  int64_t number = 0;

  void sum(World& world) {
    world.communicator().all_reduce({reinterpret_cast<std::byte*>(&number), DType::i64, {1}}, Reduction::sum);
  }
};

inline ProgramIdentities counter_programs() { return {{"count", "1", 1}, {"sum", "2", 1}}; }

/// Where ranks other than 0 behave as a test wants.
struct Script {
  std::function<ProgramIdentities(int rank)> compile = [](int) { return counter_programs(); };
  std::function<void(int rank, int64_t command)> before_command = [](int, int64_t) {};
  std::function<void(LoadProgress* progress)> load = [](LoadProgress*) {};
};

class CounterHandler final : public RankHandler {
 public:
  CounterHandler(World& world, const Script& script, LoadProgress* progress)
      : world_(world), script_(script), progress_(progress), programs_(script.compile(world.rank())) {}

  ProgramIdentities programs() const override { return programs_; }
  void handle(ByteReader& command) override {
    script_.before_command(world_.rank(), commands_++);
    CounterCommands::dispatch(command, *this);
  }
  void handle(const AddNumber& command) { counter_.number += command.number; }
  void handle(const SumCounters&) { counter_.sum(world_); }
  void handle(const TakeCounter&) { report_ok(world_, counter_.number); }
  void handle(const LoadCounter&) {
    report_result(world_, [&] {
      script_.load(progress_);
      report_ok(world_);
    });
  }

 private:
  World& world_;
  const Script& script_;
  LoadProgress* const progress_;
  const ProgramIdentities programs_;
  Counter counter_;
  int64_t commands_ = 0;
};

inline void serve_counter(World& world, const Script& script, LoadProgress* progress = nullptr) {
  serve_rank(world, [&] { return std::make_unique<CounterHandler>(world, script, progress); });
}

/// Rank 0: by threads of the host, or by threads of the test that behave as processes do.
class CounterEngine {
 public:
  CounterEngine(const std::string& mesh, const Script& script, bool processes, double deadline_s = hang_s) {
    CommOptions options;
    options.deadline_s = deadline_s;
    const Mesh parsed = Mesh::parse(mesh);
    if (!processes) {
      host = std::make_unique<RankHost>(parsed, options, [&script](World& world, LoadProgress& progress) {
        serve_counter(world, script, &progress);
      });
      return;
    }
    auto worlds = make_thread_world(static_cast<int>(parsed.ranks()), options);
    for (size_t i = 1; i < worlds.size(); ++i)
      others_.emplace_back([world = std::move(worlds[i]), &script] {
        try {
          serve_counter(*world, script);
        } catch (const Error&) {  // the test looks at what rank 0 throws
        }
      });
    host = std::make_unique<RankHost>(parsed, std::shared_ptr<World>(std::move(worlds[0])));
  }
  ~CounterEngine() {
    host.reset();
    for (std::thread& other : others_) other.join();
  }

  void agree() {
    host->agree([] { return counter_programs(); });
  }
  template <class Command>
  void broadcast(const Command& command) {
    host->broadcast(CounterCommands::encode(command));
  }
  void add(int64_t number) {
    broadcast(AddNumber{number});
    own.number += number;
  }
  void sum() {
    broadcast(SumCounters{});
    own.sum(host->world());
  }
  /// Of ranks 1 to n - 1.
  std::vector<int64_t> counters() {
    broadcast(TakeCounter{});
    std::vector<int64_t> out;
    for (const Report& report : host->gather(host->others(), RankHost::Patience::endless))
      out.push_back(report.as<int64_t>());
    return out;
  }

  std::unique_ptr<RankHost> host;
  Counter own;

 private:
  std::vector<std::thread> others_;
};

/// What `task` throws; Code::ok if nothing.
inline Error thrown_by(const std::function<void()>& task) {
  try {
    task();
  } catch (const Error& error) {
    return error;
  }
  return {Code::ok, ""};
}

}  // namespace plait::test
