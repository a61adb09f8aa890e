// Every fixture on a mesh, through the public interface: the logits and greedy tokens of one rank, and those of a
// batch; a few steps of training; adapters of requests.
//
// usage: meshes FIXTURES [--zoo] MESH...      --zoo: with one of every export, too. Ranks are threads; or under
// mpirun processes, as many as each MESH has ranks. A MESH may have seeds after it: tensor=2+sequence.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"
#include "tests/bindings/c/check.h"

namespace {

namespace fs = std::filesystem;
using plait_api::Generator;
using plait_api::Model;
using plait_api::Options;
using plait_api::Request;
using plait_api::Tensor;
using plait_api::Trainer;
using plait_api::World;
using Ids = std::vector<int32_t>;

Options options(const std::string& text) {
  Options out;
  const size_t plus = text.find('+');
  if (plus != std::string::npos) out.set("seeds", text.substr(plus + 1));
  out.set("mesh", text.substr(0, plus));
  out.set("threads", 1).set("cache_bytes", "8M").set("dtype", "f32").set("page_tokens", 16);
  out.set("temperature", "0").set("max_tokens", 8).set("ignore_eos", "true").set("step_tokens", 48);
  return out;
}

Generator make(const World& world, const Model& model, const std::string& mesh) {
  return world && !mesh.empty() ? Generator(world, model, options(mesh)) : Generator(model, options(mesh));
}

Ids prompt(int length, int vocabulary) {
  Ids out;
  for (int i = 0; i < length; ++i) out.push_back(3 + (i * 7919 + length * 31) % (vocabulary - 4));
  return out;
}

Ids pull(const Request& request) {
  Ids out;
  plait_event event{};
  while (request.next(event) && event.kind != PLAIT_EVENT_END)
    if (event.token >= 0) out.push_back(event.token);
  return out;
}

struct Answers {
  std::vector<float> logits;
  std::vector<Ids> greedy;
};

Answers ask(const Generator& generator) {
  const int vocabulary = static_cast<int>(generator.statistics().vocabulary);
  Answers out;
  out.logits = generator.submit(prompt(37, vocabulary), Options().set("kind", "score")).result().values<float>();
  std::vector<Request> together;
  for (int length : {5, 1, 60, 17}) together.push_back(generator.submit(prompt(length, vocabulary)));
  for (const Request& request : together) out.greedy.push_back(pull(request));
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return HUGE_VAL;
  double largest = 1e-30, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(b[i]));
    worst = std::max<double>(worst, std::fabs(double{a[i]} - double{b[i]}));
  }
  return worst / largest;
}

/// Of the logits, of the largest; and whether tokens may differ where two logits are nearly one. Gemma 4's weights
/// make much of little: its logits differ by 5e-4 between instruction sets, too.
double tolerance(const std::string& name) { return name.find("gemma4") != std::string::npos ? 1e-3 : 1e-4; }

void compare(const World& world, const std::string& path, const std::vector<std::string>& meshes) {
  Model model(path, Options().set("tokenizer", "none"));
  if (model.info().find("\"recognised\": true") == std::string::npos) return;
  const Answers expected = ask(make(World(), model, ""));
  for (const std::string& mesh : meshes) {
    try {
      const Answers got = ask(make(world, model, mesh));
      const double error = relative_error(got.logits, expected.logits);
      if (error > tolerance(path) || got.greedy != expected.greedy) {
        ++failures;
        std::printf("%s on %s: logits differ by %.1e of the largest, greedy tokens are %s\n", path.c_str(),
                    mesh.c_str(), error, got.greedy == expected.greedy ? "equal" : "others");
      }
    } catch (const plait_api::Failure& failure) {
      ++failures;
      std::printf("%s on %s: %s\n", path.c_str(), mesh.c_str(), failure.what());
    }
  }
}

