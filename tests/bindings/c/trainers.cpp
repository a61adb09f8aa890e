// Trainers through plait.hpp: runs through data, steps of the host, what is refused, lifetimes. Usage: trainers
// FIXTURES
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "bindings/c/plait.hpp"
#include "tests/bindings/c/check.h"

namespace {

using plait_api::Generator;
using plait_api::Model;
using plait_api::Options;
using plait_api::Session;
using plait_api::Tensor;
using plait_api::Trainer;

std::string fixtures, folder;
constexpr int64_t documents = 3, length = 10, vocabulary = 512;

Model model(const std::string& name = "gemma3-standard23") { return Model(fixtures + "/" + name); }

Options small(const std::vector<std::pair<std::string, std::string>>& more = {}) {
  Options out;
  out.set("threads", 2).set("seq", 32).set("lr", "3e-3").set("batch", 4);
  for (const auto& [key, value] : more) out.set(key, value);
  return out;
}

/// Rows that count up, each in steps of its own.
std::vector<int32_t> counting() {
  std::vector<int32_t> out;
  for (int64_t row = 0; row < documents; ++row)
    for (int64_t i = 0; i < length; ++i) out.push_back(static_cast<int32_t>(3 + row * 17 + i * (row + 1)));
  return out;
}

template <class T>
Tensor tensor_of(plait_dtype dtype, const std::vector<int64_t>& dims, const std::vector<T>& values) {
  return Tensor::copy(dtype, dims, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
}
Tensor ids() { return tensor_of(PLAIT_I32, {documents, length}, counting()); }

std::string data_file() {
  const std::string path = folder + "/data.jsonl";
  std::ofstream file(path);
  for (int i = 0; i < 24; ++i)
    file << R"({"text": "the river )" << i % 5 << R"( and the sea, and the boat goes home"})"
         << "\n";
  return path;
}

/// The status that `call` ends with.
plait_status status_of(const std::function<void()>& call) {
  try {
    call();
    return PLAIT_OK;
  } catch (const plait_api::Failure& failure) {
    return failure.status();
  }
}
bool said(const char* word) { return std::strstr(plait_last_error(), word) != nullptr; }

struct Run {
  std::vector<plait_step> steps;
  plait_step end{};
};
Run pull(const Trainer& trainer) {
  Run out;
  plait_step step{};
  while (trainer.next(step) && step.ending == PLAIT_ENDING_NONE) out.steps.push_back(step);
  out.end = step;
  return out;
}

/// The mean cross-entropy of rows that predict the ids after them, and its gradient by the logits.
double cross_entropy(const std::vector<float>& logits, std::vector<float>& gradient) {
  const std::vector<int32_t> tokens = counting();
  const double targets = documents * (length - 1);
  gradient.assign(logits.size(), 0);
  double loss = 0;
  for (int64_t at = 0; at < documents * length; ++at) {
    if (at % length == length - 1) continue;
    const float* row = logits.data() + at * vocabulary;
    const auto label = static_cast<size_t>(tokens[static_cast<size_t>(at + 1)]);
    double largest = -1e30, sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) largest = std::max<double>(largest, row[v]);
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v] - largest);
    loss += (largest + std::log(sum) - row[label]) / targets;
    for (int64_t v = 0; v < vocabulary; ++v)
      gradient[static_cast<size_t>(at * vocabulary + v)] =
          static_cast<float>(std::exp(row[v] - largest) / sum / targets);
    gradient[static_cast<size_t>(at * vocabulary) + label] -= static_cast<float>(1 / targets);
  }
  return loss;
}

