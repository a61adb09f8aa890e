// Pipelines of training: what the runner and its mail cost, what emulated ranks take against the simulation, and steps
// of a model on a mesh.
//
//   pipeline_bench emulated [rounds] [--json FILE]    4, 8 and 16 ranks that sleep instead of computing
//   pipeline_bench mail [rounds] [tokens] [features] [micro-batches] [--json FILE]
//   pipeline_bench train JOB                          JOB: see tests/bench/pipeline.py; prints a line of JSON
//
// Figures are medians of interleaved rounds.
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "core/base/text.h"
#include "core/ops/ops.h"
#include "core/schedule/schedules.h"
#include "core/schedule/timeline.h"
#include "core/train/data/packing.h"
#include "core/train/training_engine.h"
#include "importers/onnx/import.h"
#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/bench/programs/figures.h"
#include "tests/unit/support/emulated_ranks.h"

namespace {

using namespace plait;
using Json = nlohmann::ordered_json;

int32_t places_of(const Schedule& schedule) { return std::max(check_schedule(schedule).places, 1); }

// ---- emulated ranks ----

constexpr const char* emulated_schedules[] = {"naive", "gpipe", "1f1b", "interleaved:2", "bfs:2", "zb-h1", "zb-h2",
                                              "zb-v", "zb-interleaved", "dualpipe-v", "chimera", "auto"};
constexpr double unit_s = 10e-3, most_off = 0.05;

struct Emulated {
  Schedule schedule;
  int32_t places = 1;
  double simulated_s = 0, bubble = 0;
  std::vector<double> wall_s = {};
};

/// A forward, an input gradient and a weight gradient take a unit each, on all stages of a rank together.
std::function<double(const Action&)> cost_of(const Schedule& schedule) {
  const double each = unit_s * static_cast<double>(schedule.ranks.size()) / schedule.stages;
  return [each](const Action& action) { return action.kind == Action::Kind::backward ? 2 * each : each; };
}

bool emulate_on(int32_t ranks, int rounds, bench::Figures& figures) {
  std::vector<Emulated> all;
  for (const char* name : emulated_schedules) {
    Emulated& one = all.emplace_back();
    one.schedule = make_schedule(name, {.ranks = ranks, .micro_batches = 2 * ranks});
    one.places = places_of(one.schedule);
    const Timeline timeline = simulate(one.schedule, {.cost = cost_of(one.schedule), .places = one.places});
    one.simulated_s = timeline.makespan_s;
    one.bubble = timeline.bubble();
  }
  LocalRanks threads(ranks);
  for (int round = 0; round < rounds; ++round)
    for (Emulated& one : all)
      one.wall_s.push_back(test::emulate(threads, one.schedule, one.places, cost_of(one.schedule), 4096).wall_s);
  bool within = true;
  for (size_t i = 0; i < all.size(); ++i) {
    const Emulated& one = all[i];
    const double wall = bench::median(one.wall_s), ratio = wall / one.simulated_s;
    const bool good = std::abs(ratio - 1) <= most_off;
    within = within && good;
    std::printf("%2d ranks  %-15s simulated %7.1f ms, wall clock %7.1f ms, ratio %.4f, bubble %4.1f %%%s\n", ranks,
                emulated_schedules[i], one.simulated_s * 1e3, wall * 1e3, ratio, one.bubble * 100, good ? "" : "  OFF");
    figures.add({{"ranks", ranks}, {"schedule", emulated_schedules[i]}, {"simulated_s", one.simulated_s},
                 {"wall_s", wall}, {"ratio", ratio}, {"within", good}});
  }
  std::fflush(stdout);
  return within;
}

int run_emulated(bench::Figures& figures) {
  const int rounds = figures.arguments.size() > 1 ? std::max(1, std::atoi(figures.arguments[1].c_str())) : 3;
  bool within = true;
  for (const int32_t ranks : {4, 8, 16}) within = emulate_on(ranks, rounds, figures) && within;
  std::printf("all within %.0f %% of the simulation: %s\n", most_off * 100, within ? "yes" : "NO");
  figures.about({{"benchmark", "pipeline emulated"}, {"unit_s", unit_s}, {"within", within}});
  return figures.finish() | !within;
}

// ---- the runner and its mail ----

/// Seconds of a step of 1F1B on two ranks whose sections compute nothing.
double empty_step_s(LocalRanks& ranks, int32_t micro_batches, int64_t floats) {
  const Schedule schedule = make_schedule("1f1b", {.ranks = 2, .micro_batches = micro_batches});
  return test::run_on_ranks(ranks, schedule, places_of(schedule), [&](int) {
           return std::make_unique<test::ChainWork>(2, floats);
         }).wall_s;
}

int run_mail(bench::Figures& figures) {
  std::vector<int> numbers = {11, 128, 640, 8};
  for (size_t i = 1; i < figures.arguments.size() && i <= numbers.size(); ++i)
    numbers[i - 1] = std::max(1, std::atoi(figures.arguments[i].c_str()));
  const int64_t floats = int64_t{numbers[1]} * numbers[2];
  LocalRanks ranks(2);
  std::vector<double> with_values, without;
  for (int round = 0; round < numbers[0]; ++round) {
    with_values.push_back(empty_step_s(ranks, numbers[3], floats));
    without.push_back(empty_step_s(ranks, numbers[3], 1));
  }
  const double all = bench::median(with_values), runner = bench::median(without);
  std::printf("%d micro-batches of %d tokens and %d features: %.3f ms a step, %.3f ms of one float each\n", numbers[3],
              numbers[1], numbers[2], all * 1e3, runner * 1e3);
  figures.add({{"tokens", numbers[1]}, {"features", numbers[2]}, {"micro_batches", numbers[3]}, {"step_s", all},
               {"runner_s", runner}});
  figures.about({{"benchmark", "pipeline mail"}, {"ranks", 2}});
  return figures.finish();
}

// ---- steps of a model ----

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      int64_t kib = 0;
      status >> kib;
      return kib << 10;
    }
  return 0;
}

