#pragma once
// Some steps of training on any mesh, and what came of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/base/text.h"
#include "core/comm/mpi_world.h"
#include "core/train/training_engine.h"
#include "tests/unit/support/models.h"

namespace plait::test {

constexpr int64_t row_tokens = 48;
constexpr int steps = 3;

/// Documents of several lengths, so that rows differ and two micro-batches are needed.
inline std::vector<std::vector<int32_t>> documents(int32_t vocabulary = 97) {
  std::vector<std::vector<int32_t>> out;
  uint32_t state = 7;
  for (const int length : {21, 9, 14, 33, 5, 26, 17, 3}) {
    out.emplace_back();
    for (int i = 0; i < length; ++i)
      out.back().push_back(static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 8) % vocabulary);
  }
  return out;
}

/// In f64; memory of its own.
inline Tensor copy(const Tensor& from) {
  Tensor own(from.dtype(), from.shape());
  std::memcpy(own.data(), from.data(), static_cast<size_t>(own.bytes()));
  return materialize({{}, std::move(own), {{RecipeStep::Kind::cast, {}, DType::f64}}});
}

/// Weights as a file has them: with names, so that they are trained.
inline Graph named(Graph graph) {
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    Value& value = graph.value(id);
    if (!value.constant || !is_float(value.type.dtype)) continue;
    auto own = std::make_shared<Constant>(*value.constant);
    own->initializer = cat("weight.", id);
    value.constant = std::move(own);
  }
  return graph;
}

inline CompileOptions on(const std::string& mesh) {
  CompileOptions out = World::get().options();
  out.mesh = Mesh::parse(mesh);
  return out;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, Tensor> updates;  ///< of each parameter, by its name; f64
  int64_t state_bytes = 0;                ///< the most of a rank
  int64_t run_bytes = 0;                  ///< of a micro-batch, by plan
};

inline TrainingOptions training(OptimizerKind kind, int zero) {
  TrainingOptions out;
  out.row_tokens = row_tokens;
  out.zero = zero;
  out.optimizer.kind = kind;
  out.optimizer.momentum = 0.5;
  return out;
}

/// The same as TrainingEngine::accumulate, by logits that are handed out, and their gradients that are handed in.
inline double accumulate_by_host(TrainingEngine& engine, std::span<const PackedRow> rows, double weight) {
  Tensor logits = engine.logits(rows);
  auto* at = logits.as<float>();
  const int64_t width = logits.shape()[1];
  double loss = 0;
  for (const PackedRow& row : rows)
    for (int32_t label : row.labels) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += std::exp(at[i]);
      if (label >= 0) loss += weight * (std::log(sum) - at[label]);
      for (int64_t i = 0; i < width; ++i)
        at[i] = label < 0 ? 0.0f : static_cast<float>(weight * (std::exp(at[i]) / sum - (i == label ? 1 : 0)));
      at += width;
    }
  engine.accumulate({.rows = {rows.begin(), rows.end()}, .gradient = logits.view()});
  return loss;
}

/// The processes that mpirun started, of which this is one; null where it is not. MPI begins once in a process.
inline plait::World* processes() {
  static const std::unique_ptr<plait::World> world = [] {
    const char* plugin = std::getenv("PLAIT_MPI_PLUGIN");
    CommOptions options;
    options.share_memory = std::getenv("PLAIT_TEST_MESSAGES") == nullptr;  // set: as if each were on its own machine
    return std::getenv("OMPI_COMM_WORLD_SIZE") ? open_mpi_world(options, plugin ? plugin : "") : nullptr;
  }();
  return world.get();
}

