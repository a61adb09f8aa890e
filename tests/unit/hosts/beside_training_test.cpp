// Trainers next to generators of one process, through the public interface: on one model's handle, adapters that go
// from one to the other while both are at work, and either that goes first.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bindings/c/plait.hpp"

namespace plait_api {
namespace {

class BesideTraining : public testing::Test {
 protected:
  BesideTraining() {
    std::string name = (std::filesystem::temp_directory_path() / "plait-beside-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    std::ofstream file(path("data.jsonl"));
    for (int i = 0; i < 24; ++i)
      file << R"({"text": "the river )" << i % 5 << R"( and the sea, and the boat goes home"})"
           << "\n";
  }
  ~BesideTraining() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  Trainer trainer(int rank = 4) const {
    Options options;
    options.set("threads", 1).set("seq", 32).set("batch", 2).set("lr", "3e-2").set("steps", "100000");
    options.set("lora", rank).set("data", path("data.jsonl"));
    return Trainer(model_, options);
  }
  Generator generator() const {
    Options options;
    options.set("threads", 1).set("cache_bytes", "2M").set("adapter_slots", "2").set("adapter_rank", "4");
    return Generator(model_, options);
  }
  /// Waits for some steps; the loss of the last.
  static double after(const Trainer& trainer, int steps) {
    plait_step step{};
    for (int i = 0; i < steps; ++i) trainer.next(step, -1);
    return step.loss;
  }

  static Options greedy(const std::string& adapter) {
    Options out;
    out.set("temperature", "0").set("max_tokens", "12").set("ignore_eos", "true");
    if (!adapter.empty()) out.set("adapter", adapter);
    return out;
  }

  const Model model_{PLAIT_FIXTURES "/gemma3-standard23"};
  std::string folder_;
};

/// Clients who submit, and cancel some of it, until they are told to end. What they get is the same each time.
class Clients {
 public:
  Clients(const Generator& generator, const Options& options, int count) {
    for (int number = 0; number < count; ++number)
      threads_.emplace_back([&, number] { ask(generator, options, number); });
  }
  int end() {
    ended_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return wrong_;
  }
  int done() const { return done_; }
  ~Clients() { end(); }

 private:
  void ask(const Generator& generator, const Options& options, int number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    std::string first;
    for (int round = 0; !ended_; ++round) {
      const Request request = generator.submit("the river", options);
      if (round && random() % 3 == 0) {
        request.cancel();
        continue;
      }
      const std::string text = request.text();
      if (first.empty()) first = text;
      if (text != first) ++wrong_;
      ++done_;
    }
  }

  std::atomic<bool> ended_{false};
  std::atomic<int> wrong_{0}, done_{0};
  std::vector<std::thread> threads_;
};

TEST_F(BesideTraining, AdaptersGoFromTheTrainerToTheGeneratorWhileBothWork) {
  const Generator serving = generator();
  const Trainer training = trainer();
  const Options base = greedy("");
  Clients clients(serving, base, 2);
  constexpr int rounds = 6;
  for (int round = 0; round < rounds; ++round) {
    after(training, 3);
    const std::string name = "round" + std::to_string(round), directory = path(name);
    training.save_adapter(directory);
    serving.add_adapter(name, directory);
    const std::string text = serving.submit("the river", greedy(name)).text();
    if (round + 1 == rounds) {
      Options alone;
      alone.set("threads", 1).set("cache_bytes", "2M").set("adapter", directory);
      EXPECT_EQ(Generator(model_, alone).submit("the river", greedy("")).text(), text);
      EXPECT_NE(serving.submit("the river", base).text(), text) << "the adapter changes what is said";
    }
    serving.remove_adapter(name);
  }
  while (clients.done() < 2) std::this_thread::yield();
  EXPECT_EQ(clients.end(), 0) << "answers without an adapter that changed";
}

TEST_F(BesideTraining, EitherMayGoFirst) {
  for (const bool trainer_first : {true, false}) {
    auto serving = std::make_unique<Generator>(generator());
    auto training = std::make_unique<Trainer>(trainer());
    const Request request = serving->submit("the river", greedy(""));
    after(*training, 1);
    if (trainer_first) {
      training.reset();
      EXPECT_FALSE(request.text().empty());
      EXPECT_FALSE(serving->submit("the sea", greedy("")).text().empty());
    } else {
      serving.reset();  // the request lives on
      EXPECT_GT(after(*training, 2), 0);
    }
  }
}

TEST_F(BesideTraining, TwoTrainersAtOnceLearnWhatEachLearnsAlone) {
  double alone[2], together[2];
  for (int i = 0; i < 2; ++i) alone[i] = after(trainer(2 + i), 4);
  const Trainer first = trainer(2), second = trainer(3);
  std::thread other([&] { together[1] = after(second, 4); });
  together[0] = after(first, 4);
  other.join();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(together[i], alone[i]);
}

/// Adapters that no request can have next to the weights are refused with what to do.
TEST_F(BesideTraining, WhatRequestsCannotHaveIsToBeMerged) {
  const auto refused = [&](const Model& model, const char* target) {
    Options adapting, capacity;
    adapting.set("threads", 1).set("lora", 2).set("lora_targets", target).set("seq", 16);
    Trainer(model, adapting).save_adapter(path(target));
    capacity.set("threads", 1).set("cache_bytes", "2M").set("adapter_slots", 1).set("adapter_rank", 2);
    const Generator serving(model, capacity);
    try {
      serving.add_adapter("a", path(target));
    } catch (const Failure& failure) {
      return failure.hint();
    }
    return std::string("not refused");
  };
  for (const std::string& hint :
       {refused(model_, "embedding"), refused(Model(PLAIT_FIXTURES "/zoo/mixtral/dynamo18"), "experts")})
    EXPECT_NE(hint.find("plait export"), std::string::npos) << hint;
}

/// Loads that are given up, and trainers that go while they load.
TEST_F(BesideTraining, LoadsAreGivenUpBesideRequests) {
  const Generator serving = generator();
  const Options base = greedy("");
  Clients clients(serving, base, 1);
  for (int round = 0; round < 6; ++round) {
    const Trainer training = trainer();
    if (round % 2) training.cancel();
  }
  EXPECT_EQ(clients.end(), 0);
}

}  // namespace
}  // namespace plait_api
