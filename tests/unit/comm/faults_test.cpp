// Rank k fails at step n: every other rank hears of it, by name, in bounded time, whatever it was doing.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include "core/base/text.h"
#include "core/comm/hub.h"
#include "core/comm/mpi_world.h"
#include "core/comm/transfer.h"
#include "tests/unit/comm/ranks.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/support/process_fault.h"

namespace plait {
namespace {

using testing::HasSubstr;

constexpr int steps = 8;

/// One of `steps` ways to need the other ranks.
void work(Communicator& all, Communicator& pair, int step) {
  Buffer small(DType::f32, 64), large(DType::f32, 100000), part(DType::f32, 64 / all.size());
  for (Buffer* buffer : {&small, &large, &part}) buffer->fill([](int64_t) { return 0; });
  switch (step % steps) {
    case 0: return all.all_reduce(small.view(), Reduction::sum);
    case 1: return all.all_reduce(large.view(), Reduction::max);
    case 2: return all.all_gather(part.view(), small.part(0, part.size() * all.size()));
    case 3: return all.barrier();
    case 4: return all.broadcast(large.view(), all.size() - 1);
    case 5: return all.all_to_all(small.view(), small.view());
    case 6: {
      const int next = (all.rank() + 1) % all.size(), before = (all.rank() + all.size() - 1) % all.size();
      all.send(small.view(), next, 7);
      all.send(large.view(), next);
      all.recv(large.view(), before, 0, Patience::progress);
      return all.recv(small.view(), before, 7, Patience::progress);
    }
    default: return pair.all_reduce(large.view(), Reduction::sum);
  }
}

/// Works until that throws, which it must soon, naming `culprit`; and so must everything after it.
void expect_failure_of(int culprit, Communicator& all, std::string_view why, double bound_s) {
  const auto start = Clock::now();
  std::unique_ptr<Communicator> pair;
  try {
    pair = all.split(all.rank() / 2, 0);
    for (int step = 0; seconds_since(start) < 2 * bound_s; ++step) work(all, *pair, step);
    ADD_FAILURE() << "rank " << all.rank() << " never heard of the failure";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr(cat("rank ", culprit)));
    EXPECT_THAT(error.message(), HasSubstr(std::string(why)));
    EXPECT_EQ(all.failed_rank(), culprit) << error.message();
  }
  EXPECT_LT(seconds_since(start), bound_s);
  for (int step = 0; step < steps; ++step) EXPECT_THROW(work(all, pair ? *pair : all, step), Error) << step;
  EXPECT_THROW(all.split(0, 0), Error);
}

enum class Fault { throws, stalls, leaves };

void fail_at(Fault fault, int culprit, int step, std::string_view why) {
  SCOPED_TRACE(cat("rank ", culprit, " at step ", step, ": ", why));
  const double load = test::machine_load();
  CommOptions options;
  options.deadline_s = fault == Fault::stalls ? load : never_s;
  on_threads(4, options, [&](std::unique_ptr<World> world) {
    Communicator& all = world->communicator();
    if (all.rank() != culprit) return expect_failure_of(culprit, all, why, bound_s * load);
    auto pair = all.split(all.rank() / 2, 0);
    for (int i = 0; i < step; ++i) work(all, *pair, i);
    switch (fault) {
      case Fault::throws: return all.abort("no weights");
      case Fault::stalls:
        while (all.failed_rank() < 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_THROW(all.barrier(), Error);
        return;
      case Fault::leaves: pair.reset(); world.reset();
    }
  });
}

/// With PLAIT_ALL_FAULTS every rank at every step, otherwise some.
void fail_everywhere(Fault fault, std::string_view why) {
  const bool all = std::getenv("PLAIT_ALL_FAULTS");
  for (int culprit = 0; culprit < 4; ++culprit)
    for (int step = 0; step <= steps; ++step)
      if (all || (culprit * 3 + step) % 12 == 7) fail_at(fault, culprit, step, why);
}

TEST(Faults, ARankThatAborts) { fail_everywhere(Fault::throws, "aborted the world: no weights"); }
TEST(Faults, ARankThatStalls) { fail_everywhere(Fault::stalls, "does not come"); }
TEST(Faults, ARankThatLeaves) { fail_everywhere(Fault::leaves, "left the world"); }

/// What each of two ranks throws when they do that.
std::pair<std::string, std::string> errors_of(const std::function<void(Communicator&)>& first,
                                              const std::function<void(Communicator&)>& second) {
  std::string messages[2];
  on_threads(2, {}, [&](std::unique_ptr<World> world) {
    Communicator& all = world->communicator();
    try {
      (all.rank() == 0 ? first : second)(all);
      all.barrier();  // a rank that looked away finds out by its next call
      messages[all.rank()] = "no error";
    } catch (const Error& error) {
      messages[all.rank()] = cat(code_name(error.code()), ": ", error.message());
    }
  });
  return {messages[0], messages[1]};
}

TEST(Faults, DifferentCallsAreNamedOnBothRanks) {
  auto reduce = [](DType dtype, int64_t size, Reduction reduction) {
    return [=](Communicator& all) {
      Buffer data(dtype, size);
      data.fill([](int64_t) { return 0; });
      all.all_reduce(data.view(), reduction);
    };
  };
  auto broadcast = [](int root) {
    return [=](Communicator& all) { all.broadcast(Buffer(DType::f32, 4).view(), root); };
  };
  auto barrier = [](Communicator& all) { all.barrier(); };
  const auto base = reduce(DType::f32, 4, Reduction::sum);
  const std::string base_text = "all_reduce(sum, f32, 16 bytes)";
  const std::pair<std::function<void(Communicator&)>, std::string> others[] = {
      {reduce(DType::f32, 5, Reduction::sum), "all_reduce(sum, f32, 20 bytes)"},
      {reduce(DType::f32, 1000000, Reduction::sum), "all_reduce(sum, f32, 4000000 bytes)"},
      {reduce(DType::i32, 4, Reduction::sum), "all_reduce(sum, i32, 16 bytes)"},
      {reduce(DType::f32, 4, Reduction::max), "all_reduce(max, f32, 16 bytes)"},
      {broadcast(0), "broadcast(root 0, f32, 16 bytes)"},
      {barrier, "barrier"},
  };
  for (const auto& [call, text] : others) {
    const auto [first, second] = errors_of(base, call);
    for (const auto& message : {first, second}) {
      EXPECT_THAT(message, HasSubstr("invalid_argument"));
      EXPECT_THAT(message, HasSubstr("rank 0 calls " + base_text));
      EXPECT_THAT(message, HasSubstr("rank 1 calls " + text));
    }
  }
  const auto [first, second] = errors_of(broadcast(0), broadcast(1));
  EXPECT_EQ(first, second);
  EXPECT_THAT(first, HasSubstr("root 1"));
}

TEST(Faults, MailOfAnotherSizeIsNamedOnBothRanks) {
  const auto [sender, receiver] = errors_of([](Communicator& all) { all.send(Buffer(DType::f32, 4).view(), 1); },
                                            [](Communicator& all) { all.recv(Buffer(DType::f32, 5).view(), 0); });
  EXPECT_EQ(sender, receiver);
  EXPECT_THAT(sender, HasSubstr("rank 1 receives f32, 20 bytes, rank 0 calls send(f32, 16 bytes)"));
}

// Two ranks that wait for each other, and a chain whose end is the culprit.
TEST(Faults, DeadlocksEnd) {
  CommOptions options;
  options.deadline_s = 0.2;
  on_threads(2, options, [](std::unique_ptr<World> world) {
    Buffer data(DType::f32, 4);
    EXPECT_THROW(world->communicator().recv(data.view(), 1 - world->rank()), Error);
  });
  options.deadline_s = test::machine_load();
  on_threads(4, options, [](std::unique_ptr<World> world) {
    Communicator& all = world->communicator();
    Buffer data(DType::f32, 4);
    if (all.rank() == 3) {
      while (all.failed_rank() < 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    EXPECT_THROW(all.recv(data.view(), all.rank() + 1), Error);
    EXPECT_EQ(all.failed_rank(), 3);
  });
}

TEST(Faults, CommandsAreWaitedForBeyondTheDeadline) {
  CommOptions options;
  options.deadline_s = 0.1;
  on_threads(2, options, [](std::unique_ptr<World> world) {
    if (world->rank() == 1) {
      EXPECT_EQ(world->next_command().size(), 3u);
      EXPECT_THROW(world->next_command(), Error);  // rank 0 has left
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    world->broadcast_command(std::as_bytes(std::span("go")));
  });
}

TEST(Faults, AnAbortWakesWhoWaitsForCommands) {
  on_threads(3, {}, [](std::unique_ptr<World> world) {
    if (world->rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return world->communicator().abort("enough");
    }
    const auto start = Clock::now();
    if (world->rank() == 1) EXPECT_THROW(world->next_command(), Error);
    else EXPECT_THROW(world->communicator().barrier(), Error);
    EXPECT_LT(seconds_since(start), bound_s * test::machine_load());
  });
}

// Another thread of the host may end it, at any time.
TEST(Faults, AbortFromAnotherThread) {
  on_threads(2, {}, [](std::unique_ptr<World> world) {
    if (world->rank() == 1) {
      auto other = std::async(std::launch::async, [&] { world->communicator().abort("host closes"); });
      EXPECT_THROW(while (true) world->communicator().barrier(), Error);
    } else {
      EXPECT_THROW(while (true) world->communicator().barrier(), Error);
    }
    EXPECT_EQ(world->communicator().failed_rank(), 1);
  });
}

TEST(Faults, TooMuchInFlightIsRefusedAndTheWorldGoesOn) {
  CommOptions options;
  options.in_flight_bytes = 1 << 20;
  on_threads(2, options, [](std::unique_ptr<World> world) {
    Communicator& all = world->communicator();
    Buffer data(DType::f32, 200000);
    if (all.rank() == 0) {
      all.send(data.view(), 1);
      EXPECT_THROW(all.send(data.view(), 1), Error);
      all.barrier();
      all.barrier();
      all.send(data.view(), 1);
      for (int i = 0; i < 1023; ++i) all.send(data.part(0, 1), 1);
      EXPECT_THROW(all.send(data.part(0, 1), 1), Error);
      all.barrier();
    } else {
      all.barrier();
      all.recv(data.view(), 0);
      all.barrier();
      all.barrier();
      all.recv(data.view(), 0);
      for (int i = 0; i < 1023; ++i) all.recv(data.part(0, 1), 0);
    }
    EXPECT_EQ(all.failed_rank(), -1);
  });
}

/// However large the data, and however many ranks send at once.
TEST(Faults, PiecesWaitForTheirReceiver) {
  CommOptions options;
  options.in_flight_bytes = 3 << 20;
  on_threads(3, options, [](std::unique_ptr<World> world) {
    Communicator& all = world->communicator();
    for (int64_t count : {0, 1, 1 << 18, (5 << 18) + 7}) {
      std::vector<float> numbers(static_cast<size_t>(count));
      const TensorView view{reinterpret_cast<std::byte*>(numbers.data()), DType::f32, {count}};
      for (int from : {2, 1}) {
        auto expected = [&](int64_t i) { return static_cast<float>(i * from); };
        if (all.rank() == from) {
          for (int64_t i = 0; i < count; ++i) numbers[static_cast<size_t>(i)] = expected(i);
          send_pieces(all, view, 0);
        } else if (all.rank() == 0) {
          receive_pieces(all, view, from);
          for (int64_t i = 0; i < count; i += 997) ASSERT_EQ(numbers[static_cast<size_t>(i)], expected(i));
        }
      }
    }
    all.barrier();
  });
}

TEST(Faults, ANewWorldAfterOneIsOver) {
  for (int round = 0; round < 20; ++round)
    on_threads(2, {}, [&](std::unique_ptr<World> world) {
      world->communicator().barrier();
      if (world->rank() == round % 2) world->communicator().abort("again");
      EXPECT_THROW(while (true) world->communicator().barrier(), Error);
    });
}

TEST(Faults, OptionsThatCannotBe) {
  CommOptions options;
  options.deadline_s = 0;
  EXPECT_THROW(make_thread_world(2, options), Error);
  EXPECT_THROW(make_thread_world(0), Error);
}

// mpi_faults.py runs this under mpirun; PLAIT_FAULT specifies what fails where: "dies 2 5". A rank that hears of it
// can still have a world of threads, and prints a line that the script counts.
TEST(Faults, OfProcesses) {
  const auto asked = test::ProcessFault::asked();
  if (!asked) GTEST_SKIP() << "only under mpi_faults.py";
  const auto& [fault, culprit, last, options, bound_s] = *asked;
  auto world = open_test_world(options);
  Communicator& all = world->communicator();
  if (all.rank() == culprit) {
    auto pair = all.split(all.rank() / 2, 0);
    for (int step = 0; step < last; ++step) work(all, *pair, step);
    if (fault == "dies") raise(SIGKILL);
    if (fault == "throws") return all.abort("no weights");
    asked->stall();
    EXPECT_THROW(while (true) all.barrier(), Error);
    return;
  }
  expect_failure_of(culprit, all, "", bound_s);
  const auto start = Clock::now();
  world.reset();
  EXPECT_LT(seconds_since(start), bound_s);
  on_threads(2, {}, [](std::unique_ptr<World> threads) { threads->communicator().barrier(); });
  if (!HasFailure()) std::printf("a rank heard of it\n");
}

TEST(Faults, PluginsThatCannotBe) {
  try {
    open_mpi_world({}, "/nowhere/plait_mpi.so");
    FAIL() << "a world without a plug-in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.message(), HasSubstr("/nowhere/plait_mpi.so"));
  }
  try {
    open_mpi_world({}, "libm.so.6");
    FAIL() << "a world without a table";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
  }
}

// Who waits without end for a rank on another machine hears that it lives, however long that takes, and continues
// until the rank has been silent for a deadline.
TEST(Waiting, EndsWithTheSilenceOfARankElsewhere) {
  const double load = test::machine_load();
  CommOptions options;
  options.deadline_s = 0.2 * load;
  Hub hub(Mapping::within_process(Hub::bytes(2)), 0, 2, false, options);
  hub.expect_life(1);
  const auto start = Clock::now();
  hub.listen = [&] {
    if (seconds_since(start) < 0.5 * load) hub.hear({News::Kind::lives, 1});
  };
  try {
    hub.poll({1, [] { return false; }, [] { return std::string("report"); }, Patience::unlimited});
    FAIL() << "a rank that never comes has come";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::closed);
    EXPECT_THAT(error.message(), HasSubstr("rank 1 has been silent for "));
  }
  EXPECT_EQ(hub.culprit(), 1);
  EXPECT_GT(seconds_since(start), 0.6 * load);
  EXPECT_LT(seconds_since(start), bound_s * load);
}

// An idle rank sleeps: it takes hardly any of the processor's time.
TEST(Waiting, IsAsleep) {
  on_threads(2, {}, [](std::unique_ptr<World> world) {
    if (world->rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return world->broadcast_command({});
    }
    auto used_s = [] {
      timespec time;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    const double before = used_s();
    world->next_command();
    EXPECT_LT(used_s() - before, 0.01);  // 50 us of spinning; sanitizers make system calls slow
  });
}

}  // namespace
}  // namespace plait
