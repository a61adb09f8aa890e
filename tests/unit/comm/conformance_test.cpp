// What every transport has to do, on worlds of several sizes. Data are small integers, so that every order of adding
// gives the same and all comparisons are exact; awkward floats have tests of their own.
#include <chrono>
#include <thread>

#include "core/base/text.h"
#include "core/comm/reduce.h"
#include "tests/unit/comm/ranks.h"

namespace plait {
namespace {

class Conformance : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param.name; });

constexpr DType reducible[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::u8,  DType::i8,
                               DType::u16, DType::i16, DType::u32, DType::i32,  DType::u64, DType::i64};
// Of each width, those that are numbers and those that are not.
constexpr DType movable[] = {DType::f32,     DType::f64, DType::f16,  DType::bf16,     DType::u8,    DType::i8,
                             DType::u16,     DType::i16, DType::u32,  DType::i32,      DType::u64,   DType::i64,
                             DType::boolean, DType::c64, DType::c128, DType::f8e4m3fn, DType::f8e5m2};
// None, odd ones; a slot (512 KiB) and a bit for elements of several widths.
std::vector<int64_t> sizes_of(DType dtype) {
  std::vector<int64_t> sizes = {0, 1, 7, 1001};
  if (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::c128)
    sizes.push_back((int64_t{520} << 10) * 8 / dtype_bits(dtype) + 1);
  return sizes;
}
constexpr Reduction reductions[] = {Reduction::sum, Reduction::max, Reduction::min};

/// What rank `rank` has at `i`: 0 to 6, so that eight ranks' sum fits every dtype.
double value(int rank, int64_t i) { return static_cast<double>((i * 5 + rank * 3 + i / 7) % 7); }

double reduced(Reduction reduction, int ranks, int64_t i) {
  double out = value(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = value(rank, i);
    out = reduction == Reduction::sum   ? out + next
          : reduction == Reduction::max ? std::max(out, next)
                                        : std::min(out, next);
  }
  return out;
}

TEST_P(Conformance, LocalRanksCountTheRanksOfAMachine) {
  on_ranks(GetParam(), [](World& world) { EXPECT_EQ(world.local_rank(), world.rank()) << "all are on this machine"; });
}

TEST_P(Conformance, AllReduce) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (DType dtype : reducible)
      for (Reduction reduction : reductions)
        for (int64_t size : sizes_of(dtype)) {
          Buffer data(dtype, size, static_cast<int>(reduction) * 2 % 3);
          data.fill([&](int64_t i) { return value(all.rank(), i); });
          all.all_reduce(data.view(), reduction);
          EXPECT_EQ(data.difference([&](int64_t i) { return reduced(reduction, all.size(), i); }), "");
        }
  });
}

TEST_P(Conformance, ReduceScatter) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (DType dtype : reducible)
      for (Reduction reduction : reductions)
        for (int64_t size : sizes_of(dtype)) {
          Buffer whole(dtype, size * all.size(), 3), part(dtype, size, 1);
          whole.fill([&](int64_t i) { return value(all.rank(), i); });
          auto expected = [&](int64_t i) { return reduced(reduction, all.size(), i + all.rank() * size); };
          all.reduce_scatter(whole.view(), part.view(), reduction);
          EXPECT_EQ(part.difference(expected), "");
          // In place: the part is where it came from.
          TensorView inside = whole.part(all.rank() * size, size);
          all.reduce_scatter(whole.view(), inside, reduction);
          std::memcpy(part.view().data, inside.data, inside.bytes());
          EXPECT_EQ(part.difference(expected), "");
        }
  });
}

TEST_P(Conformance, AllGather) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (DType dtype : movable)
      for (int64_t size : sizes_of(dtype)) {
        Buffer part(dtype, size, 1), whole(dtype, size * all.size(), 5);
        part.fill([&](int64_t i) { return value(all.rank(), i); });
        const int64_t cells = std::max<int64_t>(part.cells(), 1);
        auto expected = [&](int64_t i) { return value(static_cast<int>(i / cells), i % cells); };
        all.all_gather(part.view(), whole.view());
        EXPECT_EQ(whole.difference(expected), "");
        Buffer in_place(dtype, size * all.size());
        std::memcpy(in_place.part(all.rank() * size, size).data, part.view().data, part.view().bytes());
        all.all_gather(in_place.part(all.rank() * size, size), in_place.view());
        EXPECT_EQ(in_place.difference(expected), "");
      }
  });
}

TEST_P(Conformance, AllToAll) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (DType dtype : movable)
      for (int64_t size : sizes_of(dtype)) {
        Buffer from(dtype, size * all.size(), 1), to(dtype, size * all.size(), 2);
        from.fill([&](int64_t i) { return value(all.rank(), i); });
        const int64_t cells = std::max<int64_t>(from.cells() / all.size(), 1);
        auto expected = [&](int64_t i) { return value(static_cast<int>(i / cells), i % cells + all.rank() * cells); };
        all.all_to_all(from.view(), to.view());
        EXPECT_EQ(to.difference(expected), "");
        all.all_to_all(from.view(), from.view());
        EXPECT_EQ(from.difference(expected), "");
      }
  });
}