/// Nothing on other processes of the world than rank 0's.
inline Outcome run(const Graph& graph, const std::string& mesh, const TrainingOptions& options,
                   plait::World* world = nullptr, DType dtype = DType::none,
                   const std::vector<std::string>& seeds = {}) {
  CompileOptions compile = World::get().options(dtype);
  compile.mesh = Mesh::parse(mesh);
  compile.seeds = seeds;
  ThreadPool pool(2);
  if (world && world->rank() != 0) {
    serve_training(*world, graph, compile, options, pool);
    return {};
  }
  TrainingEngine engine(graph, compile, options, pool, nullptr, world);
  std::map<std::string, Tensor> before;
  for (const TrainedParameter& one : engine.parameters()) {
    const Tensor array = engine.array(one.key);
    EXPECT_EQ(array.dtype(), compile.trained_dtype());
    before.emplace(one.key, copy(array));
  }
  const auto all = documents(static_cast<int32_t>(std::min<int64_t>(97, engine.model().decoder.vocabulary)));
  std::vector<TrainingSample> samples;
  for (const auto& document : all) samples.push_back({document, {}});
  Outcome out;
  // With a rate of 0.5 three steps magnify the rounding of the first one a thousand times: expect_same() is about a gradient's sums.
  const double rate = options.optimizer.kind == OptimizerKind::sgd ? 0.1 : 1e-3;
  for (int step = 0; step < steps; ++step) {
    const int64_t micro_batches = std::max(engine.micro_batches(), options.pipeline.micro_batches);
    const PackedStep packed = pack_step(samples, row_tokens, engine.data_ranks(), micro_batches);
    double loss = 0;
    const double weight = 1 / static_cast<double>(packed.targets);
    std::vector<MicroBatch> batches;
    for (const auto& rows : packed.rows) batches.push_back({.rows = rows, .weight = weight});
    if (engine.in_stages() && !options.host_loss) loss = engine.accumulate(batches);
    else for (const auto& rows : packed.rows)
      loss += options.host_loss
                  ? accumulate_by_host(engine, rows, weight)
                  : engine.accumulate({.rows = rows, .weight = weight, .last = &rows == &packed.rows.back()});
    out.losses.push_back(loss);
    out.norms.push_back(engine.gradient_norm());
    engine.update(1, rate);
  }
  for (const TrainedParameter& one : engine.parameters()) {
    Tensor now = copy(engine.array(one.key));
    const Tensor& then = before.at(one.key);
    for (int64_t i = 0; i < now.elements(); ++i) now.as<double>()[i] -= then.as<double>()[i];
    out.updates.emplace(one.key, std::move(now));
  }
  if (!engine.in_stages()) out.run_bytes = engine.model().program(TrainingProgram::accumulate).arena_bytes;
  for (int64_t local = 0; local < engine.local_ranks(); ++local)
    out.state_bytes = std::max(out.state_bytes, engine.state_bytes(local));
  return out;
}

inline Outcome run(const std::string& fixture, const std::string& mesh, const TrainingOptions& options,
                   plait::World* world = nullptr, DType dtype = DType::none,
                   const std::vector<std::string>& seeds = {}) {
  return run(fixture_graph(fixture), mesh, options, world, dtype, seeds);
}

inline double norm(const Tensor& tensor) {
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += std::pow(tensor.as<double>()[i], 2);
  return std::sqrt(sum);
}

/// Collectives of a rank, by program: "gather 2, reduce 1".
inline std::string collectives(const Program& program) {
  std::map<std::string, int> counts;
  for (const Instruction& one : program.instructions)
    if (one.kind == Instruction::Kind::collective && one.call.kind != CollectiveKind::shard)
      ++counts[std::string(op_name(one.call.kind))];
  std::string out;
  for (const auto& [kind, count] : counts) out += cat(out.empty() ? "" : ", ", kind, " ", count);
  return out;
}

/// To the bit.
inline void expect_equal_updates(const Outcome& got, const Outcome& expected) {
  ASSERT_EQ(got.updates.size(), expected.updates.size());
  for (const auto& [key, update] : expected.updates)
    EXPECT_EQ(std::memcmp(got.updates.at(key).data(), update.data(), static_cast<size_t>(update.bytes())), 0) << key;
}
inline void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.norms, expected.norms);
  expect_equal_updates(got, expected);
}

/// How far from each other two runs may be, relative to their numbers. In f32 a sum of n terms differs in another order by at most
/// n 2^-24 of the sum of its terms' sizes; what a gradient is the end of, forwards and back, are some 50 products of about 100 terms:
/// 50 x 100 x 2^-24 = 3e-4. Errors of single terms cancel in the norm of all and more so in the loss.
struct Tolerance {
  double loss = 2e-5, norm = 1e-4, update = 3e-4, floor = 1e-6;  ///< the last of the largest update
};
constexpr Tolerance in_f64{1e-12, 1e-11, 1e-10, 1e-12};

inline void expect_same(const Outcome& got, const Outcome& expected, const Tolerance& tolerance = {}) {
  for (int step = 0; step < steps; ++step) {
    const auto i = static_cast<size_t>(step);
    EXPECT_NEAR(got.losses[i], expected.losses[i], tolerance.loss * expected.losses[i]) << "step " << step;
    EXPECT_NEAR(got.norms[i], expected.norms[i], tolerance.norm * expected.norms[i]) << "step " << step;
  }
  ASSERT_EQ(got.updates.size(), expected.updates.size());
  double largest = 0;
  for (const auto& [key, update] : expected.updates) largest = std::max(largest, norm(update));
  for (const auto& [key, update] : expected.updates) {
    Tensor difference = copy(got.updates.at(key));
    for (int64_t i = 0; i < difference.elements(); ++i) difference.as<double>()[i] -= update.as<double>()[i];
    EXPECT_LE(norm(difference), tolerance.update * norm(update) + tolerance.floor * largest) << key;
  }
}

}  // namespace plait::test
