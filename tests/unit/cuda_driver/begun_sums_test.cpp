// Sums of ranks that the kernel of a rank's part begins (Communicator::begin_sum): bits, launches, sizes beyond the buffer, graphs, ranks
// whose kernels do not begin them, and mistakes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "core/base/text.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "kernels/cuda/launch/register.h"
#include "tests/unit/cuda_driver/on_device.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

constexpr int64_t sum_width = 40, inner = 24;

/// What makes a rank's part: a product with weights, or a row that is added to each token; by a kernel that begins no sums.
enum class Maker { linear, add, matmul };
enum class After { nothing, norm };

/// A rank's part, and the sum over ranks of it, or the norm of the sum.
std::string part_and_sum(int ranks, Maker maker, After after) {
  const int64_t k = maker == Maker::add ? sum_width : inner;
  const char* part = maker == Maker::linear ? "plait.Linear(%0, %1)"
                     : maker == Maker::add  ? "Add(%0, %3)"
                                            : "MatMul(%0, %2)";
  std::string out = cat("input %0 \"x\" : f32[t, ", k, "]\n", "input %1 \"w\" : f32[40, 24]\n",
                        "input %2 \"turned\" : f32[24, 40]\n", "input %3 \"row\" : f32[40]\n");
  append(out, cat("node \"part\" : %4 : f32[t, 40] = ", part, "\n"));
  append(out, cat("node \"sum\" : %5 : f32[t, 40] = plait.AllReduce(%4) axes=\"tensor\" parts=", ranks, "\n"));
  if (after == After::norm) append(out, "node \"norm\" : %6 : f32[t, 40] = RMSNormalization(%5, %3) axis=-1\n");
  append(out, cat("output %", after == After::norm ? 6 : 5, "\noutput %4\n"));
  return out;
}

Tensor random_floats(const Shape& shape, uint32_t seed) {
  Tensor out(DType::f32, shape);
  std::mt19937 random(seed);
  for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = std::normal_distribution<float>()(random);
  return out;
}

/// A rank's program on its device.
struct BegunSum {
  BegunSum(Communicator& host, Maker maker, After after) : host(host), maker(maker), after(after) {
    register_reference_kernels(kernels);
    register_cuda_kernels(kernels);
    CompileOptions options{World::get().ops, kernels};
    options.device = DeviceKind::cuda;
    options.mesh = Mesh::parse(cat("tensor=", host.size()));
    options.rank = host.rank();
    model = compile_plain(parse_graph(part_and_sum(host.size(), maker, after)), options);
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
    group = store.device().communicator(host.split(0, host.rank()));
    executor =
        std::make_unique<Executor>(model.program, store, pool, nullptr, std::vector<Communicator*>{group.get()});
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t n = 0; n < sum_width; ++n) turned.as<float>()[k * sum_width + n] = w.as<float>()[n * inner + k];
    std::fill_n(row.as<float>(), sum_width, 1.0F);
  }

  /// All ranks' bits are those of the host's sum of their parts.
  void run(int64_t tokens) {
    const Tensor x = random_floats({tokens, maker == Maker::add ? sum_width : inner},
                                   static_cast<uint32_t>(17 * tokens + host.rank()));
    const std::array<TensorView, 4> inputs{x.view(), w.view(), turned.view(), row.view()};
    executor->run(inputs);
    const TensorView sum = executor->output(0), part = executor->output(1);
    Tensor expected(DType::f32, {tokens, sum_width});
    std::memcpy(expected.data(), part.data, static_cast<size_t>(part.bytes()));
    host.all_reduce(expected.view(), Reduction::sum);
    if (after == After::nothing) {
      EXPECT_EQ(std::memcmp(sum.data, expected.data(), static_cast<size_t>(sum.bytes())), 0) << tokens << " tokens";
      return;
    }
    for (int64_t token = 0; token < tokens; ++token) {
      double squares = 0;
      for (int64_t i = 0; i < sum_width; ++i) squares += std::pow(expected.as<float>()[token * sum_width + i], 2);
      for (int64_t i = 0; i < sum_width; ++i)
        EXPECT_NEAR(sum.as<float>()[token * sum_width + i],
                    expected.as<float>()[token * sum_width + i] / std::sqrt(squares / sum_width + 1e-5), 1e-4);
    }
  }

  Communicator& host;
  const Maker maker;
  const After after;
  KernelTable kernels;
  PlainModel model;
  Store store{nullptr, cuda::make_cuda_device(emulated_libraries(), host.rank())};
  ThreadPool pool{1};
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Executor> executor;
  Tensor w = random_floats({sum_width, inner}, static_cast<uint32_t>(host.rank())),
         turned{DType::f32, {inner, sum_width}}, row{DType::f32, {sum_width}};
};

