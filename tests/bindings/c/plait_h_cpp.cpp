// plait.h and plait.hpp as a C++17 program sees them: requests of every kind, many at once, sessions, memory.
// Usage: plait_h_cpp FIXTURES
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "bindings/c/plait.hpp"
#include "tests/bindings/c/check.h"

namespace {

using plait_api::Generator;
using plait_api::Model;
using plait_api::Options;
using plait_api::Request;
using plait_api::Tensor;
using Ids = std::vector<int32_t>;

std::string fixtures;
const Ids prompt = {323, 352, 460, 299, 398, 428, 121};
// By tests/fixtures/manifest.json, of gemma3.
const Ids greedy = {288, 89, 354, 354, 354, 23, 23, 478, 419, 419, 419, 419, 419, 396, 383, 437};

Options small_generator() {
  Options out;
  out.set("threads", 1)
      .set("cache_bytes", "4M")
      .set("temperature", "0")
      .set("max_tokens", 16)
      .set("ignore_eos", "true");
  return out;
}

struct Output {
  std::map<int, Ids> ids;
  std::map<int, std::string> text;
  std::map<int, plait_finish> finish;
};

Output pull(const Request& request) {
  Output out;
  plait_event event{};
  while (request.next(event) && event.kind != PLAIT_EVENT_END) {
    if (event.token >= 0) out.ids[event.sample].push_back(event.token);
    out.text[event.sample] += event.text;
    out.finish[event.sample] = event.finish;
  }
  return out;
}

/// The status that `call` ends with.
template <class Call>
plait_status status_of(Call&& call) {
  try {
    call();
    return PLAIT_OK;
  } catch (const plait_api::Failure& failure) {
    return failure.status();
  }
}

void test_greedy_and_samples(const Generator& generator) {
  CHECK(pull(generator.submit(prompt)).ids[0] == greedy);
  Options sampled;
  sampled.set("temperature", "1.5").set("samples", 3).set("seed", 11).set("logprobs", 2);
  Output first = pull(generator.submit(prompt, sampled)), second = pull(generator.submit(prompt, sampled));
  CHECK(first.ids.size() == 3 && first.ids == second.ids && first.text == second.text);
  CHECK(first.ids[0] != first.ids[1] || first.ids[1] != first.ids[2]);
  for (int sample = 0; sample < 3; ++sample) CHECK(first.finish[sample] == PLAIT_FINISH_LENGTH);
  CHECK(status_of([&] { generator.submit(prompt, Options().set("samples", 0)); }) == PLAIT_INVALID_ARGUMENT);

  Request request = generator.submit(prompt, Options().set("logprobs", 3));
  plait_event event{};
  CHECK(request.next(event) && event.kind == PLAIT_EVENT_TOKEN && event.token == greedy[0]);
  CHECK(event.top_count == 3 && event.top_tokens[0] == event.token && event.top_logprobs[0] == event.logprob);
  CHECK(event.logprob <= 0 && event.top_logprobs[2] <= event.top_logprobs[1]);
  Request plain = generator.submit(prompt);
  CHECK(plain.next(event) && std::isnan(event.logprob) && event.top_count == 0);
}

/// The host picks the likeliest token itself: greedy by another way.
void test_host_sampling(const Generator& generator) {
  Request request = generator.submit(prompt, Options().set("host_sampling", "true").set("max_tokens", 5));
  Ids chosen, told;
  plait_event event{};
  while (request.next(event) && event.kind != PLAIT_EVENT_END) {
    if (event.token >= 0) told.push_back(event.token);
    if (event.kind != PLAIT_EVENT_LOGITS) continue;
    CHECK(event.logits_count == 512);
    chosen.push_back(
        static_cast<int32_t>(std::max_element(event.logits, event.logits + event.logits_count) - event.logits));
    request.push(chosen.back());
  }
  CHECK(chosen == Ids(greedy.begin(), greedy.begin() + 5) && told == chosen);
  CHECK(status_of([&] { request.push(1); }) == PLAIT_INVALID_ARGUMENT);
}

void test_cancel_and_timeouts(const Generator& generator) {
  Request waiting = generator.submit(prompt, Options().set("host_sampling", "true"));
  plait_event event{};
  CHECK(waiting.next(event) && event.kind == PLAIT_EVENT_LOGITS);
  CHECK(!waiting.next(event, 0) && !waiting.next(event, 20));  // nothing until the host pushes
  waiting.cancel();
  CHECK(pull(waiting).finish[0] == PLAIT_FINISH_CANCELLED);
  CHECK(waiting.next(event, 0) && event.kind == PLAIT_EVENT_END);
  waiting.cancel();  // once more does nothing

  Request late = generator.submit(prompt, Options().set("host_sampling", "true").set("deadline_ms", 30));
  CHECK(late.next(event) && event.kind == PLAIT_EVENT_LOGITS);
  CHECK(status_of([&] { pull(late); }) == PLAIT_CANCELLED &&
        std::string(plait_last_error()).find("deadline") != std::string::npos);

  // From another thread, while this one waits forever.
  Request blocked = generator.submit(prompt, Options().set("host_sampling", "true"));
  CHECK(blocked.next(event));
  std::thread other([&] { blocked.cancel(); });
  CHECK(blocked.next(event, -1) && event.finish == PLAIT_FINISH_CANCELLED);
  other.join();
}

void test_conversations(const Generator& generator) {
  Request whole = generator.submit(prompt);
  Ids first(greedy.begin(), greedy.begin() + 6);
  Request begun = generator.submit(prompt, Options().set("max_tokens", 6).set("keep", "true"));
  CHECK(status_of([&] { generator.submit({5}, {}, generator.submit(prompt)); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(pull(begun).ids[0] == first);

  // Continued, forked and restored, all equal a fresh run on all the tokens.
  const Ids more = {7, 8, 9};
  Ids all = prompt;
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), more.begin(), more.end());
  Ids fresh = pull(generator.submit(all)).ids[0];
  CHECK(pull(generator.submit(more, {}, begun)).ids[0] == fresh);
  Tensor saved = begun.save();
  Request restored = generator.restore(saved);
  Request one = generator.submit(more, {}, restored), two = generator.submit(more, {}, begun);
  CHECK(pull(one).ids[0] == fresh && pull(two).ids[0] == fresh);
  plait_event event{};
  CHECK(status_of([&] { restored.next(event); }) == PLAIT_INVALID_ARGUMENT);
  CHECK(status_of([&] { whole.save(); }) == PLAIT_INVALID_ARGUMENT);

  // Half of the bytes are no conversation, and do no harm.
  plait_view view = saved.view();
  plait_request* out = nullptr;
  CHECK(plait_generator_restore(generator.get(), view.data, view.bytes / 2, &out) == PLAIT_BAD_MODEL && !out);
}

void test_score_and_embed(const Generator& generator) {
  Request score = generator.submit(prompt, Options().set("kind", "score"));
  plait_view logits = score.result().view();
  CHECK(logits.dtype == PLAIT_F32 && logits.rank == 2 && logits.dims[0] == 7 && logits.dims[1] == 512);
  Tensor again = score.result();
  auto values = again.values<float>();
  auto last = values.end() - 512;
  CHECK(std::max_element(last, values.end()) - last == greedy[0]);

  auto tokens = generator.submit(prompt, Options().set("kind", "embed")).result();
  auto mean =
      generator.submit(prompt, Options().set("kind", "embed").set("pooling", "mean")).result().values<float>();
  auto end = generator.submit(prompt, Options().set("kind", "embed").set("pooling", "last")).result().values<float>();
  CHECK(tokens.view().dims[0] == 7 && tokens.view().dims[1] == 48 && mean.size() == 48 && end.size() == 48);
  auto rows = tokens.values<float>();
  double sum = 0;
  for (size_t row = 0; row < 7; ++row) sum += rows[row * 48 + 5];
  CHECK(std::fabs(sum / 7 - mean[5]) < 1e-5 && end[5] == rows[6 * 48 + 5]);
  CHECK(status_of([&] { generator.submit(prompt).result(); }) == PLAIT_INVALID_ARGUMENT);
}

/// Threads submit, pull, cancel and ask for figures at once; each gets what it would get without the others.
void test_threads(const Generator& generator) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < 5; ++round) {
        Request request = generator.submit(prompt);
        if ((number + round) % 4 == 3) {
          request.cancel();
          pull(request);
        } else if (pull(request).ids[0] != greedy) {
          ++wrong;
        }
        if (generator.statistics().native_bytes <= 0) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  auto stats = generator.statistics();
  CHECK(stats.vocabulary == 512 && stats.pages > 0 && stats.finished >= 40);
}

/// Slots of states, where layers have some; a host built with an older header gets what its struct has room for.
void test_statistics() {
  Model hybrid(fixtures + "/zoo/lfm2/hf5");
  Generator generator(hybrid, small_generator());
  auto stats = generator.statistics();
  CHECK(stats.states > 0 && stats.states_free == stats.states);
  Request request = generator.submit({1, 5, 7}, Options().set("host_sampling", "true"));
  plait_event event{};
  CHECK(request.next(event, 60000) && event.kind == PLAIT_EVENT_LOGITS);
  for (int wait = 0; wait < 500 && stats.states_free == stats.states; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    stats = generator.statistics();
  }
  CHECK(stats.states_free == stats.states - 1);
  plait_generator_stats older{};
  older.struct_size = offsetof(plait_generator_stats, states);
  older.states = -7;
  CHECK(plait_generator_statistics(generator.get(), &older) == PLAIT_OK);
  CHECK(older.vocabulary == stats.vocabulary && older.states == -7);
  older.struct_size = 8;
  CHECK(plait_generator_statistics(generator.get(), &older) == PLAIT_INVALID_ARGUMENT);
}

void test_overload(const Model& model) {
  Generator generator(model, small_generator().set("queue", 1).set("running", 1));
  std::vector<Request> requests;
  plait_status status = PLAIT_OK;
  for (int i = 0; i < 8 && status == PLAIT_OK; ++i) {
    status = status_of([&] { requests.push_back(generator.submit(prompt, Options().set("host_sampling", "true"))); });
  }
  CHECK(status == PLAIT_OVERLOADED && requests.size() >= 1);

  Generator tiny(model, Options().set("cache_bytes", 1));
  CHECK(status_of([&] { tiny.submit(prompt); }) == PLAIT_OUT_OF_MEMORY);
  Generator stopped(model, small_generator());
  stopped.cancel();
  plait_status end = status_of([&] { stopped.wait(); });
  CHECK(end == PLAIT_OK || end == PLAIT_CANCELLED);
}

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void test_memory() {
  std::vector<Tensor> contents;
  std::vector<plait_tensor*> handles;
  const char* names[] = {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"};
  for (const char* name : names) {
    auto bytes = bytes_of(fixtures + "/gemma3-standard23/" + name);
    contents.push_back(Tensor::copy(PLAIT_U8, {static_cast<int64_t>(bytes.size())}, bytes.data(),
                                    static_cast<int64_t>(bytes.size())));
    handles.push_back(contents.back().get());
  }
  plait_model* handle = nullptr;
  CHECK(plait_model_open_memory(names, handles.data(), 1, nullptr, &handle) ==
        PLAIT_NOT_FOUND);  // its data are missing
  OK(plait_model_open_memory(names, handles.data(), 4, nullptr, &handle));
  contents.clear();
  Model model(handle);
  Generator generator(model, small_generator());
  CHECK(pull(generator.submit(prompt)).ids[0] == greedy);
  CHECK(!plait_api::Tokenizer(model).encode("hello").empty());
}

/// The option "background": the model is used at once, and what goes wrong is told to those who wait.
void test_background() {
  Options background;
  background.set("background", "true");
  Model model(fixtures + "/gemma3-standard23", background);
  Generator generator(model, small_generator());
  CHECK(pull(generator.submit(prompt)).ids[0] == greedy);
  CHECK(model.wait() && model.progress() == 1 && generator.progress() == 1);
  model.cancel();  // of what is there nothing is lost
  CHECK(!plait_api::Tokenizer(model).encode("hello").empty() && model.wait());

  CHECK(status_of([&] { Model(fixtures + "/no such model", background); }) == PLAIT_NOT_FOUND);
  Model damaged(fixtures + "/manifest.json", background);
  Generator without(damaged);
  for (int round = 0; round < 2; ++round) {
    CHECK(status_of([&] { damaged.wait(); }) == PLAIT_BAD_MODEL);
    CHECK(status_of([&] { damaged.info(); }) == PLAIT_BAD_MODEL);
    CHECK(status_of([&] { without.wait(); }) == PLAIT_BAD_MODEL);
    CHECK(status_of([&] { without.submit(prompt); }) == PLAIT_BAD_MODEL);
  }
}

/// A field of a protocol buffer that holds bytes.
std::string field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  for (size_t rest = bytes.size(); true; rest >>= 7) {
    out += static_cast<char>(rest < 128 ? rest : (rest & 127) | 128);
    if (rest < 128) return out + bytes;
  }
}

/// An ONNX model of so many nodes, in sequence.
std::string long_model(int nodes) {
  auto name = [](int i) { return "v" + std::to_string(i); };
  auto value = [&](int i) { return field(1, name(i)) + field(2, field(1, "\x08\x01")); };
  std::string graph = field(2, "long");
  for (int i = 0; i < nodes; ++i) graph += field(1, field(1, name(i)) + field(2, name(i + 1)) + field(4, "Identity"));
  graph += field(11, value(0)) + field(12, value(nodes));
  return "\x08\x08" + field(7, graph) + field(8, "\x10\x11");
}

/// Reading a million nodes takes seconds, so that cancels come in the middle of an opening.
void test_cancel_opening() {
  std::string folder = std::filesystem::temp_directory_path() / "plait-long-XXXXXX";
  CHECK(mkdtemp(folder.data()));
  const std::string file = folder + "/model.onnx";
  std::ofstream(file, std::ios::binary) << long_model(1000000);
  {
    Model model(file, Options().set("background", "true"));
    Generator one(model), other(model);
    CHECK(!model.wait(20) && model.progress() < 1);
    CHECK(!one.wait(20) && one.progress() < 1);
    one.cancel();
    CHECK(status_of([&] { one.wait(); }) == PLAIT_CANCELLED);
    CHECK(status_of([&] { one.submit(prompt); }) == PLAIT_CANCELLED);
    CHECK(!model.wait(0) && !other.wait(0));
    plait_status waited = PLAIT_OK;
    std::thread waiting([&] { waited = status_of([&] { model.info(); }); });
    model.cancel();
    waiting.join();
    CHECK(waited == PLAIT_CANCELLED);
    CHECK(status_of([&] { model.wait(); }) == PLAIT_CANCELLED);
    CHECK(status_of([&] { other.wait(); }) == PLAIT_CANCELLED);
  }
  unlink(file.c_str());
  rmdir(folder.c_str());
}

/// An .npy file of version 1, in C order: i64 or f32 elements of a batch.
std::vector<char> npy_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  CHECK(all.size() > 10);
  auto length = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(all[at])); };
  if (all.size() > 10)
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(10 + length(8) + 256 * length(9)));
  return all;
}