/// The ids that pipeline.py's peers are trained on, too: documents of tokens + 1 ids, each below the vocabulary.
std::vector<std::vector<int32_t>> documents_of(const Json& job) {
  std::vector<std::vector<int32_t>> out(job.at("batch").get<size_t>());
  uint32_t state = 7;
  for (std::vector<int32_t>& document : out)
    for (int64_t i = 0; i <= job.at("seq").get<int64_t>(); ++i) {
      state = state * 1664525 + 1013904223;
      document.push_back(static_cast<int32_t>((state >> 8) % job.at("vocabulary").get<uint32_t>()));
    }
  return out;
}

/// Of a micro-batch and data rank.
int64_t row_tokens_of(const Json& job, int64_t data_ranks) {
  const auto rows = job.at("batch").get<int64_t>() / job.at("micro_batches").get<int64_t>() / data_ranks;
  return rows * job.at("seq").get<int64_t>();
}

TrainingOptions options_of(const Json& job) {
  TrainingOptions out;
  out.lora.rank = job.value("lora", 0);
  out.pipeline.schedule = job.value("schedule", "1f1b");
  out.pipeline.micro_batches = job.at("micro_batches");
  return out;
}

/// A step with clipping, as everybody takes it.
double step_of(TrainingEngine& engine, const PackedStep& packed) {
  std::vector<MicroBatch> batches;
  for (const std::vector<PackedRow>& rows : packed.rows)
    batches.push_back({.rows = rows, .weight = 1 / static_cast<double>(packed.targets)});
  batches.back().last = true;
  double loss = 0;
  if (engine.in_stages()) loss = engine.accumulate(batches);
  else
    for (const MicroBatch& batch : batches) loss += engine.accumulate(batch);
  engine.update(std::min(1.0, 1 / engine.gradient_norm()), 1e-3);
  return loss;
}

