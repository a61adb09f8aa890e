// Asynchronous collectives: random programs give the bits that they give when each is waited for, in
// whatever order the ranks' threads come; and whatever ends a run ends what it began.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "core/base/text.h"
#include "core/comm/world.h"
#include "core/exec/comm_thread.h"
#include "core/graph/graph_builder.h"
#include "core/passes/lower/lower.h"
#include "core/passes/train/parameters.h"
#include "tests/unit/exec/runner.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

/// A graph of values [rows, columns] that ranks compute with, tell each other, and add to sums.
class RandomGraph {
 public:
  RandomGraph(uint32_t seed, const Mesh& mesh)
      : random_(seed), parts_(mesh.ranks()), builder_(World::get().ops, graph_, knowledge_, "test") {
    shape_ = {4 * parts_, 2 * parts_};
    for (int i = 0; i < 3; ++i) {
      graph_.inputs.push_back(graph_.add_value(cat("in", i), {DType::f32, Dims(shape_.begin(), shape_.end())}));
      values_.push_back(graph_.inputs.back());
    }
    for (int i = 0; i < 3; ++i) sums_.push_back(add_state(graph_, builder_, cat("sum", i), DType::f32, shape_));
    for (int i = 0; i < 40; ++i) add();
    graph_.outputs = sums_;
    for (int i = 0; i < 3; ++i) graph_.outputs.push_back(any());
    graph_.remove_dead();
  }

  Graph take() { return std::move(graph_); }

 private:
  size_t below(size_t n) { return random_() % n; }
  ValueId any() { return values_[values_.size() - 1 - below(std::min<size_t>(values_.size(), 6))]; }

  ValueId say(const char* op, ValueId x, int64_t dim, int64_t to_dim = -1) {
    Attributes attributes;
    attributes.set("axes", "data");
    attributes.set("parts", parts_);
    if (dim >= 0) attributes.set("dim", dim);
    if (to_dim >= 0) attributes.set("to_dim", to_dim);
    return builder_.add(op, {x}, std::move(attributes));
  }

  void add() {
    const auto dim = static_cast<int64_t>(below(2));
    switch (below(9)) {
      case 0: values_.push_back(builder_.add("Tanh", {any()})); break;
      case 1: values_.push_back(builder_.minus(any(), any())); break;
      case 2: values_.push_back(say("plait.AllReduce", any(), -1)); break;
      case 3: parted_.push_back({say("plait.ReduceScatter", any(), dim), dim}); break;
      case 4:
        if (parted_.empty()) break;
        values_.push_back(say("plait.AllGather", parted_.back().first, parted_.back().second));
        break;
      case 5: exchanged_.push_back({say("plait.AllToAll", any(), dim, 1 - dim), dim}); break;
      case 6:
        if (exchanged_.empty()) break;
        values_.push_back(
            say("plait.AllToAll", exchanged_.back().first, 1 - exchanged_.back().second, exchanged_.back().second));
        break;
      case 7: {
        ValueId& sum = sums_[below(3)];
        sum = builder_.add("plait.Accumulate", {sum, builder_.add("Tanh", {any()})});
        break;
      }
      default: values_.push_back(builder_.add("Tanh", {sums_[below(3)]}));
    }
  }

  std::mt19937 random_;
  const int64_t parts_;
  Graph graph_;
  Knowledge knowledge_;
  GraphBuilder builder_;
  Shape shape_;
  std::vector<ValueId> values_, sums_;
  std::vector<std::pair<ValueId, int64_t>> parted_, exchanged_;  ///< with the dim
};

std::shared_ptr<const Program> compiled(Graph graph, const Mesh& mesh, int64_t rank, int64_t overlap_bytes) {
  CompileOptions options = World::get().options();
  options.mesh = mesh;
  options.rank = rank;
  TrainingOptions training;
  training.overlap_bytes = overlap_bytes;
  PassContext context{options, {}, {}};
  context.training = &training;
  overlap(graph, context);
  verify(graph, "the test");
  auto program = lower(graph, options, "test");
  plan(*program, true);
  return program;
}

/// Pauses of threads at random, where a race would need them.
CommOptions slow() {
  CommOptions options;
  options.deadline_s = hang_s;
  options.delay = [] {
    thread_local std::mt19937 random(static_cast<uint32_t>(std::hash<std::thread::id>()(std::this_thread::get_id())));
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
  };
  return options;
}

