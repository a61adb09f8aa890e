// Mail with tags: order, what is set aside, patience, shaped links.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "core/base/text.h"
#include "tests/unit/comm/ranks.h"
#include "tests/unit/support/machine_load.h"

namespace plait {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class Mail : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Mail, testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param.name; });

/// Tests that take long: on one of each kind of transport.
class SlowMail : public testing::TestWithParam<Transport> {};
std::vector<Transport> one_of_each() {
  std::vector<Transport> out = transports();
  std::erase_if(out, [](const Transport& one) { return one.delayed || one.threads == 1 || one.threads > 3; });
  return out;
}
INSTANTIATE_TEST_SUITE_P(Ranks, SlowMail, testing::ValuesIn(one_of_each()),
                         [](const auto& info) { return info.param.name; });

/// What a message has at `i`.
double content(int from, int64_t tag, int turn, int64_t i) {
  return static_cast<double>((from * 31 + tag * 7 + turn * 3 + i) % 101);
}

// All ranks send each other messages of five tags, three turns of each; they are received by tag, in the other order.
TEST_P(Mail, IsReceivedByTag) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    const int64_t tags[] = {0, 1, -4, int64_t{1} << 40, 77};
    auto length = [](int64_t tag, int turn) { return (tag % 5 + 5) * 1000 + turn; };
    for (int turn = 0; turn < 3; ++turn)
      for (const int64_t tag : tags)
        for (int to = 0; to < all.size(); ++to) {
          Buffer data(DType::f32, length(tag, turn));
          data.fill([&](int64_t i) { return content(all.rank(), tag, turn, i); });
          all.send(data.view(), to, tag);
        }
    for (auto tag = std::rbegin(tags); tag != std::rend(tags); ++tag)
      for (int from = all.size() - 1; from >= 0; --from)
        for (int turn = 0; turn < 3; ++turn) {
          Buffer data(DType::f32, length(*tag, turn), 1);
          all.recv(data.view(), from, *tag);
          ASSERT_EQ(data.difference([&](int64_t i) { return content(from, *tag, turn, i); }), "");
        }
    all.barrier();
  });
}

// Two stages and their credits: values one way, eight bytes back for each, and gradients between them.
TEST_P(Mail, CarriesCredits) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    const int other = all.rank() ^ 1;
    if (other < all.size())
      for (int k = 0; k < 200; ++k) {
        Buffer values(DType::f32, 333), credit(DType::i64, 1);
        auto content_of = [&](int from) { return [=](int64_t i) { return content(from, k, 0, i); }; };
        values.fill(content_of(all.rank()));
        all.send(values.view(), other, 2 * k);
        if (k) all.recv(credit.view(), other, 2 * k - 1);
        EXPECT_EQ(k ? credit.get(0) : 0, k);
        all.recv(values.view(), other, 2 * k, Patience::progress);
        ASSERT_EQ(values.difference(content_of(other)), "");
        credit.set(0, k + 1);
        all.send(credit.view(), other, 2 * k + 1);
      }
    if (other < all.size()) {
      Buffer credit(DType::i64, 1);
      all.recv(credit.view(), other, 399);
    }
    all.barrier();
  });
}

// Rank 0 is busy for more than two deadlines, and the others wait for it: it still does something now and then.
TEST_P(SlowMail, IsWaitedForWhileTheWorldMakesProgress) {
  CommOptions options;
  const double load = test::machine_load();
  options.deadline_s = 0.8 * load;
  on_ranks(
      GetParam(),
      [load](World& world) {
        Communicator& all = world.communicator();
        Buffer data(DType::f32, 5);
        if (all.rank() != 0) return all.recv(data.view(), 0, 99, Patience::progress);
        for (int i = 0; i < 10; ++i) {
          sleep_s(0.2 * load);
          all.send(data.view(), 0, i);
          all.recv(data.view(), 0, i);
        }
        for (int to = 1; to < all.size(); ++to) all.send(data.view(), to, 99);
      },
      options, "_progress");
}

double now_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