/// A few steps are those of one rank, and so are the logits after them. `prefix`: tokens, which are trained then.
void train(const World& world, const std::string& path, const std::string& mesh, int prefix) {
  const Model model(path, Options().set("tokenizer", "none"));
  Options options;
  options.set("optimizer", "sgd").set("lr", prefix ? "10" : "0.1").set("seq", "24").set("threads", 1);
  options.set("prefix", prefix);
  const Trainer alone(model, options);
  options.set("mesh", mesh).set("zero", "2");
  const Trainer spread = world ? Trainer(world, model, options) : Trainer(model, options);
  const Ids ids = prompt(4 * 24, 100);
  const Tensor documents = Tensor::copy(PLAIT_I32, {4, 24}, ids.data(), 4 * 24 * sizeof(int32_t));
  double first = 0, last = 0;
  for (int step = 0; step < 3; ++step) {
    last = alone.step(documents).loss;
    if (step == 0) first = last;
    CHECK(std::fabs(last - spread.step(documents).loss) < 1e-4 * last);
  }
  CHECK(last < first);
  CHECK(relative_error(spread.forward(documents).values<float>(), alone.forward(documents).values<float>()) < 1e-3);
}

/// A request's adapter is that of one rank, next to others of none.
void adapt(const World& world, const std::string& path, const std::string& mesh) {
  const Model model(path, Options().set("tokenizer", "none"));
  std::string folder = (fs::temp_directory_path() / "plait-meshes-XXXXXX").string();
  CHECK(mkdtemp(folder.data()));
  {
    const Trainer trainer(model, Options().set("lora", "4").set("lr", "0.05").set("seq", "24").set("threads", 1));
    const Ids ids = prompt(4 * 24, 100);
    for (int step = 0; step < 3; ++step)
      trainer.step(Tensor::copy(PLAIT_I32, {4, 24}, ids.data(), 4 * 24 * sizeof(int32_t)));
    trainer.save_adapter(folder);
  }
  const auto scores = [&](const Generator& generator, const char* name) {
    return generator.submit(prompt(37, 100), Options().set("kind", "score").set("adapter", name))
        .result()
        .values<float>();
  };
  const auto with_slots = [&](const World& on, const std::string& own) {
    Options capacity = options(own);
    capacity.set("adapter_slots", 2).set("adapter_rank", 4);
    return on && !own.empty() ? Generator(on, model, capacity) : Generator(model, capacity);
  };
  const Generator alone = with_slots({}, ""), spread = with_slots(world, mesh);
  for (const Generator* one : {&alone, &spread}) one->add_adapter("a", folder);
  const std::vector<float> expected = scores(alone, "a");
  CHECK(relative_error(expected, scores(alone, "")) > 1e-3);
  CHECK(relative_error(scores(spread, "a"), expected) < 1e-4);
  CHECK(relative_error(scores(spread, ""), scores(alone, "")) < 1e-4);
  spread.remove_adapter("a");
  fs::remove_all(folder);
}

std::vector<std::string> models(const std::string& folder, bool zoo) {
  // Directories without a graph, which each rank lays out by itself.
  std::vector<std::string> out{folder + "/huggingface/gpt2", folder + "/huggingface/mixtral",
                               folder + "/huggingface/qwen2_moe"};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".onnx" && (zoo || entry.path().string().find("/zoo/") == std::string::npos))
      out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

int main(int count, char** words) {
  World world;
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) world = World(Options().set("rank_timeout_ms", 60000));
  if (world && world.rank() != 0) {
    try {
      world.serve();
      return 0;
    } catch (const plait_api::Failure& failure) {
      std::printf("rank %d: %s\n", world.rank(), failure.what());
      return 1;
    }
  }
  const bool zoo = count > 2 && std::string(words[2]) == "--zoo";
  int compared = 0;
  for (const std::string& path : models(words[1], zoo)) {
    compare(world, path, {words + (zoo ? 3 : 2), words + count});
    ++compared;
  }
  for (int i = zoo ? 3 : 2; i < count; ++i)
    for (const char* name : {"gemma3-standard23", "gpt2-optimum18"})
      if (!std::strchr(words[i], '+')) {
        for (int prefix : {0, 3}) train(world, std::string(words[1]) + "/" + name, words[i], prefix);
        adapt(world, std::string(words[1]) + "/" + name, words[i]);
      }
  std::printf("%d models, %d failures\n", compared, failures);
  return failures || compared < 10;
}