TEST_P(Conformance, Broadcast) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (int root = 0; root < all.size(); ++root)
      for (DType dtype : movable)
        for (int64_t size : sizes_of(dtype)) {
          Buffer data(dtype, size, 1);
          data.fill([&](int64_t i) { return value(all.rank(), i); });
          all.broadcast(data.view(), root);
          EXPECT_EQ(data.difference([&](int64_t i) { return value(root, i); }), "");
        }
  });
}

// Fractions of a byte move if the parts are whole bytes.
TEST_P(Conformance, PackedElements) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    Buffer part(DType::u4, 6), whole(DType::u4, 6 * all.size());
    part.fill([&](int64_t i) { return value(all.rank(), i); });
    all.all_gather(part.view(), whole.view());
    EXPECT_EQ(whole.difference([&](int64_t i) { return value(static_cast<int>(i / 3), i % 3); }), "");
    Buffer odd(DType::u4, 5), all_odd(DType::u4, 5 * all.size());
    EXPECT_THROW(all.all_gather(odd.view(), all_odd.view()), Error);
    all.broadcast(odd.view(), 0);
  });
}

/// Floats of all magnitudes and signs: sums of them differ with the order of adding.
float awkward(int rank, int64_t i) {
  uint32_t bits = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(rank) * 0x9E3779B9u;
  bits ^= bits >> 15;
  bits *= 0x85EBCA6Bu;
  bits ^= bits >> 13;
  const float mantissa = 1 + static_cast<float>(bits & 0xFFFF) / 65536;
  return std::ldexp(bits & 0x10000 ? -mantissa : mantissa, static_cast<int>(bits >> 17 & 15) - 7);
}

// The definition, one element after the other in the order of ranks: equal bits to it are equal bits to all other
// ranks.
template <class T, class Add>
void expect_in_rank_order(Communicator& all, DType dtype, int64_t size, Add add) {
  Buffer data(dtype, size, size % 2 ? 1 : 0);
  data.fill([&](int64_t i) { return awkward(all.rank(), i); });
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < all.size(); ++rank) {
    Buffer one(dtype, size);
    one.fill([&](int64_t i) { return awkward(rank, i); });
    inputs.emplace_back();
    for (int64_t i = 0; i < size; ++i) inputs.back().push_back(one.get(i));
  }
  all.all_reduce(data.view(), Reduction::sum);
  EXPECT_EQ(data.difference([&](int64_t i) {
    T sum = static_cast<T>(inputs[0][i]);
    for (int rank = 1; rank < all.size(); ++rank) sum += static_cast<T>(inputs[rank][i]);
    return add(sum);
  }),
            "");
}

TEST_P(Conformance, SumsAreThoseOfRankOrder) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (int64_t size : {3, 4096, 16384, 16385, 33000, 131072, 150003}) {
      expect_in_rank_order<float>(all, DType::f32, size, [](float x) { return x; });
      expect_in_rank_order<double>(all, DType::f64, size, [](double x) { return x; });
      expect_in_rank_order<float>(all, DType::bf16, size, [](float x) { return to_float(to_bfloat16(x)); });
      expect_in_rank_order<float>(all, DType::f16, size, [](float x) { return to_float(to_float16(x)); });
    }
  });
}

TEST_P(Conformance, MailBetweenAllPairs) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    // No rank receives before all have sent everything: 5 messages a pair, a few megabytes in all.
    const int64_t lengths[] = {3, 0, 50001, 1, 1000};
    auto content = [&](int from, int to, int message, int64_t i) { return value(from + 2 * to + message, i); };
    for (int to = 0; to < all.size(); ++to)
      for (int message = 0; message < 5; ++message) {
        Buffer data(DType::f32, lengths[message], message % 4);
        data.fill([&](int64_t i) { return content(all.rank(), to, message, i); });
        all.send(data.view(), to);
      }
    all.barrier();
    for (int from = all.size() - 1; from >= 0; --from)
      for (int message = 0; message < 5; ++message) {
        Buffer data(DType::f32, lengths[message], 1);
        all.recv(data.view(), from);
        EXPECT_EQ(data.difference([&](int64_t i) { return content(from, all.rank(), message, i); }), "");
      }
  });
}

// A ring, many times round: places in the heap are used again.
TEST_P(Conformance, MailInARing) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    const int next = (all.rank() + 1) % all.size(), before = (all.rank() + all.size() - 1) % all.size();
    for (int round = 0; round < 300; ++round) {
      Buffer out(DType::i32, round * 37 % 1000), in(DType::i32, round * 37 % 1000);
      out.fill([&](int64_t i) { return value(all.rank() + round, i); });
      all.send(out.view(), next);
      all.recv(in.view(), before);
      ASSERT_EQ(in.difference([&](int64_t i) { return value(before + round, i); }), "");
    }
  });
}