TEST_P(SlowMail, TakesAsLongAsItsLink) {
  CommOptions options;
  options.link = [](int from, int to, int64_t bytes) {  // 20 ms, 10 MB/s; the way back is free
    return from < to ? 0.02 + static_cast<double>(bytes) / 1e7 : 0;
  };
  on_ranks(
      GetParam(),
      [](World& world) {
        Communicator& all = world.communicator();
        Buffer data(DType::f32, 50000), start(DType::f64, 1);  // 20 ms of transfer
        all.barrier();
        if (all.rank() == 0) {
          start.set(0, now_s());
          for (int i = 0; i < 3; ++i) all.send(data.view(), 1, i);
          const double sent_s = now_s() - start.get(0);
          all.send(start.view(), 1, 3);
          EXPECT_LT(sent_s, 0.04 * test::machine_load()) << "a send returns at once";
        }
        if (all.rank() == 1) {
          // They leave the link one after the other, and arrive after 40, 60 and 80 ms.
          double arrived[3];
          for (int i = 0; i < 3; ++i) {
            all.recv(data.view(), 0, i);
            arrived[i] = now_s();
          }
          all.recv(start.view(), 0, 3);
          for (int i = 0; i < 3; ++i) EXPECT_GE(arrived[i] - start.get(0), 0.02 * (i + 2) - 1e-6) << i;
          EXPECT_LT(arrived[2] - start.get(0), 0.08 + 0.3 * test::machine_load());
        }
        all.barrier();
        const double step = now_s();
        all.all_reduce(data.part(0, 16), Reduction::max);
        EXPECT_GE(now_s() - step, all.rank() == 0 ? 0.02 : 0);
      },
      options, "_link");
}

/// What each rank of a world of threads throws; "no error" if nothing.
std::vector<std::string> thrown_by(int size, const CommOptions& options,
                                   const std::function<void(std::unique_ptr<World>&)>& rank) {
  std::vector<std::string> out(static_cast<size_t>(size), "no error");
  on_threads(size, options, [&](std::unique_ptr<World> world) {
    const int own = world->rank();
    try {
      rank(world);
    } catch (const Error& error) {
      out[static_cast<size_t>(own)] = cat(code_name(error.code()), ": ", error.message());
    }
  });
  return out;
}

CommOptions with_deadline(double seconds) {
  CommOptions out;
  out.deadline_s = seconds;
  return out;
}

TEST(MailFaults, AnotherSizeOfATagIsNamedOnBothRanks) {
  for (const bool aside : {false, true}) {
    const auto errors = thrown_by(2, {}, [&](std::unique_ptr<World>& world) {
      Communicator& all = world->communicator();
      Buffer four(DType::f32, 4), five(DType::i32, 5);
      if (world->rank() == 0) {
        all.send(four.view(), 1, 3);
        all.send(four.view(), 1, 4);
      } else {
        if (aside) all.recv(four.view(), 0, 4);
        all.recv(five.view(), 0, 3);
      }
      all.barrier();
    });
    for (const auto& error : errors)
      EXPECT_THAT(error, HasSubstr("rank 1 receives i32, 20 bytes, tag 3, rank 0 calls send(f32, 16 bytes, tag 3)"));
  }
}

TEST(MailFaults, ATagThatNeverComesIsNamedWithThoseThatDid) {
  for (const Patience patience : {Patience::deadline, Patience::progress}) {
    const auto errors = thrown_by(2, with_deadline(0.2 * test::machine_load()), [&](std::unique_ptr<World>& world) {
      Communicator& all = world->communicator();
      Buffer data(DType::f32, 4);
      if (world->rank() == 1) return all.recv(data.view(), 0, 5, patience);
      for (int tag = 20; tag < 32; ++tag) all.send(data.view(), 1, tag);
      while (all.failed_rank() < 0) sleep_s(0.005);
    });
    EXPECT_THAT(errors[1],
                AllOf(HasSubstr("rank 0's send(f32, 16 bytes, tag 5), having set aside tags 20, 21, 22, 23, "
                                "24, 25, 26, 27 and 4 more"),
                      HasSubstr("does not come")));
  }
}

// Ranks 1 to 3 wait for each other in a chain, patiently; rank 0 at its end does nothing.
TEST(MailFaults, ARankThatStandsStillIsFound) {
  const double load = test::machine_load();
  const auto start = Clock::now();
  const auto errors = thrown_by(4, with_deadline(0.5 * load), [](std::unique_ptr<World>& world) {
    Communicator& all = world->communicator();
    Buffer data(DType::f32, 4);
    if (world->rank() != 0) return all.recv(data.view(), world->rank() - 1, 1, Patience::progress);
    while (all.failed_rank() < 0) sleep_s(0.005);
    all.barrier();
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("closed: rank "), HasSubstr("while no rank made progress for"),
                             HasSubstr("rank 0 does not come")));
  EXPECT_LT(seconds_since(start), bound_s * load);
}

