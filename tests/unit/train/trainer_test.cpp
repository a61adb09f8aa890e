// Runs of training: that they learn, stop where they should, and go on as if they had never stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "core/train/data/document_encoder.h"
#include "core/train/trainer.h"
#include "tests/unit/support/models.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

/// Sequences that count up: a model learns them in a few steps.
Dataset counting(int documents, int first = 0) {
  std::vector<Document> out;
  for (int i = 0; i < documents; ++i) {
    Document document;
    for (int k = 0; k < 6 + i % 5; ++k) document.ids.push_back(3 + (first + i * 7 + k) % 40);
    out.push_back(std::move(document));
  }
  return Dataset::of(out, {.seq = 32});
}

class Training : public testing::Test {
 protected:
  TrainerOptions options() const {
    TrainerOptions out;
    out.training.row_tokens = 48;
    out.rate = {.peak = 3e-3, .warmup = 2};
    out.steps = 10;
    out.batch = 4;
    out.seed = 5;
    return out;
  }

  std::unique_ptr<Trainer> trainer(const TrainerOptions& options, std::optional<Dataset> evaluation = std::nullopt,
                                   Dataset data = counting(9), const std::string& model = "gpt2-optimum18") {
    return std::make_unique<Trainer>(fixture_graph(model), World::get().options(), options, std::move(data),
                                     std::move(evaluation), pool_);
  }

  static void expect_same_weights(const Trainer& a, const Trainer& b) {
    for (const TrainedParameter& parameter : a.engine().parameters()) {
      const Tensor of_a = a.engine().array(parameter.key), of_b = b.engine().array(parameter.key);
      EXPECT_EQ(std::memcmp(of_a.data(), of_b.data(), static_cast<size_t>(of_a.bytes())), 0) << parameter.key;
    }
  }

  Folder folder_;
  ThreadPool pool_{2};
};

TEST_F(Training, LearnsAndWritesWhatItDid) {
  TrainerOptions options = this->options();
  options.directory = folder_.path("run");
  options.steps = 30;
  options.evaluate_every = 10;
  auto trainer = this->trainer(options, counting(5, 3));
  const double before = trainer->evaluate(counting(5, 3)).loss;
  std::vector<StepReport> reports;
  while (auto report = trainer->step()) reports.push_back(*report);
  EXPECT_EQ(trainer->ending(), Trainer::Ending::steps);
  ASSERT_EQ(reports.size(), 30u);
  EXPECT_EQ(reports.back().step, 30);
  EXPECT_LT(reports.back().loss, 0.8 * reports.front().loss);
  EXPECT_LT(trainer->best_loss(), before);
  for (const StepReport& report : reports) {
    EXPECT_EQ(std::isfinite(report.evaluation_loss), report.step % 10 == 0);
    EXPECT_EQ(report.learning_rate, LearningRate({.peak = 3e-3, .warmup = 2, .steps = 30}).at(report.step - 1));
    EXPECT_GT(report.gradient_norm, 0);
    EXPECT_GT(report.tokens_per_second, 0);
    EXPECT_GT(report.memory_bytes, 0);
  }
  EXPECT_EQ(read_training_log(options.directory + "/log.jsonl").size(), 30u);
  EXPECT_THAT(bytes_of(options.directory + "/loss.svg"), testing::HasSubstr("<svg"));
  const Checkpoint best = Checkpoint::open(options.directory + "/checkpoints/best");
  EXPECT_EQ(std::stod(best.info().state.at("best")), trainer->best_loss());
}

TEST_F(Training, EpochsAreSteps) {
  TrainerOptions options = this->options();
  options.steps = 0;
  options.epochs = 2.5;
  EXPECT_EQ(trainer(options)->steps(), 6);  // 2.5 * 9 / 4
}