/// Calls task(rank, world) on a thread for each rank.
template <class Task>
void on_ranks(int64_t ranks, const Task& task) {
  auto worlds = make_thread_world(static_cast<int>(ranks), slow());
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const std::unique_ptr<plait::World> world = std::move(worlds[static_cast<size_t>(rank)]);
      task(rank, *world);
    });
  for (std::thread& thread : threads) thread.join();
}

/// Outputs of two runs on each rank, as bytes.
std::vector<std::string> outcomes(const std::vector<std::shared_ptr<const Program>>& programs) {
  std::vector<std::string> out(programs.size());
  on_ranks(static_cast<int64_t>(programs.size()), [&](int64_t rank, plait::World& world) {
    try {
      const Program& program = *programs[static_cast<size_t>(rank)];
      Store store;
      ThreadPool pool(1);
      store.load(program, std::vector<int64_t>(static_cast<size_t>(program.symbols.size())), &pool);
      const auto group = store.device().communicator(world.communicator().split(0, world.communicator().rank()));
      std::vector<Communicator*> groups(program.groups.size(), group.get());
      Executor executor(programs[static_cast<size_t>(rank)], store, pool, nullptr, groups);
      for (int run = 0; run < 2; ++run) {
        std::mt19937 random(static_cast<uint32_t>(17 * rank + run));
        std::vector<Tensor> inputs;
        std::vector<TensorView> views;
        for (BufferId id : program.inputs) {
          Shape shape;
          for (const Dim& dim : program.buffers[static_cast<size_t>(id)].dims) shape.push_back(dim.constant());
          Tensor& one = inputs.emplace_back(DType::f32, shape);
          for (int64_t i = 0; i < one.elements(); ++i)
            one.as<float>()[i] = static_cast<float>(random() % 2000) / 1000 - 1;
          views.push_back(one.view());
        }
        executor.run(views);
        for (size_t i = 0; i < program.outputs.size(); ++i) {
          const TensorView view = executor.output(static_cast<int>(i));
          out[static_cast<size_t>(rank)].append(reinterpret_cast<const char*>(view.data),
                                                static_cast<size_t>(view.bytes()));
        }
      }
    } catch (const Error& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.message();
      world.communicator().abort(error.message());
    }
  });
  return out;
}

/// The most bytes of the arena that are in use at once.
int64_t most_in_use(const Program& program) {
  int64_t most = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(program.instructions.size()); ++i) {
    int64_t sum = 0;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.place != Buffer::Place::arena || i < buffer.born || i > buffer.dies) continue;
      int64_t bytes = dtype_bits(buffer.dtype) / 8;
      for (const Dim& dim : buffer.dims) bytes *= dim.constant();
      sum += bytes;
    }
    most = std::max(most, sum);
  }
  return most;
}

std::vector<std::string> said(const Program& program) {
  std::vector<std::string> out;
  for (const Instruction& one : program.instructions)
    if (one.kind == Instruction::Kind::collective)
      out.push_back(cat(op_name(one.call.kind), " ", one.call.dim, " ", one.call.to_dim, " ", one.wait_before));
  return out;
}