/// Errors by rank of body(the rank's host group).
std::vector<std::string> each_rank(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  auto worlds = make_thread_world(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator& host = worlds[static_cast<size_t>(rank)]->communicator();
      errors[static_cast<size_t>(rank)] = error([&] {
        try {
          body(host);
        } catch (const Error& error) {
          host.abort(error.message());
          throw;
        }
      });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

class BegunSums : public testing::TestWithParam<int> {};

/// Few tokens and more than the buffer holds, in turn; each size eager, captured and replayed.
TEST_P(BegunSums, HaveTheBitsOfTheHostsSums) {
  const int ranks = GetParam();
  const std::pair<Maker, std::vector<int64_t>> sizes[] = {{Maker::linear, {1, 11, 3}},
                                                          {Maker::add, {1, 450, 409, 410}}};
  for (const After after : {After::nothing, After::norm})
    for (const auto& [maker, tokens] : sizes) {
      emulated_seed(static_cast<uint64_t>(ranks));
      const auto errors = each_rank(ranks, [&, maker = maker, tokens = tokens](Communicator& host) {
        BegunSum one(host, maker, after);
        for (int round = 0; round < 4; ++round)
          for (const int64_t count : tokens) one.run(count);
      });
      EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
    }
}

/// Of each rank: what makes the part, and the sum, with the norm after it or by itself.
TEST_P(BegunSums, TakeNoLaunchBeforeThem) {
  const int ranks = GetParam();
  for (const Maker maker : {Maker::linear, Maker::add, Maker::matmul})
    for (const After after : {After::nothing, After::norm}) {
      const auto errors = each_rank(ranks, [&](Communicator& host) {
        BegunSum one(host, maker, after);
        for (int i = 0; i < 3; ++i) one.run(2);
        host.barrier();
        const int64_t before = emulated_counts().launches;
        host.barrier();
        one.run(2);
        host.barrier();
        EXPECT_EQ(emulated_counts().launches - before, ranks * (maker == Maker::matmul ? 3 : 2));
        host.barrier();
      });
      EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
    }
}

/// Whether a rank's kernel begins the sum is nothing that other ranks see.
TEST_P(BegunSums, MeetRanksWhoseKernelsDoNotBeginThem) {
  const int ranks = GetParam();
  for (const After after : {After::nothing, After::norm}) {
    const auto errors = each_rank(ranks, [&](Communicator& host) {
      BegunSum one(host, host.rank() % 2 ? Maker::linear : Maker::matmul, after);
      for (int round = 0; round < 4; ++round)
        for (const int64_t tokens : {1, 5}) one.run(tokens);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BegunSums, testing::Values(2, 3, 4));

/// A sum that a kernel has begun has to be the next one.
TEST(BegunSumsOf, AnotherArrayAreAnError) {
  for (const bool gathers : {false, true}) {
    const auto errors = each_rank(2, [&](Communicator& host) {
      const auto device = cuda::make_cuda_device(emulated_libraries(), host.rank());
      const auto group = device->communicator(host.split(0, host.rank()));
      const Tensor part = device->upload(random_floats({64}, 1)), other = device->upload(random_floats({128}, 2));
      auto& queue = static_cast<cuda::CudaQueue&>(device->queue(Use::compute));
      group->begin_sum(part.view(), [&] {});
      group->all_reduce(other.view(), Reduction::sum);  // no kernel has written `part`
      device->fetch(other);
      group->begin_sum(part.view(), [&] { queue.take_ranks(); });
      if (gathers) group->all_gather(part.view(), other.view());
      else group->all_reduce(other.view(), Reduction::sum);
    });
    EXPECT_NE((errors[0] + errors[1]).find("has written another array for this sum"), std::string::npos) << errors[0];
  }
}

/// The others end with the message of a rank that fails between its part and the sum.
TEST(BegunSumsOf, ARankThatFailsEndTheOthers) {
  const auto errors = each_rank(2, [](Communicator& host) {
    BegunSum one(host, Maker::linear, After::norm);
    for (int i = 0; i < 3; ++i) one.run(2);
    if (host.rank()) throw Error(Code::internal, "no more");
    one.run(2);
  });
  EXPECT_NE(errors[0].find("no more"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace plait::test