TEST_F(Training, TakenUpAgainItIsTheSameRunBitForBit) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    TrainerOptions options = this->options();
    if (optimizer == std::string("sgd")) options.training.optimizer = {.kind = OptimizerKind::sgd, .momentum = 0.9};
    options.directory = folder_.path(cat(optimizer, "-straight"));
    options.evaluate_every = 4;
    auto straight = trainer(options, counting(5, 3));
    straight->run();
    // Step 5 is in the middle of an epoch of 9 samples: 20 are taken.
    options.directory = folder_.path(cat(optimizer, "-cut"));
    {
      auto first = trainer(options, counting(5, 3));
      for (int i = 0; i < 5; ++i) first->step();
      first->save();
      first->step();  // and is lost
    }
    options.resume = true;
    auto second = trainer(options, counting(5, 3));
    EXPECT_EQ(second->steps_done(), 5);
    second->run();
    expect_same_weights(*straight, *second);
    EXPECT_EQ(straight->best_loss(), second->best_loss());
    const auto all = read_training_log(folder_.path(cat(optimizer, "-straight/log.jsonl"))),
               cut = read_training_log(folder_.path(cat(optimizer, "-cut/log.jsonl")));
    ASSERT_EQ(all.size(), cut.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].loss, cut[i].loss) << "step " << i + 1;
      EXPECT_EQ(all[i].gradient_norm, cut[i].gradient_norm) << "step " << i + 1;
    }
  }
}

TEST_F(Training, AdaptersAloneAreTrainedAndTakenUpAgain) {
  for (const bool prefix : {false, true}) {
    TrainerOptions options = this->options();
    if (prefix) options.training.prefix.tokens = 5;
    else options.training.lora = {.rank = 4, .dropout = 0.2};
    const std::string kind = prefix ? ".prefix_" : ".lora_";
    options.directory = folder_.path("straight" + kind);
    auto straight = trainer(options);
    straight->run();
    for (const TrainedParameter& parameter : straight->engine().parameters())
      EXPECT_THAT(parameter.name, testing::HasSubstr(kind));
    options.directory = folder_.path("cut" + kind);
    {
      auto first = trainer(options);
      for (int i = 0; i < 3; ++i) first->step();
      first->cancel();
      EXPECT_FALSE(first->step());
      EXPECT_EQ(first->ending(), Trainer::Ending::cancelled);
    }
    options.resume = true;
    auto second = trainer(options);
    EXPECT_EQ(second->steps_done(), 3);
    second->run();
    expect_same_weights(*straight, *second);
    options.training.prefix.tokens = 6;
    options.training.lora = {};
    expect_error([&] { trainer(options); }, Code::invalid_argument, prefix ? "another prefix" : "LoRA rank");
  }
}

TEST_F(Training, CancelFromAnotherThreadLeavesACheckpoint) {
  TrainerOptions options = this->options();
  options.directory = folder_.path("run");
  options.steps = 1 << 20;
  auto trainer = this->trainer(options);
  ASSERT_TRUE(trainer->step());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    trainer->cancel();
  });
  trainer->run();
  other.join();
  EXPECT_EQ(trainer->ending(), Trainer::Ending::cancelled);
  const auto there = list_checkpoints(options.directory + "/checkpoints");
  ASSERT_EQ(there.size(), 1u);
  EXPECT_EQ(Checkpoint::open(there[0]).info().step, trainer->steps_done());
}

TEST_F(Training, ARunWithoutProgressEndsEarlyAndKeepsItsBest) {
  TrainerOptions options = this->options();
  options.directory = folder_.path("run");
  options.rate.peak = 1;  // it gets worse
  options.steps = 50;
  options.evaluate_every = 1;
  options.patience = 3;
  options.keep = 1;
  auto trainer = this->trainer(options, counting(5, 3));
  trainer->run();
  EXPECT_EQ(trainer->ending(), Trainer::Ending::patience);
  const Checkpoint best = Checkpoint::open(options.directory + "/checkpoints/best");
  EXPECT_EQ(best.info().step, trainer->steps_done() - 3);
  options.resume = true;
  EXPECT_FALSE(this->trainer(options, counting(5, 3))->step()) << "what has ended stays so";
}

