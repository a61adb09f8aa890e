// Programs with collectives on ranks that are threads: the way from any sharding to any other, along any dimension and by
// sub-axes in any order.
#include <thread>

#include "core/comm/world.h"
#include "tests/unit/exec/runner.h"
#include "tests/unit/support/random_shardings.h"

namespace plait::test {
namespace {

/// One input, its steps, one output: what ranks run.
Graph graph_of(const std::vector<Collective>& steps, const Shape& local, const Mesh& mesh) {
  using Kind = CollectiveKind;
  static const std::map<Kind, const char*> names{{Kind::reduce_scatter, "plait.ReduceScatter"},
                                                 {Kind::all_reduce, "plait.AllReduce"},
                                                 {Kind::shard, "plait.Shard"},
                                                 {Kind::all_to_all, "plait.AllToAll"},
                                                 {Kind::all_gather, "plait.AllGather"}};
  Graph graph;
  Dims dims(local.begin(), local.end());
  ValueId now = graph.add_value("in", {DType::f32, dims});
  graph.inputs = {now};
  for (const Collective& step : steps) {
    const Dim parts(mesh.blocks(step.axes));
    Node node;
    node.op = names.at(step.kind);
    node.inputs = {now};
    node.attributes.set("axes", mesh.text(step.axes));
    node.attributes.set("parts", mesh.blocks(step.axes));
    if (step.kind == Kind::reduce_scatter || step.kind == Kind::all_reduce)
      node.attributes.set("reduction", std::string(step.reduction == PendingKind::max   ? "max"
                                                   : step.reduction == PendingKind::min ? "min"
                                                                                        : "sum"));
    if (step.kind != Kind::all_reduce) node.attributes.set("dim", int64_t{step.dim});
    if (step.kind == Kind::all_to_all) node.attributes.set("to_dim", int64_t{step.to_dim});
    const bool joins = step.kind == Kind::all_gather || step.kind == Kind::all_to_all;
    const int32_t cut = step.kind == Kind::all_to_all ? step.to_dim : step.dim;
    if (joins) dims[static_cast<size_t>(step.dim)] = dims[static_cast<size_t>(step.dim)] * parts;
    if (step.kind != Kind::all_reduce && step.kind != Kind::all_gather)
      dims[static_cast<size_t>(cut)] = *dims[static_cast<size_t>(cut)].divided(parts);
    now = graph.add_value("", {DType::f32, dims});
    node.outputs = {now};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {now};
  return graph;
}

/// What every rank has after the steps.
Shards run_on_threads(const std::vector<Collective>& steps, const Shards& shards, const Mesh& mesh) {
  Shards out(shards.size());
  std::vector<std::thread> threads;
  auto worlds = make_thread_world(static_cast<int>(mesh.ranks()));
  for (size_t rank = 0; rank < shards.size(); ++rank)
    threads.emplace_back([&, rank] {
      const std::unique_ptr<plait::World> world = std::move(worlds[rank]);
      try {
        CompileOptions options = World::get().options();
        options.mesh = mesh;
        options.rank = static_cast<int64_t>(rank);
        const Shape& shape = shards[rank].shape();
        const PlainModel model = compile_plain(graph_of(steps, shape, mesh), options);
        Store store;
        std::vector<std::unique_ptr<Communicator>> splits;
        std::vector<Communicator*> groups;
        // All ranks have the same groups in the same order, each its own members.
        for (const std::vector<int32_t>& group : model.program->groups) {
          const auto place = std::find(group.begin(), group.end(), world->rank()) - group.begin();
          splits.push_back(
              store.device().communicator(world->communicator().split(
                  *std::min_element(group.begin(), group.end()), static_cast<int>(place))));
          groups.push_back(splits.back().get());
        }
        ThreadPool pool(1);
        Executor executor(model.program, store, pool, nullptr, groups);
        const TensorView input = shards[rank].view();
        executor.run({&input, 1});
        const TensorView made = executor.output(0);
        out[rank] = Tensor(made.dtype, made.shape);
        std::memcpy(out[rank].data(), made.data, static_cast<size_t>(made.bytes()));
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.message();
        world->communicator().abort(error.message());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

TEST(Collectives, LeadFromAnyShardingToAnyOther) {
  for (const char* name : {"tensor=2", "tensor=4", "data=2,tensor=3"}) {
    const Mesh mesh = Mesh::parse(name);
    RandomShardings any{mesh, std::mt19937(11)};
    const int64_t n = mesh.ranks();
    Tensor whole(DType::f32, {n, 2 * n, n});
    for (int64_t i = 0; i < whole.elements(); ++i) set_element(whole, i, static_cast<double>((i * 7919) % 1009));
    for (int trial = 0; trial < 60; ++trial) {
      const Sharding from = any(3), to = any.after(from);
      SCOPED_TRACE(cat(name, ": ", text(from, mesh), " to ", text(to, mesh)));
      const Shards shards = run_on_threads(reshard(from, to), owing(whole, from, mesh, any.random), mesh);
      ASSERT_FALSE(testing::Test::HasFailure());
      const Tensor got = assemble(shards, to, mesh, whole.shape(), [](double a, double b) { return a != b; });
      for (int64_t i = 0; i < whole.elements(); ++i) ASSERT_EQ(element(got, i), element(whole, i)) << i;
    }
  }
}

}  // namespace
}  // namespace plait::test