void test_run() {
  Model gemma = model();
  const std::string out = folder + "/run", data = data_file();
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const Pairs pairs = {{"data", data}, {"eval_data", data}, {"out", out}, {"steps", "8"}, {"evaluate_every", "4"}};
  Pairs resuming = pairs;
  resuming.emplace_back("resume", "true");
  Trainer trainer(gemma, small(pairs));
  const Run run = pull(trainer);
  CHECK(run.steps.size() == 8 && run.end.ending == PLAIT_ENDING_STEPS && run.end.step == 8);
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const plait_step& step = run.steps[i];
    CHECK(step.step == static_cast<int64_t>(i) + 1 && step.steps == 8 && step.tokens > 0 && step.native_bytes > 0);
    CHECK(std::isfinite(step.loss) && step.gradient_norm > 0 && step.learning_rate > 0 && step.tokens_per_second > 0);
    CHECK(std::isfinite(step.evaluation_loss) == (step.step % 4 == 0));
    CHECK(step.saved == (step.step % 4 == 0));  // each is the best so far
  }
  CHECK(run.steps.back().loss < run.steps.front().loss && run.steps.back().epochs > 1);
  CHECK(run.end.best_loss == run.steps.back().evaluation_loss);
  plait_step again{};
  CHECK(trainer.next(again) && again.ending == PLAIT_ENDING_STEPS);
  CHECK(std::fabs(trainer.evaluate(data).loss - run.end.best_loss) < 1e-6);
  CHECK(status_of([&] { trainer.step(ids()); }) == PLAIT_INVALID_ARGUMENT && said("by itself"));

  CHECK(status_of([&] { Trainer(gemma, small(pairs)).wait(); }) == PLAIT_INVALID_ARGUMENT && said("holds a run"));
  Trainer resumed(gemma, small(resuming));
  CHECK(pull(resumed).steps.empty());  // it has ended
  CHECK(resumed.evaluate(data).loss == trainer.evaluate(data).loss);
}

/// A cancel leaves a checkpoint, from which the run continues to the same weights.
void test_cancel_and_resume() {
  Model gemma = model();
  const std::string data = data_file();
  auto options = [&](const std::string& name, const char* resume) {
    return small({{"data", data}, {"out", folder + name}, {"steps", "40"}, {"lora", "2"}, {"resume", resume}});
  };
  Trainer straight(gemma, options("/straight", "false"));
  const Run all = pull(straight);
  Run cut;
  {
    Trainer trainer(gemma, options("/cut", "false"));
    plait_step step{};
    CHECK(trainer.next(step) && trainer.next(step));
    std::thread other([&] { trainer.cancel(); });
    other.join();
    cut = pull(trainer);
    CHECK(cut.end.ending == PLAIT_ENDING_CANCELLED && cut.end.step >= 2);
  }
  Trainer resumed(gemma, options("/cut", "true"));
  const Run rest = pull(resumed);
  CHECK(cut.end.step + static_cast<int64_t>(rest.steps.size()) == 40);
  if (!rest.steps.empty()) CHECK(rest.steps.back().loss == all.steps.back().loss);
  CHECK(resumed.evaluate(data).loss == straight.evaluate(data).loss);
}

/// The largest difference, as a share of the largest of `expected`, which may be longer.
double apart(const std::vector<float>& values, const std::vector<float>& expected) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    worst = std::max<double>(worst, std::fabs(values[i] - expected[i]));
    largest = std::max<double>(largest, std::fabs(expected[i]));
  }
  return worst / largest;
}

/// Forward, the host's loss, backward, update are a step.
void test_host_loss() {
  Model gemma = model();
  Trainer own(gemma, small()), whole(gemma, small());
  std::vector<float> gradient;
  for (int step = 1; step <= 3; ++step) {
    const Tensor logits = own.forward(ids());
    const plait_view view = logits.view();
    CHECK(view.rank == 3 && view.dims[0] == documents && view.dims[1] == length && view.dims[2] == vocabulary);
    const double loss = cross_entropy(logits.values<float>(), gradient);
    own.backward(ids(), tensor_of(PLAIT_F32, {documents, length, vocabulary}, gradient));
    const plait_step by_parts = own.update(), at_once = whole.step(ids());
    CHECK(by_parts.step == step && at_once.step == step && std::isnan(by_parts.loss));
    CHECK(std::fabs(at_once.loss - loss) < 1e-5 * loss);
    CHECK(std::fabs(at_once.gradient_norm - by_parts.gradient_norm) < 1e-4 * at_once.gradient_norm);
    CHECK(at_once.learning_rate == 3e-3);  // it does not fall where the options do not specify how far
  }
  const plait_evaluation a = own.evaluate(ids()), b = whole.evaluate(ids());
  CHECK(a.targets == documents * (length - 1) && std::fabs(a.loss - b.loss) < 1e-4 * b.loss);
  CHECK(std::fabs(a.perplexity - std::exp(a.loss)) < 1e-9 * a.perplexity);
  // Half the gradient twice is the gradient.
  Trainer halves(gemma, small());
  const std::vector<float> logits = halves.forward(ids()).values<float>();
  cross_entropy(logits, gradient);
  for (float& one : gradient) one /= 2;
  const Tensor half = tensor_of(PLAIT_F32, {documents, length, vocabulary}, gradient);
  halves.backward(ids(), half);
  halves.backward(ids(), half);
  Trainer first(gemma, small());
  CHECK(std::fabs(halves.update().gradient_norm - first.step(ids()).gradient_norm) < 1e-3);
}