TEST_F(Training, ALossThatIsNoNumberStopsBeforeTheUpdate) {
  TrainerOptions options = this->options();
  options.directory = folder_.path("run");
  options.save_every = 1;
  auto trainer = this->trainer(options);
  trainer->step();
  trainer->step();
  const std::string key = trainer->engine().parameters()[0].key;
  const Shape shape = trainer->engine().array(key).shape();
  const auto last = [&] { return trainer->engine().array(key).as<float>()[shape.elements() - 1]; };
  const float before = last();
  const Tensor broken(DType::f32, shape);
  for (int64_t i = 0; i + 1 < shape.elements(); ++i) broken.as<float>()[i] = std::nanf("");
  broken.as<float>()[shape.elements() - 1] = before;
  trainer->engine().set_array(key, broken.view());
  for (int again = 0; again < 2; ++again)
    expect_error([&] { trainer->step(); }, Code::numeric, "step 3", "NaN", "a weight holds");
  EXPECT_EQ(last(), before);
  EXPECT_EQ(trainer->steps_done(), 2);
  trainer.reset();
  options.resume = true;
  auto second = this->trainer(options);
  EXPECT_EQ(second->steps_done(), 2);
  EXPECT_TRUE(std::isfinite(second->step()->loss));
}

TEST_F(Training, TheNodeIsNamedThatMadeTheFirstNumberThatIsNone) {
  auto trainer = this->trainer(options());
  for (const TrainedParameter& parameter : trainer->engine().parameters()) {
    if (parameter.name.find("h.1.mlp.c_fc.weight") == std::string::npos) continue;
    const Tensor large(DType::f32, parameter.shape);
    for (int64_t i = 0; i < large.elements(); ++i) large.as<float>()[i] = 3e38F;  // products overflow
    trainer->engine().set_array(parameter.key, large.view());
  }
  expect_error([&] { trainer->step(); }, Code::numeric, "step 1", "h.1/mlp/c_fc");
}

TEST_F(Training, ClippingScalesLongGradientsAlone) {
  TrainerOptions options = this->options();
  options.training.optimizer = {.kind = OptimizerKind::sgd, .weight_decay = 0};
  options.rate = {.peak = 1, .schedule = RateSchedule::constant};
  for (const bool longer : {true, false}) {
    options.clip = 0;
    auto probe = trainer(options);
    const std::string key = probe->engine().parameters()[0].key;
    auto change = [&](Trainer& trainer) {
      const Tensor array = trainer.engine().array(key);
      const std::vector<float> before(array.as<float>(), array.as<float>() + array.elements());
      const double norm = trainer.step()->gradient_norm;
      double sum = 0;
      for (size_t i = 0; i < before.size(); ++i) sum += std::pow(array.as<float>()[i] - before[i], 2);
      return std::pair(std::sqrt(sum), norm);
    };
    const auto [free, norm] = change(*probe);
    options.clip = longer ? norm / 4 : norm * 4;
    const auto [clipped, same] = change(*trainer(options));
    EXPECT_EQ(norm, same);
    EXPECT_NEAR(clipped, longer ? free / 4 : free, 1e-3 * free);
  }
}

TEST_F(Training, EvaluationIsTheMeanOverAllTargets) {
  auto trainer = this->trainer(options());
  const Dataset data = counting(70);  // more than are evaluated at once
  double sum = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    const TrainingSample sample = data[i];
    sum += trainer->engine().evaluate({.rows = {fill_row({&sample, 1}, std::vector<int64_t>{0})}});
  }
  const Trainer::Evaluation all = trainer->evaluate(data);
  EXPECT_EQ(all.targets, data.targets());
  EXPECT_NEAR(all.loss, sum / static_cast<double>(data.targets()), 1e-5);
}

TEST_F(Training, RefusesWhatDoesNotBelongTogether) {
  TrainerOptions options = this->options();
  options.directory = folder_.path("run");
  options.steps = 1;
  trainer(options)->run();
  expect_error([&] { trainer(options); }, Code::invalid_argument, "holds a run already");
  options.resume = true;
  auto refused = [&](auto change, const std::string& word) {
    TrainerOptions other = options;
    change(other);
    expect_error([&] { trainer(other); }, Code::invalid_argument, word);
  };
  refused([](TrainerOptions& other) { other.batch = 5; }, "batch");
  refused([](TrainerOptions& other) { other.seed = 6; }, "seed");
  refused([](TrainerOptions& other) { other.training.lora.rank = 2; }, "LoRA");
  refused([](TrainerOptions& other) { other.training.optimizer.kind = OptimizerKind::sgd; }, "optimizer");
  expect_error([&] { trainer(options, std::nullopt, counting(8)); }, Code::invalid_argument, "other data");
  expect_error([&] { trainer(options, std::nullopt, counting(9), "llama-standard23"); }, Code::invalid_argument,
               "model");
  EXPECT_EQ(trainer(options)->steps_done(), 1);
}