TEST(Beside, RandomProgramsGiveTheSameBits) {
  int beside = 0;
  for (const char* name : {"data=2", "data=4"}) {
    const Mesh mesh = Mesh::parse(name);
    for (uint32_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(cat(name, " seed ", seed));
      std::vector<std::shared_ptr<const Program>> blocking, going_on;
      const Graph graph = RandomGraph(seed, mesh).take();
      const int64_t cap = seed % 4 == 0 ? 1 << 10 : 1 << 20;
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        blocking.push_back(compiled(graph, mesh, rank, 0));
        going_on.push_back(compiled(graph, mesh, rank, cap));
        EXPECT_EQ(said(*going_on.back()), said(*going_on.front())) << "all ranks begin theirs in one order";
        EXPECT_EQ(going_on.back()->fingerprint, going_on.front()->fingerprint);
      }
      EXPECT_EQ(said(*going_on[0]).size(), said(*blocking[0]).size());
      EXPECT_LE(most_in_use(*going_on[0]), most_in_use(*blocking[0]) + cap);
      for (const Instruction& one : blocking[0]->instructions) EXPECT_LT(one.wait_before, 0);
      for (const Instruction& one : going_on[0]->instructions) beside += one.wait_before >= 0;
      EXPECT_EQ(outcomes(going_on), outcomes(blocking));
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
  EXPECT_GT(beside, 100);
}

/// A sum that is under way while the rows %2 of a table are picked.
Graph sum_and_pick() {
  return parse_graph(R"(input %0 "x" : f32[64]
input %1 "table" : f32[8, 4]
input %2 "rows" : i64[2]
node "sum" : %3 : f32[64] = plait.AllReduce(%0) axes="data" parts=2 async=1
node "pick" : %4 : f32[2, 4] = Gather(%1, %2) axis=0
node "end" : %5 : f32[64] = Tanh(%3)
output %5
output %4
)");
}

struct Ended {
  std::string message;
  double waited = 0;
  TraceEvent sum;
};

/// Runs sum_and_pick on two ranks; `row`: what each picks, which may not be there. -1: the rank leaves instead.
std::array<Ended, 2> run_pair(std::array<int64_t, 2> rows) {
  const Mesh mesh = Mesh::parse("data=2");
  std::array<Ended, 2> out;
  on_ranks(2, [&](int64_t rank, plait::World& world) {
    const auto own = static_cast<size_t>(rank);
    if (rows[own] < 0) return;
    try {
      CompileOptions options = World::get().options();
      options.mesh = mesh;
      options.rank = rank;
      auto program = lower(sum_and_pick(), options, "test");
      plan(*program, true);
      EXPECT_EQ(program->instructions[0].wait_before, 2);
      Store store;
      ThreadPool pool(1);
      const auto group = store.device().communicator(world.communicator().split(0, world.communicator().rank()));
      Executor executor(program, store, pool, nullptr, {group.get()});
      std::vector<TraceEvent> events;
      executor.set_trace(&events);
      executor.set_profiling(true);
      const Tensor x(DType::f32, {64}), table(DType::f32, {8, 4}),
          picked = Tensor::of_ints(std::vector<int64_t>{0, rows[own]});
      const std::array<TensorView, 3> inputs{x.view(), table.view(), picked.view()};
      if (rank == 1) std::this_thread::sleep_for(20ms);
      executor.run(inputs);
      EXPECT_EQ(events.size(), 3u);
      for (const TraceEvent& event : events)
        if (event.async) out[own].sum = event;
      EXPECT_EQ(executor.profile().at("AllReduce").calls, 1);
      out[own].waited = executor.profile().at("AllReduce").waited;
    } catch (const Error& error) {
      out[own].message = error.message();
      world.communicator().abort(error.message());
    }
  });
  return out;
}

TEST(Beside, SaysWhatItTook) {
  const auto both = run_pair({1, 2});
  EXPECT_EQ(both[0].message, "");
  EXPECT_TRUE(both[0].sum.collective);
  EXPECT_GT(both[0].sum.waited, 5e-3) << "the other came later";
  EXPECT_LE(both[0].sum.waited, both[0].sum.end - both[0].sum.begin);
  EXPECT_GT(both[0].waited, 5e-3) << "there was little to do meanwhile";
}

TEST(Beside, ErrorsEndWhatIsUnderWay) {
  auto both = run_pair({1, 9});  // the second rank has no such row, and has begun the sum
  EXPECT_NE(both[1].message.find("pick"), std::string::npos) << both[1].message;
  both = run_pair({9, 9});
  for (const Ended& one : both) EXPECT_NE(one.message, "");
  both = run_pair({1, -1});
  EXPECT_NE(both[0].message.find("rank 1"), std::string::npos) << both[0].message;
}

TEST(CommThread, KeepsTheOrderAndTheFirstError) {
  std::vector<int> done;
  {
    CommThread comm_thread;
    int64_t number = 0;
    for (int i = 0; i < 100; ++i) number = comm_thread.give([&, i] { done.push_back(i); });
    comm_thread.await(number);
    EXPECT_EQ(done.size(), 100u);
    EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
    comm_thread.give([] { throw Error(Code::closed, "first"); });
    number = comm_thread.give([&] { done.push_back(-1); });
    for (int time = 0; time < 2; ++time) EXPECT_THROW(comm_thread.await(number), Error);
    EXPECT_EQ(done.size(), 100u) << "nothing is done behind an error";
    comm_thread.forget();
    comm_thread.await(comm_thread.give([&] { done.push_back(100); }));
    comm_thread.give([&] {
      std::this_thread::sleep_for(1ms);
      done.push_back(101);
    });
  }
  EXPECT_EQ(done.size(), 102u) << "what was given is done before the comm_thread goes";
}

}  // namespace
}  // namespace plait::test