/// Labels of -1 do not count, and micro-batches change nothing but the order of sums.
void test_labels() {
  Model gemma = model();
  Trainer trainer(gemma, small());
  std::vector<int32_t> tokens = counting(), labels(tokens.size(), -1);
  const std::vector<int64_t> wide(tokens.begin(), tokens.end());
  for (size_t i = 0; i + 1 < tokens.size(); ++i)
    if (i % length != length - 1) labels[i] = tokens[i + 1];
  const Tensor given = tensor_of(PLAIT_I32, {documents, length}, labels);
  const double loss = trainer.evaluate(ids()).loss;
  CHECK(trainer.evaluate(ids(), given).loss == loss);
  CHECK(trainer.evaluate(tensor_of(PLAIT_I64, {documents, length}, wide)).loss == loss);
  labels[4] = -1;
  const plait_evaluation fewer = trainer.evaluate(ids(), tensor_of(PLAIT_I32, {documents, length}, labels));
  CHECK(fewer.targets == documents * (length - 1) - 1 && fewer.loss != loss);
  Trainer small_rows(gemma, small({{"seq", std::to_string(length)}, {"micro_batch", std::to_string(length)}}));
  CHECK(std::fabs(small_rows.evaluate(ids()).loss - loss) < 1e-5);
  CHECK(std::fabs(small_rows.step(ids()).gradient_norm - trainer.step(ids()).gradient_norm) < 1e-4);
}

/// Documents are shared out among the ranks of a mesh, whatever their number; logits are the host's, whole.
void test_mesh() {
  Model gemma = model();
  Trainer alone(gemma, small({{"optimizer", "sgd"}})),
      spread(gemma, small({{"optimizer", "sgd"}, {"mesh", "data=2"}, {"zero", "2"}}));
  for (int step = 0; step < 3; ++step) {
    const plait_step one = alone.step(ids()), two = spread.step(ids());
    CHECK(std::fabs(one.loss - two.loss) < 1e-5 * one.loss);
    CHECK(std::fabs(one.gradient_norm - two.gradient_norm) < 1e-4 * one.gradient_norm);
  }
  CHECK(std::fabs(alone.evaluate(ids()).loss - spread.evaluate(ids()).loss) < 1e-4);
  const std::vector<float> logits = alone.forward(ids()).values<float>();
  CHECK(apart(spread.forward(ids()).values<float>(), logits) < 1e-4);
  std::vector<float> gradient;
  cross_entropy(logits, gradient);
  for (Trainer* one : {&alone, &spread})
    one->backward(ids(), tensor_of(PLAIT_F32, {documents, length, vocabulary}, gradient));
  const plait_step one = alone.update(), two = spread.update();
  CHECK(std::fabs(one.gradient_norm - two.gradient_norm) < 1e-4 * one.gradient_norm);
}

/// A graph that is no decoder, with a loss of its own: its inputs by name.
void test_own_loss() {
  const Model tagger(fixtures + "/own_loss/tagger");
  Options options;
  options.set("loss", "loss").set("lr", "0.01").set("threads", 1);
  Trainer trainer(tagger, options);
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < 12; ++i) ids.push_back(i * 3), labels.push_back(i % 5 ? i % 7 : -100);
  const Tensor of_ids = tensor_of(PLAIT_I64, {2, 6}, ids), of_labels = tensor_of(PLAIT_I64, {2, 6}, labels);
  const double before = trainer.evaluate({{"ids", &of_ids}, {"labels", &of_labels}}).loss;
  plait_step step{};
  for (int i = 0; i < 20; ++i) step = trainer.step({{"labels", &of_labels}, {"ids", &of_ids}});
  CHECK(step.step == 20 && step.tokens == 2 && step.loss < 0.7 * before);
  const double after = trainer.evaluate({{"ids", &of_ids}, {"labels", &of_labels}}).loss;
  trainer.write(folder + "/tagger");
  Session session(Model(folder + "/tagger"));
  const float again = session.run({{"ids", &of_ids}, {"labels", &of_labels}}, {"loss"})[0].values<float>()[0];
  CHECK(std::fabs(again - after) < 1e-5);
  CHECK(status_of([&] { trainer.step({{"ids", &of_ids}}); }) == PLAIT_INVALID_ARGUMENT && said("labels"));
  CHECK(status_of([&] {
          trainer.step({{"ids", &of_ids}, {"ids", &of_ids}});
        }) == PLAIT_INVALID_ARGUMENT &&
        said("twice"));
  CHECK(status_of([&] { trainer.step(::ids()); }) == PLAIT_INVALID_ARGUMENT && said("by name"));
}