void expect_sum_of_world_ranks(Communicator& group, const std::vector<int>& members) {
  ASSERT_EQ(group.size(), static_cast<int>(members.size()));
  double sum = 0;
  for (int i = 0; i < group.size(); ++i) {
    EXPECT_EQ(group.world_rank(i), members[i]);
    sum += members[i];
  }
  Buffer data(DType::f32, 40001);
  data.fill([&](int64_t) { return group.world_rank(group.rank()); });
  group.all_reduce(data.view(), Reduction::sum);
  EXPECT_EQ(data.difference([&](int64_t) { return sum; }), "");
}

TEST_P(Conformance, Groups) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    // By parity, in descending order.
    auto parity = all.split(all.rank() % 2, -all.rank());
    std::vector<int> members;
    for (int rank = all.size() - 1; rank >= 0; --rank)
      if (rank % 2 == all.rank() % 2) members.push_back(rank);
    expect_sum_of_world_ranks(*parity, members);
    // Of those, the first and the rest; groups and their parents are used in turn.
    auto nested = parity->split(parity->rank() == 0 ? 7 : 9, 0);
    expect_sum_of_world_ranks(
        *nested, parity->rank() == 0 ? std::vector{members[0]} : std::vector(members.begin() + 1, members.end()));
    expect_sum_of_world_ranks(*parity, members);
    all.barrier();
    // Neighbours in a group write to each other by the group's numbers.
    Buffer out(DType::i64, 1), in(DType::i64, 1);
    out.set(0, all.rank());
    parity->send(out.view(), (parity->rank() + 1) % parity->size());
    const int before = (parity->rank() + parity->size() - 1) % parity->size();
    parity->recv(in.view(), before);
    EXPECT_EQ(in.get(0), parity->world_rank(before));
    // A group of a group's all ranks, after the first is gone.
    parity = parity->split(0, 0);
    expect_sum_of_world_ranks(*parity, members);
  });
}

TEST_P(Conformance, BarrierHoldsEveryone) {
  on_ranks(GetParam(), [](World& world) {
    using Clock = std::chrono::steady_clock;  // the same for all processes of a machine
    auto now = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); };
    Communicator& all = world.communicator();
    for (int late = 0; late < all.size(); ++late) {
      if (late == all.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      Buffer came(DType::f64, 1), went(DType::f64, 1);
      came.set(0, now());
      all.barrier();
      went.set(0, now());
      all.all_reduce(came.view(), Reduction::max);
      all.all_reduce(went.view(), Reduction::min);
      EXPECT_GE(went.get(0), came.get(0));
    }
  });
}

TEST_P(Conformance, Commands) {
  on_ranks(GetParam(), [](World& world) {
    std::vector<std::string> commands = {"load", "", std::string(300000, 'x'), "run"};
    for (const auto& command : commands) {
      if (world.rank() == 0) {
        world.broadcast_command(std::as_bytes(std::span(command)));
        EXPECT_THROW(world.next_command(), Error);
      } else {
        EXPECT_THROW(world.broadcast_command({}), Error);
        auto bytes = world.next_command();
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), command);
      }
      world.communicator().barrier();
    }
  });
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return cat(code_name(error.code()), ": ", error.message());
  }
  return "no error";
}

// What cannot be is refused on the rank that asks for it, and the world continues.
TEST_P(Conformance, BadArguments) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    Buffer bools(DType::boolean, 3), floats(DType::f32, 3), more(DType::f32, 3 * all.size() + 1);
    const int beyond = all.size();
    EXPECT_EQ(error_of([&] { all.all_reduce(bools.view(), Reduction::sum); }),
              "invalid_argument: all_reduce of bool: there is no sum, max or min of it");
    const std::string group = cat(": this group has ranks 0 to ", all.size() - 1);
    EXPECT_EQ(error_of([&] { all.broadcast(floats.view(), beyond); }),
              cat("invalid_argument: broadcast from rank ", beyond, group));
    EXPECT_EQ(error_of([&] { all.send(floats.view(), -1); }), cat("invalid_argument: send to rank -1", group));
    EXPECT_EQ(error_of([&] { all.recv(floats.view(), beyond); }),
              cat("invalid_argument: recv from rank ", beyond, group));
    const std::string parts = cat(": ", all.size(), " parts f32[3] are not f32[", 3 * all.size() + 1, "]");
    EXPECT_EQ(error_of([&] { all.all_gather(floats.view(), more.view()); }), "invalid_argument: all_gather" + parts);
    EXPECT_EQ(error_of([&] { all.reduce_scatter(more.view(), floats.view(), Reduction::max); }),
              "invalid_argument: reduce_scatter" + parts);
    EXPECT_EQ(all.failed_rank(), -1);
    all.barrier();
  });
}

TEST_P(Conformance, NaNStays) {
  on_ranks(GetParam(), [](World& world) {
    Communicator& all = world.communicator();
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      for (Reduction reduction : reductions) {
        Buffer data(dtype, 9);
        data.fill([&](int64_t i) { return i % all.size() == all.rank() ? std::nan("") : 1.0; });
        all.all_reduce(data.view(), reduction);
        for (int64_t i = 0; i < 9; ++i) EXPECT_TRUE(std::isnan(data.get(i)));
      }
  });
}

}  // namespace
}  // namespace plait
