// The ranks of one process, and the groups that they split the world into.
#include <gmock/gmock.h>

#include <set>

#include "core/mesh/mesh.h"
#include "core/ranks/local_ranks.h"
#include "core/ranks/program_groups.h"
#include "tests/unit/ranks/engine.h"

namespace plait::test {
namespace {

using testing::HasSubstr;

TEST(LocalRanks, EachRankKeepsItsThread) {
  LocalRanks ranks(3);
  EXPECT_EQ(ranks.count(), 3);
  std::vector<std::thread::id> first(3), second(3);
  ranks.run([&](int64_t local) { first[static_cast<size_t>(local)] = std::this_thread::get_id(); });
  for (int i = 0; i < 200; ++i)
    ranks.run([&](int64_t local) { second[static_cast<size_t>(local)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 3u);
}

TEST(LocalRanks, GatherReturnsByRank) {
  LocalRanks ranks(4);
  EXPECT_EQ(ranks.gather([&](int64_t local) {
    Counter counter{local};
    counter.sum(*ranks.world(local));
    return counter.number * 10 + ranks.rank(local);
  }),
            (std::vector<int64_t>{60, 61, 62, 63}));
}

TEST(LocalRanks, OneRankHasNoWorld) {
  LocalRanks ranks(1);
  EXPECT_EQ(ranks.world(0), nullptr);
  EXPECT_EQ(ranks.gather([](int64_t local) { return local + 1; }), (std::vector<int64_t>{1}));
}

TEST(LocalRanks, ARankOfProcesses) {
  auto worlds = make_thread_world(2);
  LocalRanks ranks(*worlds[1]);
  EXPECT_EQ(ranks.count(), 1);
  EXPECT_EQ(ranks.rank(0), 1);
  EXPECT_EQ(ranks.world(0), worlds[1].get());
}

TEST(LocalRanks, AnErrorThatConcernsNoOtherRankLeavesTheWorld) {
  LocalRanks ranks(3);
  for (int64_t culprit = 0; culprit < 3; ++culprit) {
    std::atomic<int> ended = 0;
    const Error error = thrown_by([&] {
      ranks.run([&](int64_t local) {
        ++ended;
        if (local >= culprit) throw Error(Code::io, cat("rank ", local));
      });
    });
    EXPECT_EQ(error.message(), cat("rank ", culprit)) << "the lowest rank's";
    EXPECT_EQ(ended, 3) << "all have ended";
  }
  ranks.run_together([&](int64_t local) { ranks.world(local)->communicator().barrier(); });
}

/// Every rank waits for the others; the error is that of the rank that failed, with its code, not that the world is over.
TEST(LocalRanks, AnErrorAmongRanksThatWaitEndsTheWorld) {
  for (int64_t culprit = 0; culprit < 4; ++culprit) {
    LocalRanks ranks(4);
    const Error error = thrown_by([&] {
      ranks.run_together([&](int64_t local) {
        ranks.world(local)->communicator().barrier();
        if (local == culprit) throw Error(Code::numeric, "a fault for the test");
        ranks.world(local)->communicator().barrier();
      });
    });
    EXPECT_EQ(error.code(), Code::numeric);
    EXPECT_EQ(error.message(), "a fault for the test");
    EXPECT_EQ(ranks.world(0)->communicator().failed_rank(), culprit);
    EXPECT_EQ(thrown_by([&] {
                ranks.run_together([&](int64_t local) { ranks.world(local)->communicator().barrier(); });
              }).code(),
              Code::closed);
  }
}

/// Groups along the axes of a mesh of 4; a second program shares those that the first has.
TEST(ProgramGroups, AreThoseOfTheProgram) {
  const Mesh mesh = Mesh::parse("data=2,tensor=2");
  LocalRanks ranks(4);
  const std::shared_ptr<Device> device = make_host_device();
  const auto sums = ranks.gather([&](int64_t rank) {
    Program first, second;
    const auto group = [&](std::string_view axis) {
      const std::vector<int64_t> members = mesh.group(rank, mesh.parts(axis));
      return std::vector<int32_t>(members.begin(), members.end());
    };
    first.groups = {group("tensor")};
    second.groups = {group("data"), group("tensor"), {0, 1, 2, 3}};
    int made = 0;
    ProgramGroups groups(
        rank, [&, split = split_world(*ranks.world(rank), *device)](std::span<const int32_t> members, int64_t index) {
          ++made;
          EXPECT_EQ(members[static_cast<size_t>(index)], rank);
          return split(members, index);
        });
    Communicator* const tensor = groups.of(first).at(0);
    const std::vector<Communicator*> all = groups.of(second);
    EXPECT_EQ(all.at(1), tensor);
    EXPECT_EQ(made, 3);
    std::vector<int64_t> out;
    for (Communicator* one : all) {
      int64_t number = int64_t{1} << rank;
      one->all_reduce({reinterpret_cast<std::byte*>(&number), DType::i64, {1}}, Reduction::sum);
      out.push_back(number);
    }
    return out;
  });
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(sums[rank], (std::vector<int64_t>{rank % 2 ? 0b1010 : 0b0101, rank / 2 ? 0b1100 : 0b0011, 0b1111}));
}

TEST(Mesh, AxesThatCannotBeUsedAreNamed) {
  Mesh::parse("pipeline=1,data=2").require_axes({"data", "tensor"}, "generation");
  const Error error = thrown_by([] {
    Mesh::parse("pipeline=2,data=2").require_axes({"data", "tensor"}, "generation");
  });
  EXPECT_EQ(error.code(), Code::unsupported);
  EXPECT_THAT(error.message(), HasSubstr("has an axis pipeline, which generation cannot use"));
  EXPECT_THAT(error.hint(), HasSubstr("data and tensor"));
}

}  // namespace
}  // namespace plait::test