void test_wrong_arguments() {
  Model gemma = model();
  Trainer trainer(gemma, small());
  const std::vector<float> zeros(documents * length * vocabulary);
  const auto matrix = [](std::vector<int32_t> values, int64_t rows, int64_t columns) {
    return tensor_of(PLAIT_I32, {rows, columns}, values);
  };
  const Tensor floats = tensor_of(PLAIT_F32, {1, 2}, std::vector<float>{1, 2}), none;
  CHECK(status_of([&] { trainer.step(none); }) == PLAIT_INVALID_ARGUMENT && said("NULL"));
  CHECK(status_of([&] { trainer.step(floats); }) == PLAIT_INVALID_ARGUMENT && said("i32 or i64"));
  CHECK(status_of([&] { trainer.step(matrix({}, 0, 4)); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { trainer.step(matrix({1, 2}, 1, 2), matrix({1, 2}, 2, 1)); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { trainer.step(matrix({1, vocabulary}, 1, 2)); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { trainer.step(matrix({-5, 1}, 1, 2)); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] {
          trainer.step(matrix({1, 2}, 1, 2), matrix({vocabulary, -1}, 1, 2));
        }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { trainer.step(matrix(std::vector<int32_t>(200, 1), 1, 200)); }) == PLAIT_INVALID_ARGUMENT &&
        said("200"));
  CHECK(status_of([&] { trainer.evaluate(matrix({1}, 1, 1)); }) == PLAIT_INVALID_ARGUMENT && said("no label"));
  CHECK(status_of([&] { trainer.update(); }) == PLAIT_INVALID_ARGUMENT && said("no gradients"));
  CHECK(status_of([&] { trainer.backward(ids(), floats); }) == PLAIT_INVALID_ARGUMENT && said("logits are"));
  plait_step step{};
  CHECK(status_of([&] { trainer.next(step, 0); }) == PLAIT_INVALID_ARGUMENT && said("no data"));
  CHECK(status_of([&] { trainer.save(); }) == PLAIT_INVALID_ARGUMENT && said("directory"));
  CHECK(status_of([&] { trainer.save_adapter(folder + "/none"); }) == PLAIT_INVALID_ARGUMENT && said("adapters"));
  CHECK(status_of([&] { trainer.evaluate("/no/such/file"); }) == PLAIT_NOT_FOUND);
  step.struct_size = 8;
  CHECK(plait_trainer_step(trainer.get(), ids().get(), nullptr, &step) == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_trainer_step(trainer.get(), ids().get(), nullptr, nullptr) == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_trainer_forward(trainer.get(), ids().get(), nullptr) == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_trainer_evaluate(trainer.get(), nullptr, nullptr) == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_trainer_export(trainer.get(), nullptr) == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_trainer_progress(trainer.get(), nullptr) == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_trainer_release(nullptr) == PLAIT_OK);
  // None of this has changed the weights.
  CHECK(trainer.step(ids()).step == 1);

  const std::pair<std::vector<std::pair<const char*, const char*>>, const char*> refused[] = {
      {{{"data", "/no/such/file"}}, "/no/such/file"}, {{{"seq", "100000"}}, "context"},
      {{{"micro_batch", "16"}}, "micro_batch"},       {{{"lr", "0"}}, "learning rate"},
      {{{"train", "*.nothing"}}, "nothing"},          {{{"lora", "4"}, {"lora_targets", "*.nothing"}}, "nothing"},
      {{{"schedule", "cosine"}}, "how many steps"},   {{{"mesh", "tensors=2"}}, "tensors"},
  };
  for (const auto& [changes, word] : refused) {
    Options options = small();
    for (const auto& [key, value] : changes) options.set(key, value);
    CHECK(status_of([&, &changed = options] { Trainer(gemma, changed).wait(); }) != PLAIT_OK);
    if (!said(word)) std::printf("  %s: %s\n", word, plait_last_error());
    CHECK(said(word));
  }
  CHECK(status_of([&] { Trainer(gemma, Options().set("temperature", "1")); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { Trainer(gemma, Options().set("optimizer", "magic")); }) == PLAIT_INVALID_ARGUMENT);
  const std::string broken = folder + "/broken.jsonl";
  std::ofstream(broken) << "{\"text\": \"fine\"}\n{\"text\": 7}\n";
  CHECK(status_of([&] {
          Trainer(gemma, small({{"data", broken}})).wait();
        }) == PLAIT_INVALID_ARGUMENT &&
        said("line 2"));
}

/// Nothing is trained: only logits and losses, those of the model.
void test_frozen() {
  Model gemma = model();
  Trainer trainer(gemma, small()), frozen(gemma, small({{"frozen", "true"}}));
  CHECK(std::fabs(frozen.evaluate(ids()).loss - trainer.evaluate(ids()).loss) < 1e-5);
  CHECK(status_of([&] { frozen.step(ids()); }) == PLAIT_INVALID_ARGUMENT && said("only evaluates"));
  CHECK(frozen.forward(ids()).view().dims[2] == vocabulary);
  CHECK(status_of([&] {
          Trainer(gemma, small({{"frozen", "true"}, {"data", data_file()}})).wait();
        }) == PLAIT_INVALID_ARGUMENT);
}

/// Logits of every token of the first document, by a generator.
std::vector<float> scores(const Model& of, const std::string& adapter = "") {
  Options options;
  options.set("threads", 1).set("cache_bytes", "4M");
  if (!adapter.empty()) options.set("adapter", adapter);
  Generator generator(of, options);
  const std::vector<int32_t> tokens = counting();
  return generator.submit({tokens.begin(), tokens.begin() + length}, Options().set("kind", "score"))
      .result()
      .values<float>();
}

/// What a host can do wrong about a generator's adapters.
void test_slots(const Model& gemma, const std::string& adapter) {
  auto with_slots = [&](const char* slots, const char* rank) {
    Options options;
    options.set("threads", 1).set("cache_bytes", "2M").set("adapter_slots", slots).set("adapter_rank", rank);
    return Generator(gemma, options);
  };
  Generator generator = with_slots("1", "4");
  auto status = [&](const std::string& name, const std::string& directory) {
    return status_of([&] { generator.add_adapter(name, directory); });
  };
  CHECK(status("a", folder + "/nothing") == PLAIT_NOT_FOUND && said("adapter_config.json"));
  CHECK(status("", adapter) == PLAIT_INVALID_ARGUMENT && said("name"));
  CHECK(status("a", adapter) == PLAIT_OK);
  CHECK(status("a", adapter) == PLAIT_INVALID_ARGUMENT && said("of that name already"));
  CHECK(status("b", adapter) == PLAIT_OVERLOADED && said("\"a\""));
  CHECK(generator.adapters() == "[\"a\"]");
  CHECK(status_of([&] { generator.remove_adapter("b"); }) == PLAIT_NOT_FOUND && said("\"b\""));
  const std::vector<int32_t> ids = {5, 6};
  CHECK(status_of([&] { generator.submit(ids, Options().set("adapter", "b")); }) == PLAIT_NOT_FOUND && said("\"b\""));
  generator.remove_adapter("a");
  CHECK(status("b", adapter) == PLAIT_OK);
  CHECK(status_of([&] { with_slots("1", "2").add_adapter("a", adapter); }) == PLAIT_INVALID_ARGUMENT &&
        said("rank is 4"));
  CHECK(status_of([&] { with_slots("0", "4").add_adapter("a", adapter); }) == PLAIT_UNSUPPORTED &&
        said("without adapter slots"));
  CHECK(plait_generator_add_adapter(generator.get(), nullptr, "x") == PLAIT_INVALID_ARGUMENT);
  CHECK(plait_generator_remove_adapter(nullptr, "x") == PLAIT_INVALID_ARGUMENT);
  for (const char* text : {"no name", "=x"})
    CHECK(status_of([&] { Generator(gemma, Options().set("adapters", text)).wait(); }) == PLAIT_INVALID_ARGUMENT);
}

/// What was trained comes out as a model, and as an adapter, that give the trainer's own logits.
void test_export(int rank) {
  Model gemma = model();
  Trainer trainer(gemma, small({{"lora", std::to_string(rank)}, {"lr", "1e-2"}}));
  for (int step = 0; step < 3; ++step) trainer.step(ids());
  const std::string directory = folder + (rank ? "/merged" : "/full"), adapter = folder + "/adapter";
  trainer.write(directory);
  CHECK(status_of([&] { trainer.write(directory); }) == PLAIT_INVALID_ARGUMENT);
  const std::vector<float> own = trainer.forward(ids()).values<float>();
  CHECK(apart(scores(Model(directory)), own) < 1e-4);
  CHECK(apart(scores(gemma), own) > 1e-2);
  if (!rank) return;
  trainer.save_adapter(adapter);
  CHECK(apart(scores(gemma, adapter), own) < 1e-4);
  Trainer again(gemma, small({{"adapter", adapter}}));
  CHECK(apart(again.forward(ids()).values<float>(), own) < 1e-6);
  CHECK(status_of([&] { scores(model("llama-standard23"), adapter); }) == PLAIT_INVALID_ARGUMENT);
  if (rank) test_slots(gemma, adapter);
  CHECK(status_of([&] { scores(gemma, folder); }) == PLAIT_NOT_FOUND);
}

/// Releases come while a step is under way, from other threads, and twice; parents go first.
void test_lifetimes() {
  const std::string data = data_file();
  for (int round = 0; round < 6; ++round) {
    plait_trainer* handle = nullptr;
    {
      Model gemma = model();
      Options options = small({{"data", data}, {"steps", "100000"}});
      if (round % 2) options.set("out", folder + "/lifetimes" + std::to_string(round));
      OK(plait_trainer_create(gemma.get(), options.get(), &handle));
    }
    plait_step step{};
    step.struct_size = sizeof step;
    if (round > 1) OK(plait_trainer_next(handle, -1, &step));
    plait_status waited = PLAIT_OK;
    std::thread pulling([&] {
      plait_step other{};
      other.struct_size = sizeof other;
      while ((waited = plait_trainer_next(handle, -1, &other)) == PLAIT_OK && other.ending == PLAIT_ENDING_NONE) {
      }
    });
    std::thread releasing([&] { plait_trainer_release(handle); });
    releasing.join();
    CHECK(plait_trainer_release(handle) == PLAIT_CLOSED);
    CHECK(plait_trainer_cancel(handle) == PLAIT_CLOSED);
    pulling.join();
    CHECK(waited == PLAIT_OK || waited == PLAIT_CLOSED || waited == PLAIT_CANCELLED);
  }
}

/// Threads ask for evaluations while the run continues; each gets one between two steps.
void test_threads() {
  Model gemma = model();
  const std::string data = data_file();
  Trainer trainer(gemma, small({{"data", data}, {"steps", "100000"}}));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int number = 0; number < 3; ++number)
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round)
        if (!(trainer.evaluate(data).loss > 0)) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  trainer.cancel();
  CHECK(pull(trainer).end.ending == PLAIT_ENDING_CANCELLED);
}

/// A cancel of steps that the host gives: the weights stay, and are saved.
void test_cancelled_host() {
  Model gemma = model();
  const std::string out = folder + "/cancelled";
  Trainer trainer(gemma, small({{"out", out}}));
  trainer.step(ids());
  trainer.cancel();
  CHECK(status_of([&] { trainer.step(ids()); }) == PLAIT_CANCELLED);
  CHECK(std::filesystem::exists(out + "/checkpoints/step-000001/manifest.json"));
  Trainer again(gemma, small({{"out", out}, {"resume", "true"}}));
  CHECK(again.step(ids()).step == 2);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  fixtures = words[1];
  folder = (std::filesystem::temp_directory_path() / "plait-trainers-XXXXXX").string();
  if (!mkdtemp(folder.data())) return 2;
  const std::pair<const char*, std::function<void()>> tests[] = {
      {"run", test_run},
      {"cancel and resume", test_cancel_and_resume},
      {"host loss", test_host_loss},
      {"labels", test_labels},
      {"mesh", test_mesh},
      {"own loss", test_own_loss},
      {"wrong arguments", test_wrong_arguments},
      {"frozen", test_frozen},
      {"export", [] { test_export(0); }},
      {"export of adapters", [] { test_export(4); }},
      {"lifetimes", test_lifetimes},
      {"threads", test_threads},
      {"cancelled host", test_cancelled_host},
  };
  for (const auto& [name, test] : tests) {
    std::printf("%s\n", name);
    try {
      test();
    } catch (const plait_api::Failure& failure) {
      ++failures;
      std::printf("failed: %s: %s\n", plait_status_name(failure.status()), failure.what());
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("%d failures\n", failures);
  return failures != 0;
}