/// A run that has ended continues when it is given more steps, along the learning rates of that many.
TEST_F(Training, IsContinuedWithMoreSteps) {
  TrainerOptions options = this->options();
  options.rate.schedule = RateSchedule::constant;
  options.steps = 5;
  const auto straight = trainer(options);
  std::vector<double> expected;
  while (const auto report = straight->step()) expected.push_back(report->loss);
  options.directory = folder_.path("longer");
  options.steps = 2;
  trainer(options)->run();
  options.resume = true;
  options.steps = 5;
  {
    const auto longer = trainer(options);
    EXPECT_EQ(longer->steps_done(), 2);
    for (int step = 2; step < 5; ++step) EXPECT_EQ(longer->step()->loss, expected[static_cast<size_t>(step)]);
    EXPECT_FALSE(longer->step());
    EXPECT_EQ(longer->ending(), Trainer::Ending::steps);
  }
  options.steps = 4;
  expect_error([&] { trainer(options); }, Code::invalid_argument, "has done 5 steps, and is to have 4");
  // A rate that falls over the steps falls over the new number of them.
  options.rate.schedule = RateSchedule::linear;
  options.directory = folder_.path("falling");
  options.resume = false;
  options.steps = 2;
  trainer(options)->run();
  options.resume = true;
  options.steps = 4;
  const auto falling = trainer(options);
  EXPECT_NEAR(falling->step()->learning_rate, options.rate.peak, 1e-12);
  EXPECT_NEAR(falling->step()->learning_rate, options.rate.peak / 2, 1e-12);
}

/// The next loss is that of the run that was not interrupted, wherever it continues.
TEST_F(Training, WhatOneMeshSavedAnotherTakesUp) {
  const std::string model = "llama-standard23";
  auto on = [&](const char* mesh, TrainerOptions options) {
    CompileOptions compile = World::get().options();
    compile.mesh = Mesh::parse(mesh);
    return std::make_unique<Trainer>(fixture_graph(model), compile, std::move(options), counting(9), std::nullopt,
                                     pool_);
  };
  TrainerOptions straight = options();
  straight.steps = 6;
  const auto expected = on("", straight);
  std::vector<double> losses;
  while (const auto report = expected->step()) losses.push_back(report->loss);
  TrainerOptions saving = straight;
  saving.directory = folder_.path("mesh");
  saving.training.zero = 3;
  const auto first = on("data=2,tensor=2", saving);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(first->step()->loss, losses[static_cast<size_t>(i)], 1e-4 * losses[0]);
  first->save();
  for (const char* mesh : {"data=4", "tensor=2", "", "data=2,tensor=2"}) {
    SCOPED_TRACE(mesh);
    const std::string copy = folder_.path(cat("copy", mesh));
    std::filesystem::copy(saving.directory, copy, std::filesystem::copy_options::recursive);
    TrainerOptions going_on = straight;
    going_on.directory = copy;
    going_on.resume = true;
    going_on.training.zero = 1;
    const auto again = on(mesh, going_on);
    EXPECT_EQ(again->steps_done(), 3);
    EXPECT_NEAR(again->step()->loss, losses[3], 1e-5 * losses[3]);
  }
}

TEST_F(Training, RefusesOptionsOutOfRange) {
  auto refused = [&](auto change, const std::string& word) {
    TrainerOptions other = options();
    change(other);
    expect_error([&] { trainer(other); }, Code::invalid_argument, word);
  };
  refused([](TrainerOptions& other) { other.batch = 0; }, "sample");
  refused([](TrainerOptions& other) { other.steps = -1; }, "steps");
  refused([](TrainerOptions& other) { other.steps = 0, other.epochs = 0; }, "epochs");
  refused([](TrainerOptions& other) { other.rate.peak = std::nan(""); }, "learning rate");
  refused([](TrainerOptions& other) { other.training.row_tokens = 4; }, "document 1");
}

}  // namespace
}  // namespace plait::test