/// An encoder is no decoder: a session runs it, two padded texts at once, and answers as ONNX Runtime does.
void test_encoder(const std::string& folder) {
  std::vector<char> expected = npy_bytes(folder + "/last_hidden_state.npy");
  std::vector<float> hidden(expected.size() / sizeof(float));
  std::memcpy(hidden.data(), expected.data(), expected.size());
  for (const char* file : {"/plain.onnx", "/fused.onnx"}) {
    Model model(folder + file);
    plait_api::Session session(model, Options().set("threads", 2));
    int64_t inputs = 0, outputs = 0;
    OK(plait_session_count(session.get(), &inputs, &outputs));
    CHECK(inputs == 3 && outputs >= 1);
    std::vector<std::pair<std::string, Tensor>> made;
    for (int64_t index = 0; index < inputs; ++index) {
      plait_operand operand{};
      operand.struct_size = sizeof operand;
      OK(plait_session_input(session.get(), index, &operand));
      std::vector<char> bytes = npy_bytes(folder + "/" + operand.name + ".npy");
      std::vector<int64_t> wide(bytes.size() / 8);
      std::memcpy(wide.data(), bytes.data(), bytes.size());
      std::vector<int32_t> narrow(wide.begin(), wide.end());
      std::vector<int64_t> dims = {2, static_cast<int64_t>(wide.size()) / 2};
      bool is_narrow = operand.dtype == PLAIT_I32;
      const void* data = is_narrow ? static_cast<const void*>(narrow.data()) : wide.data();
      made.emplace_back(operand.name,
                        Tensor::copy(operand.dtype, dims, data, is_narrow ? narrow.size() * 4 : wide.size() * 8));
    }
    std::vector<std::pair<std::string, const Tensor*>> feed;
    for (auto& [name, tensor] : made) feed.emplace_back(name, &tensor);
    std::vector<Tensor> results = session.run(feed, {"last_hidden_state"});
    plait_view view = results.at(0).view();
    CHECK(view.dtype == PLAIT_F32 && view.rank == 3 && view.dims[0] == 2 && view.dims[2] == 32);
    auto values = results[0].values<float>();
    CHECK(values.size() == hidden.size());
    double largest = 0, error = 0;
    for (size_t i = 0; i < hidden.size(); ++i) {
      largest = std::max(largest, std::fabs(double{hidden[i]}));
      error = std::max(error, std::fabs(double{values[i]} - double{hidden[i]}));
    }
    CHECK(error < 1e-5 * largest);
    CHECK(status_of([&] { Generator(model, small_generator()).submit({5, 6, 7}); }) != PLAIT_OK);
  }
}