// Without patience the deadline counts from the call.
TEST(MailFaults, ProgressOfOthersDoesNotHelpWhoHasADeadline) {
  const auto errors = thrown_by(2, with_deadline(0.2), [](std::unique_ptr<World>& world) {
    Communicator& all = world->communicator();
    Buffer data(DType::f32, 4);
    if (world->rank() == 1) return all.recv(data.view(), 0, 1);
    while (all.failed_rank() < 0) {
      all.send(data.view(), 0);
      all.recv(data.view(), 0);
      sleep_s(0.01);
    }
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 0 does not come"));
}

TEST(MailFaults, ARankThatThrowsOrLeavesIsFoundAtOnce) {
  const double load = test::machine_load();
  for (const bool leaves : {false, true}) {
    const auto start = Clock::now();
    const auto errors = thrown_by(3, with_deadline(never_s), [&](std::unique_ptr<World>& world) {
      Communicator& all = world->communicator();
      Buffer data(DType::f32, 4);
      if (world->rank() == 1) return all.recv(data.view(), 0, 5, Patience::progress);
      if (world->rank() == 2) return all.recv(data.view(), 1, 5, Patience::progress);
      all.send(data.view(), 1, 6);
      sleep_s(0.05);
      if (leaves) world.reset();
      else all.abort("no weights");
    });
    for (const int rank : {1, 2})
      EXPECT_THAT(errors[static_cast<size_t>(rank)],
                  HasSubstr(leaves ? "rank 0 left the world while rank 1 waited for its send(f32"
                                   : "rank 0 aborted the world: no weights"));
    EXPECT_LT(seconds_since(start), bound_s * load);
  }
}

// What has been set aside is there after its sender has left, unless the world is over.
TEST(MailFaults, WhatIsSetAsideOutlivesItsSender) {
  const auto errors = thrown_by(2, {}, [](std::unique_ptr<World>& world) {
    Buffer data(DType::f32, 4);
    if (world->rank() == 0) {
      for (const int tag : {1, 2, 3}) world->communicator().send(data.view(), 1, tag);
      world.reset();
      return;
    }
    Communicator& all = world->communicator();
    for (const int tag : {3, 2}) all.recv(data.view(), 0, tag);
    all.abort("enough");
    all.recv(data.view(), 0, 1);
  });
  EXPECT_EQ(errors[0], "no error");
  EXPECT_THAT(errors[1], HasSubstr("enough"));
}

TEST(MailFaults, OnlySoMuchIsSetAside) {
  CommOptions options;
  options.in_flight_bytes = 1 << 20;
  const auto errors = thrown_by(2, options, [](std::unique_ptr<World>& world) {
    Communicator& all = world->communicator();
    Buffer data(DType::f32, 100000), small(DType::f32, 1);
    auto send = [&](int tag, int times, const TensorView& what) {
      for (int i = 0; i < times; ++i) all.send(what, 1, tag);
    };
    auto receive = [&](int tag, int times, const TensorView& what) {
      for (int i = 0; i < times; ++i) all.recv(what, 0, tag);
    };
    if (world->rank() == 0) {
      for (const int tag : {0, 1}) send(tag, 1, data.view());
      for (int i = 0; i < 2; ++i) all.barrier();
      for (const int tag : {2, 3}) send(tag, 1, data.view());
      for (int i = 0; i < 2; ++i) all.barrier();
      send(50, 1000, small.view());
      send(52, 1, small.view());
      for (int i = 0; i < 2; ++i) all.barrier();
      send(50, 100, small.view());
      send(51, 1, small.view());
      return all.barrier();
    }
    auto why = [&](int tag) -> std::string {
      try {
        all.recv(data.view(), 0, tag);
      } catch (const Error& error) {
        return cat(code_name(error.code()), ": ", error.message());
      }
      return "no error";
    };
    all.barrier();
    receive(1, 1, data.view());
    for (int i = 0; i < 2; ++i) all.barrier();
    // 0 is set aside, and so is 2; 3 would be too much.
    EXPECT_THAT(why(9), AllOf(HasSubstr("overloaded: rank 1 waits for tag 9 of rank 0"),
                              HasSubstr("2 messages of it, 800"), HasSubstr("send(f32, 400000 bytes, tag 3)")));
    for (const int tag : {0, 3, 2}) receive(tag, 1, data.view());
    for (int i = 0; i < 2; ++i) all.barrier();
    // The number of messages is bounded, too.
    receive(52, 1, small.view());
    for (int i = 0; i < 2; ++i) all.barrier();
    EXPECT_THAT(why(51), HasSubstr("1024 messages of it"));
    receive(50, 1100, small.view());
    receive(51, 1, small.view());
  });
  for (const auto& error : errors) EXPECT_EQ(error, "no error");
}

}  // namespace
}  // namespace plait
