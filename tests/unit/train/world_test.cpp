// Training that rank 0 leads: ranks here are threads that behave as processes do.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "core/ranks/serve_rank.h"
#include "core/train/data/document_encoder.h"
#include "core/train/trained_weights.h"
#include "core/train/trainer.h"
#include "tests/unit/train/runs.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

constexpr const char* model = "llama-standard23";

Dataset data() {
  std::vector<Document> out;
  for (int i = 0; i < 11; ++i) {
    Document document;
    for (int k = 0; k < 5 + i; ++k) document.ids.push_back(3 + (i * 7 + k * k) % 80);
    out.push_back(std::move(document));
  }
  return Dataset::of(out, {.seq = 32});
}

TrainerOptions run_options(const std::string& directory = "", int zero = 2) {
  TrainerOptions out;
  out.training.row_tokens = 40;
  out.training.zero = zero;
  out.rate = {.peak = 3e-3, .warmup = 2};
  out.steps = 6;
  out.batch = 4;
  out.directory = directory;
  return out;
}

/// The ranks behind rank 0, each with what its process has.
class Others {
 public:
  template <class Serve>
  Others(std::vector<std::unique_ptr<plait::World>>& worlds, const Serve& serve) {
    for (size_t i = 1; i < worlds.size(); ++i)
      threads_.emplace_back([&world = *worlds[i], serve] {
        try {
          serve(world);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::closed) << error.message();
        }
      });
  }

 private:
  std::vector<std::jthread> threads_;
};

struct Led {
  explicit Led(const std::string& mesh, TrainerOptions with, const std::string& adapter = "")
      : worlds(make_thread_world(static_cast<int>(Mesh::parse(mesh).ranks()))),
        others(worlds, [mesh, training = with.training](plait::World& world) {
          ThreadPool pool(1);
          serve_training(world, fixture_graph(model), on(mesh), training, pool);
        }) {
    trainer = std::make_unique<Trainer>(fixture_graph(model), on(mesh), with, data(), data(), pool, nullptr,
                                        worlds[0].get());
    if (!adapter.empty()) load_adapter(trainer->engine(), adapter);
  }

  std::vector<std::unique_ptr<plait::World>> worlds;
  ThreadPool pool{1};
  Others others;
  std::unique_ptr<Trainer> trainer;  ///< its end lets the others end
};

std::unique_ptr<Trainer> on_threads(const std::string& mesh, const TrainerOptions& options, ThreadPool& pool) {
  return std::make_unique<Trainer>(fixture_graph(model), on(mesh), options, data(), data(), pool);
}

std::vector<double> losses(Trainer& trainer, int most = 100) {
  std::vector<double> out;
  for (int i = 0; i < most; ++i) {
    const auto report = trainer.step();
    if (!report) break;
    out.push_back(report->loss);
  }
  return out;
}

void expect_same(const TrainingEngine& a, const TrainingEngine& b) {
  for (const std::string& key : a.arrays()) {
    const Tensor of_a = a.array(key), of_b = b.array(key);
    EXPECT_EQ(std::memcmp(of_a.data(), of_b.data(), static_cast<size_t>(of_a.bytes())), 0) << key;
  }
}

TEST(TrainingWorld, ProcessesMakeTheBitsOfThreads) {
  ThreadPool pool(2);
  for (const char* mesh : {"data=2", "tensor=2", "data=2,tensor=2", "pipeline=2", "pipeline=2,data=2"}) {
    SCOPED_TRACE(mesh);
    const auto expected = on_threads(mesh, run_options(), pool);
    Led led(mesh, run_options());
    EXPECT_EQ(losses(*led.trainer), losses(*expected));
    EXPECT_EQ(led.trainer->evaluate(data()).loss, expected->evaluate(data()).loss);
    expect_same(led.trainer->engine(), expected->engine());
  }
}

TEST(TrainingWorld, CheckpointsGoFromProcessesToThreadsAndBack) {
  const Folder folder;
  ThreadPool pool(2);
  const auto straight = on_threads("data=2", run_options(folder.path("straight")), pool);
  const std::vector<double> expected = losses(*straight);
  TrainerOptions cut = run_options(folder.path("cut"));
  std::vector<double> got;
  {
    Led led("data=2", cut);
    got = losses(*led.trainer, 2);
    led.trainer->save();
  }
  cut.resume = true;
  {
    const auto second = on_threads("data=2", cut, pool);
    for (double loss : losses(*second, 2)) got.push_back(loss);
    second->save();
  }
  Led third("data=2", cut);
  EXPECT_EQ(third.trainer->steps_done(), 4);
  for (double loss : losses(*third.trainer)) got.push_back(loss);
  EXPECT_EQ(got, expected);
  expect_same(third.trainer->engine(), straight->engine());
}