/// A first step of the plain graph, with a past of no tokens.
void test_session(const Model& model) {
  plait_api::Session session(model, Options().set("threads", 1));
  int64_t inputs = 0, outputs = 0;
  OK(plait_session_count(session.get(), &inputs, &outputs));
  CHECK(inputs > 2 && outputs > 1);
  std::vector<std::pair<std::string, Tensor>> made;
  std::vector<int64_t> ids(prompt.begin(), prompt.end()), ones(prompt.size(), 1), positions;
  for (size_t i = 0; i < prompt.size(); ++i) positions.push_back(static_cast<int64_t>(i));
  auto length = static_cast<int64_t>(prompt.size());
  for (int64_t index = 0; index < inputs; ++index) {
    plait_operand operand{};
    operand.struct_size = sizeof operand;
    OK(plait_session_input(session.get(), index, &operand));
    std::string name = operand.name;
    if (name.find("past") != std::string::npos) {
      std::vector<int64_t> dims = {1, operand.dims[1], 0, operand.dims[3]};
      CHECK(operand.rank == 4 && operand.dims[0] == -1 && operand.dims[2] == -1 && operand.dims[3] == 16);
      made.emplace_back(name, Tensor::copy(operand.dtype, dims, nullptr, 0));
    } else {
      const auto& values = name == "input_ids" ? ids : name == "position_ids" ? positions : ones;
      made.emplace_back(name, Tensor::copy(PLAIT_I64, {1, length}, values.data(), length * 8));
    }
  }
  std::vector<std::pair<std::string, const Tensor*>> feed;
  for (auto& [name, tensor] : made) feed.emplace_back(name, &tensor);
  std::vector<Tensor> results = session.run(feed, {"logits"});
  plait_view view = results.at(0).view();
  CHECK(view.dtype == PLAIT_F32 && view.rank == 3 && view.dims[1] == length && view.dims[2] == 512);
  auto values = results[0].values<float>();
  CHECK(std::max_element(values.end() - 512, values.end()) - (values.end() - 512) == greedy[0]);

  CHECK(status_of([&] { session.run(feed, {"no such output"}); }) == PLAIT_NOT_FOUND);
  auto missing = feed;
  missing.pop_back();
  CHECK(status_of([&] { session.run(missing, {"logits"}); }) == PLAIT_INVALID_ARGUMENT);
  auto twice = feed;
  twice.push_back(feed[0]);
  CHECK(status_of([&] { session.run(twice, {"logits"}); }) == PLAIT_INVALID_ARGUMENT);
  Tensor wrong = Tensor::copy(PLAIT_F32, {1, length}, nullptr, length * 4);
  auto typed = feed;
  typed[0].second = &wrong;
  CHECK(status_of([&] { session.run(typed, {"logits"}); }) == PLAIT_INVALID_ARGUMENT);
  plait_api::Session small(model, Options().set("threads", 1).set("memory_bytes", "1K"));
  CHECK(status_of([&] { small.run(feed, {"logits"}); }) == PLAIT_OUT_OF_MEMORY);
  session.cancel();  // nothing runs: nothing happens
  CHECK(session.run(feed, {"logits"}).size() == 1);
  plait_operand operand{};
  operand.struct_size = sizeof operand;
  CHECK(plait_session_input(session.get(), inputs, &operand) == PLAIT_INVALID_ARGUMENT);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  fixtures = words[1];
  Model model(fixtures + "/gemma3-standard23");
  Generator generator(model, small_generator());
  const std::pair<const char*, void (*)(const Generator&)> tests[] = {
      {"greedy and samples", test_greedy_and_samples},   {"host sampling", test_host_sampling},
      {"cancel and timeouts", test_cancel_and_timeouts}, {"conversations", test_conversations},
      {"score and embed", test_score_and_embed},         {"threads", test_threads}};
  try {
    for (auto [name, test] : tests) {
      std::printf("%s\n", name);
      test(generator);
    }
    test_overload(model);
    CHECK(model.plan(Options().set("mesh", "tensor=4")).find("\"mesh\": \"tensor=4\"") != std::string::npos);
    test_statistics();
    test_memory();
    test_background();
    test_cancel_opening();
    test_session(Model(fixtures + "/gemma3-optimum18"));
    test_encoder(fixtures + "/zoo/bert");
  } catch (const plait_api::Failure& failure) {
    ++failures;
    std::printf("failed: %s: %s\n", plait_status_name(failure.status()), failure.what());
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