/// The bytes of each rank, and the sets of values that the verifier counts.
Json memory_of(const TrainingEngine& engine, const Json& job) {
  Json out = Json::array();
  std::optional<ScheduleFacts> facts;
  const auto ranks = static_cast<int32_t>(engine.ranks());
  if (engine.in_stages() && job.at("mesh") == cat("pipeline=", ranks))
    facts = check_schedule(make_schedule(job.value("schedule", "1f1b"),
                                         {.ranks = ranks, .micro_batches = job.at("micro_batches").get<int32_t>()}));
  for (int64_t rank = 0; rank < engine.local_ranks(); ++rank) {
    Json row = {{"state_bytes", engine.state_bytes(rank)}, {"run_bytes", engine.run_bytes(rank)}};
    if (facts) {
      const LivePeaks& peaks = facts->ranks[static_cast<size_t>(rank)];
      row.update({{"forward_to_input", peaks.forward_to_input}, {"forward_to_weight", peaks.forward_to_weight},
                  {"input_to_weight", peaks.input_to_weight}});
    }
    out.push_back(row);
  }
  return out;
}

Json steps_of(TrainingEngine& engine, const Json& job, World* world) {
  const std::vector<std::vector<int32_t>> documents = documents_of(job);
  std::vector<TrainingSample> samples;
  for (const std::vector<int32_t>& document : documents) samples.push_back({document, {}});
  const int64_t ranks = engine.data_ranks();
  const PackedStep packed = pack_step(samples, row_tokens_of(job, ranks), ranks, job.at("micro_batches"));
  Json out = {{"losses", Json::array()}, {"seconds", Json::array()}, {"micro_batches", packed.rows.size()}};
  if (world) out["waited_s"] = Json::array();
  for (int step = 0; step < job.at("steps"); ++step) {
    const double waited = world ? world->communicator().waited_s() : 0;
    out["seconds"].push_back(bench::seconds_of([&] { out["losses"].push_back(step_of(engine, packed)); }));
    if (world) out["waited_s"].push_back(world->communicator().waited_s() - waited);
  }
  out["ranks"] = memory_of(engine, job);
  out["peak_mib"] = static_cast<double>(peak_bytes()) / (1 << 20);
  return out;
}

/// With "waits" in the job ranks are served as processes are, so that what rank 0 waits for is known.
Json train(const Json& job) {
  OpSet ops;
  KernelTable kernels;
  register_ops(ops);
  register_reference_kernels(kernels);
  register_cpu_kernels(kernels, "");
  const Graph graph = import_file(job.at("model").get<std::string>() + "/model.onnx", ops).graph;
  CompileOptions compile{ops, kernels};
  compile.mesh = Mesh::parse(job.at("mesh").get<std::string>());
  TrainingOptions options = options_of(job);
  options.row_tokens = row_tokens_of(job, compile.mesh.blocks(compile.mesh.parts("data")));
  const int threads = job.at("threads");
  if (!job.value("waits", false)) {
    ThreadPool pool(threads);
    TrainingEngine engine(graph, compile, options, pool);
    return steps_of(engine, job, nullptr);
  }
  const auto ranks = static_cast<int>(compile.mesh.ranks());
  std::vector<std::unique_ptr<World>> worlds = make_thread_world(ranks);
  std::vector<std::jthread> others;
  for (int rank = 1; rank < ranks; ++rank)
    others.emplace_back([&, rank] {
      ThreadPool pool(std::max(1, threads / ranks));
      try {
        serve_training(*worlds[static_cast<size_t>(rank)], graph, compile, options, pool);
      } catch (const Error&) {  // rank 0 throws it, too
      }
    });
  ThreadPool pool(std::max(1, threads / ranks));
  TrainingEngine engine(graph, compile, options, pool, nullptr, worlds[0].get());
  return steps_of(engine, job, worlds[0].get());
}

}  // namespace

int main(int argc, char** argv) {
  bench::Figures figures(argc, argv);
  const std::string mode = figures.arguments.empty() ? "emulated" : figures.arguments[0];
  try {
    if (mode == "emulated") return run_emulated(figures);
    if (mode == "mail") return run_mail(figures);
    if (mode == "train" && figures.arguments.size() == 2) {
      std::printf("%s\n", train(Json::parse(figures.arguments[1])).dump().c_str());
      return 0;
    }
  } catch (const std::exception& error) {
    std::printf("%s\n", Json{{"error", error.what()}}.dump().c_str());
    return 1;
  }
  std::fprintf(stderr, "pipeline_bench: emulated, mail or train JOB\n");
  return 1;
}
