// Files of strangers, through plait.h: weights that another process shortens or overwrites while they are open, chat templates
// that ask for all memory or time, plans of trainings that nothing is loaded for.
// Usage: strangers FIXTURES
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "bindings/c/plait.hpp"
#include "tests/bindings/c/check.h"

namespace {

namespace fs = std::filesystem;
using plait_api::Generator;
using plait_api::Model;
using plait_api::Options;

std::string fixture;

/// A copy of the fixture, which may be damaged.
class Copy {
 public:
  Copy() : folder_(fs::temp_directory_path() / ("plait_strangers_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::copy(fixture, folder_, fs::copy_options::recursive);
    // Older than what the test writes, whatever the clock of the file system.
    for (const auto& entry : fs::directory_iterator(folder_))
      fs::last_write_time(entry.path(), fs::last_write_time(entry.path()) - std::chrono::seconds(10));
  }
  ~Copy() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }
  /// The file with the weights: the largest.
  std::string weights() const {
    fs::path largest;
    uintmax_t most = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string ending = entry.path().extension().string();
      if ((ending == ".onnx" || ending == ".data") && entry.file_size() > most)
        most = entry.file_size(), largest = entry.path();
    }
    return largest.string();
  }

 private:
  fs::path folder_;
};

template <class Call>
plait_status status_of(Call&& call) {
  try {
    call();
    return PLAIT_OK;
  } catch (const plait_api::Failure& failure) {
    return failure.status();
  }
}

Options small() {
  Options out;
  out.set("threads", 1).set("cache_bytes", "4M").set("max_tokens", 4);
  return out;
}

void shorten(const std::string& file) { CHECK(truncate(file.c_str(), 1000) == 0); }
void overwrite(const std::string& file) {
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out << "other bytes";
}

std::string generate(const Generator& generator) {
  return generator
      .submit(std::vector<int32_t>{323, 352, 460}, Options().set("temperature", "0").set("ignore_eos", "true"))
      .text();
}

/// Before weights are loaded, and between two requests.
void test_weights_that_change() {
  for (auto damage : {shorten, overwrite}) {
    {
      Copy copy;
      Model model(copy.path(), Options().set("tokenizer", "none"));
      damage(copy.weights());
      CHECK(status_of([&] { Generator(model, small()).wait(-1); }) == PLAIT_IO);
      CHECK(std::string(plait_last_error()).find(copy.weights()) != std::string::npos);
    }
    {
      Copy copy;
      Model model(copy.path(), Options().set("tokenizer", "none"));
      Generator generator(model, small());
      CHECK(status_of([&] { generate(generator); }) == PLAIT_OK);
      damage(copy.weights());
      CHECK(status_of([&] { generate(generator); }) == PLAIT_IO);
    }
    {
      Copy copy;
      Model model(copy.path(), Options().set("tokenizer", "none").set("weights", "copied"));
      Generator before(model, small());
      const std::string text = generate(before);
      damage(copy.weights());
      CHECK(generate(before) == text);
      CHECK(generate(Generator(model, small())) == text);
    }
  }
}

/// A file that is replaced under its name is no matter.
void test_weights_that_are_replaced() {
  Copy copy;
  Model model(copy.path(), Options().set("tokenizer", "none"));
  Generator generator(model, small());
  const std::string text = generate(generator), weights = copy.weights();
  std::ofstream(weights + ".new") << "a new model";
  fs::rename(weights + ".new", weights);
  CHECK(generate(generator) == text);
}

plait_status chat(plait_tokenizer* tokenizer) {
  plait_tensor* text = nullptr;
  plait_status status = plait_tokenizer_chat(tokenizer, R"([{"role":"user","content":"hello"}])", -1, nullptr, &text);
  plait_tensor_release(text);
  return status;
}

void test_templates() {
  Copy copy;
  auto open = [&](const std::string& chat_template, const Options& options) {
    std::ofstream(copy.path() + "/chat_template.jinja") << chat_template;
    plait_tokenizer* out = nullptr;
    OK(plait_tokenizer_open(copy.path().c_str(), options.get(), &out));
    return out;
  };
  const std::string grows =
      "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
  plait_tokenizer* tokenizer = open(grows, Options());
  STATUS(PLAIT_OUT_OF_MEMORY, chat(tokenizer));
  CHECK(std::string(plait_last_hint()).find("text_bytes") != std::string::npos);
  plait_tokenizer_release(tokenizer);

  const std::string compares =
      "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}";
  tokenizer = open(compares, Options().set("text_ms", 200));
  STATUS(PLAIT_TIMEOUT, chat(tokenizer));
  plait_tokenizer_release(tokenizer);

  tokenizer = open(compares, Options().set("text_ms", 60000));
  std::atomic<bool> ended{false};
  std::thread canceller([&] {
    while (!ended) {  // the call may not have begun
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      OK(plait_tokenizer_cancel(tokenizer));
    }
  });
  const auto start = std::chrono::steady_clock::now();
  STATUS(PLAIT_CANCELLED, chat(tokenizer));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  ended = true;
  canceller.join();
  plait_tokenizer_release(tokenizer);

  // Submitting a chat renders it, too.
  std::ofstream(copy.path() + "/chat_template.jinja") << grows;
  Model model(copy.path(), Options().set("text_bytes", "4M"));
  Generator generator(model, small());
  plait_request* request = nullptr;
  STATUS(PLAIT_OUT_OF_MEMORY,
         plait_generator_submit_chat(generator.get(), R"([{"role":"user","content":"a"}])", -1, nullptr, &request));
}

void test_plans_of_trainings() {
  Copy copy;
  Model model(copy.path());
  auto number = [](const std::string& json, const std::string& name) {
    const size_t at = json.find('"' + name + "\": ");
    CHECK(at != std::string::npos);
    return at == std::string::npos ? -1.0 : std::stod(json.substr(at + name.size() + 4));
  };
  const std::string all = model.plan_training(Options());
  const std::string lora = model.plan_training(Options().set("lora", 4));
  CHECK(number(all, "rank_optimizer_bytes") == 2 * number(all, "rank_trained_bytes"));
  CHECK(number(all, "rank_gradient_bytes") == number(all, "rank_trained_bytes"));
  CHECK(number(lora, "trained_parameters") < number(all, "trained_parameters") / 4);
  CHECK(number(lora, "rank_frozen_bytes") > number(lora, "rank_trained_bytes"));
  const std::string zero = model.plan_training(Options().set("mesh", "data=2").set("zero", 1));
  CHECK(number(zero, "ranks") == 2);
  CHECK(number(zero, "rank_optimizer_bytes") < 0.7 * number(all, "rank_optimizer_bytes"));
  CHECK(zero.find("\"calls\"") != std::string::npos);
  CHECK(status_of([&] { model.plan_training(Options().set("train", "no_such_weight")); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { model.plan_training(Options().set("max_tokens", 3)); }) == PLAIT_INVALID_ARGUMENT);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  fixture = std::string(words[1]) + "/gemma3-standard23";
  try {
    test_weights_that_change();
    test_weights_that_are_replaced();
    test_templates();
    test_plans_of_trainings();
  } catch (const plait_api::Failure& failure) {
    ++failures;
    std::printf("failed: %s: %s\n", plait_status_name(failure.status()), failure.what());
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