TEST(TrainingWorld, AdaptersReachEveryProcess) {
  const Folder folder;
  ThreadPool pool(2);
  TrainerOptions with = run_options();
  with.training.lora = {.rank = 4, .dropout = 0.2};
  const auto first = on_threads("data=2", with, pool);
  losses(*first);
  save_adapter(first->engine(), folder.path("adapter"), "base");
  const double loss = first->evaluate(data()).loss;
  for (const char* mesh : {"tensor=2", "data=2,tensor=2"})
    for (bool gradients : {true, false}) {
      SCOPED_TRACE(cat(mesh, gradients));
      // Nothing is trained of what is only evaluated.
      TrainerOptions own = with;
      own.training.gradients = gradients;
      if (gradients) {
        Led led(mesh, own, folder.path("adapter"));
        EXPECT_NEAR(led.trainer->evaluate(data()).loss, loss, 1e-5 * loss);
      } else {
        own.rate.schedule = RateSchedule::constant;
        own.steps = 0;
        Trainer frozen(fixture_graph(model), on(mesh), own, std::nullopt, std::nullopt, pool);
        load_adapter(frozen.engine(), folder.path("adapter"));
        EXPECT_NEAR(frozen.evaluate(data()).loss, loss, 1e-5 * loss);
      }
    }
}

/// What is wrong before the first step is said by rank 0, and the world can be used again.
TEST(TrainingWorld, LivesOnWhenARankCannotBegin) {
  auto worlds = make_thread_world(2);
  Graph changed = fixture_graph(model);
  for (ValueId id = 0; id < changed.value_count(); ++id) {
    const auto& constant = changed.value(id).constant;
    if (!constant || constant->initializer.empty() || constant->source.dtype() != DType::f32) continue;
    Constant other = *constant;
    other.source = Tensor(DType::f32, constant->source.shape());
    changed.value(id).constant = std::make_shared<Constant>(std::move(other));
    break;
  }
  const TrainingOptions training = run_options().training;
  const Others others(worlds, [&](plait::World& world) {
    ThreadPool pool(1);
    refuse_rank(world, Error(Code::not_found, "there is no file \"model.onnx\""));
    serve_training(world, changed, on("data=2"), training, pool);
    serve_training(world, fixture_graph(model), on("data=2"), training, pool);  // rank 0 has no such parameters
    serve_training(world, fixture_graph(model), on("data=2"), training, pool);
  });
  ThreadPool pool(1);
  const auto engine = [&](const TrainingOptions& with) {
    return TrainingEngine(fixture_graph(model), on("data=2"), with, pool, nullptr, worlds[0].get())
        .parameters()
        .size();
  };
  expect_error([&] { engine(training); }, Code::not_found, "rank 1: there is no file \"model.onnx\"");
  expect_error([&] { engine(training); }, Code::invalid_argument, "rank 1 has other weights");
  TrainingOptions nothing = training;
  nothing.trained = {"*.nothing"};
  expect_error([&] { engine(nothing); }, Code::invalid_argument, "nothing to train");
  EXPECT_GT(engine(training), 0u);
}

/// A rank that fails in the midst of a step ends the world, with its reason.
TEST(TrainingWorld, EndsWithARankThatLeaves) {
  for (const char* mesh : {"data=2", "pipeline=2"}) {
    SCOPED_TRACE(mesh);
    auto worlds = make_thread_world(2);
    std::jthread other([mesh, world = std::move(worlds[1])] {
      ThreadPool pool(1);
      try {
        serve_training(*world, fixture_graph(model), on(mesh), run_options().training, pool);
      } catch (const Error&) {
      }
    });
    ThreadPool pool(1);
    TrainingEngine engine(fixture_graph(model), on(mesh), run_options().training, pool, nullptr, worlds[0].get());
    worlds[0]->communicator().abort("the host had enough");
    expect_error([&] { engine.gradient_norm(); }, Code::closed, "the host had enough");
  }
}

}  // namespace
}  // namespace plait::test
