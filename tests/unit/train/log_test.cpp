// Logs of a run: JSON lines, TensorBoard's event files, the picture of the losses.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "core/base/crc32c.h"
#include "core/train/log/event_file.h"
#include "core/train/log/loss_curve.h"
#include "core/train/log/training_log.h"
#include "tests/unit/train/train_test.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using test::Folder;

StepReport report(int64_t step, double loss) {
  StepReport out;
  out.step = step;
  out.loss = loss;
  out.learning_rate = 1e-3 / static_cast<double>(step);
  out.gradient_norm = 0.5;
  out.tokens_per_second = 1234;
  out.memory_bytes = 5e9;
  return out;
}

std::vector<int64_t> steps_of(const std::vector<StepReport>& reports) {
  std::vector<int64_t> out;
  for (const StepReport& one : reports) out.push_back(one.step);
  return out;
}

TEST(TrainingLog, ReportsReadBack) {
  StepReport some = report(3, 2.25);
  const auto read = StepReport::parse(some.json());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->json(), some.json());
  EXPECT_EQ(read->loss, 2.25);
  EXPECT_TRUE(std::isnan(read->evaluation_loss));
  some.evaluation_loss = 2.5;
  some.loss = std::numeric_limits<double>::infinity();
  EXPECT_EQ(StepReport::parse(some.json())->evaluation_loss, 2.5);
  EXPECT_EQ(some.json().find("\"loss\""), std::string::npos) << "JSON has no infinity";
  for (const char* bad : {"", "{", "{}", "[]", "{\"step\": 1.5}", "{\"step\": \"1\"}", "{\"step\": 3, \"loss\": 2"})
    EXPECT_FALSE(StepReport::parse(bad)) << bad;
}

TEST(TrainingLog, GoesOnWhereTheRunDoes) {
  const Folder folder;
  const std::string directory = folder.path("logs/run"), path = directory + "/log.jsonl";
  {
    TrainingLog log(directory);
    for (int64_t step = 1; step <= 5; ++step) log.write(report(step, 1));
  }
  EXPECT_EQ(steps_of(read_training_log(path)), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  std::ofstream(path, std::ios::app) << "{\"step\": 6, \"lo";  // killed while it wrote
  {
    TrainingLog log(directory, 3);
    EXPECT_EQ(steps_of(log.reports()), (std::vector<int64_t>{1, 2, 3}));
    log.write(report(4, 2));
    EXPECT_EQ(steps_of(log.reports()), (std::vector<int64_t>{1, 2, 3, 4}));
  }
  const std::vector<StepReport> all = read_training_log(path);
  EXPECT_EQ(steps_of(all), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(all.back().loss, 2);
  EXPECT_EQ(TrainingLog(directory).reports().size(), 0u) << "a run from the start has no past";
  EXPECT_TRUE(read_training_log(folder.path("none")).empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 4) << "log.jsonl and three event files";
  test::expect_error([&] { TrainingLog log(path + "/below"); }, Code::io, "below");
}

/// The fields of a protobuf message, by number; numbers as their bytes.
using Fields = std::multimap<uint64_t, std::string>;
Fields parse_message(std::string_view message) {
  Fields out;
  auto varint = [&] {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(0));
      message.remove_prefix(1);
      number |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return number;
    }
  };
  while (!message.empty()) {
    const uint64_t tag = varint();
    size_t length = tag % 8 == 1 ? 8 : tag % 8 == 5 ? 4 : 0;
    if (tag % 8 == 0) {
      const uint64_t number = varint();
      out.emplace(tag / 8, std::string(reinterpret_cast<const char*>(&number), 8));
      continue;
    }
    if (tag % 8 == 2) length = varint();
    out.emplace(tag / 8, message.substr(0, length));
    message.remove_prefix(length);
  }
  return out;
}

template <class T>
T number_of(const Fields& fields, uint64_t field) {
  T out{};
  EXPECT_EQ(fields.find(field)->second.size(), sizeof out);
  std::memcpy(&out, fields.find(field)->second.data(), sizeof out);
  return out;
}

/// The events of a file; every length and checksum is looked at.
std::vector<Fields> read_events(const std::string& path) {
  std::string bytes = test::bytes_of(path);
  std::string_view left = bytes;
  std::vector<Fields> out;
  auto take = [&](size_t count) {
    const std::string_view part = left.substr(0, count);
    EXPECT_EQ(part.size(), count);
    left.remove_prefix(part.size());
    return part;
  };
  auto check = [&](std::string_view part) {
    uint32_t found = 0;
    std::memcpy(&found, take(4).data(), 4);
    // The mask undone: the rotation and the constant of the format's description.
    const uint32_t rotated = found - 0xA282EAD8u;
    EXPECT_EQ(rotated >> 17 | rotated << 15, crc32c(part));
  };
  while (!left.empty()) {
    uint64_t length = 0;
    const std::string_view head = take(8);
    std::memcpy(&length, head.data(), 8);
    check(head);
    const std::string_view event = take(length);
    check(event);
    out.push_back(parse_message(event));
  }
  return out;
}

std::string event_file_of(const std::string& directory) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return entry.path().string();
  return "";
}

TEST(TensorBoard, EventsReadBack) {
  const Folder folder;
  {
    TrainingLog log(folder.path(), 2);
    for (int64_t step = 3; step <= 300; step += 99) log.write(report(step, 1.0 / static_cast<double>(step)));
  }
  const std::vector<Fields> events = read_events(event_file_of(folder.path()));
  ASSERT_EQ(events.size(), 2u + 4);
  EXPECT_EQ(events[0].find(3)->second, "brain.Event:2");
  EXPECT_EQ(number_of<int64_t>(events[1], 2), 3) << "the first step that is made again";
  EXPECT_EQ(number_of<int64_t>(parse_message(events[1].find(7)->second), 1), 1);
  for (size_t i = 2; i < events.size(); ++i) {
    const int64_t step = 3 + 99 * static_cast<int64_t>(i - 2);
    EXPECT_EQ(number_of<int64_t>(events[i], 2), step);
    EXPECT_GT(number_of<double>(events[i], 1), 1.6e9) << "seconds since 1970";
    std::map<std::string, float> values;
    const Fields summary = parse_message(events[i].find(5)->second);
    for (const auto& [field, value] : summary) {
      const Fields parts = parse_message(value);
      values[parts.find(1)->second] = number_of<float>(parts, 2);
    }
    const StepReport expected = report(step, 1.0 / static_cast<double>(step));
    EXPECT_EQ(values, (std::map<std::string, float>{{"loss/train", static_cast<float>(expected.loss)},
                                                    {"learning_rate", static_cast<float>(expected.learning_rate)},
                                                    {"gradient_norm", 0.5f},
                                                    {"tokens_per_second", 1234},
                                                    {"memory_bytes", 5e9f}}));
  }
  // A new run contains nothing of an earlier one.
  const Folder fresh;
  TrainingLog log(fresh.path());
  EXPECT_EQ(read_events(event_file_of(fresh.path())).size(), 1u);
}

std::vector<StepReport> run_of(int64_t steps) {
  std::vector<StepReport> out;
  for (int64_t step = 1; step <= steps; ++step) {
    const double x = static_cast<double>(step) / static_cast<double>(steps);
    StepReport one =
        report(step, 1.8 + 3 * std::exp(-6 * x) + 0.15 * std::sin(static_cast<double>(step * step % 97)));
    if (step % std::max<int64_t>(steps / 10, 1) == 0) one.evaluation_loss = 2.0 + 3 * std::exp(-5 * x);
    out.push_back(one);
  }
  return out;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

TEST(LossCurve, ShowsWhatThereIs) {
  for (const int64_t steps : {1, 2, 30, 1000, 100000}) {
    const std::string svg = loss_curve_svg(run_of(steps), "a < b & c");
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << steps;
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_EQ(count_of(svg, "<polyline"), 3u) << "each step, smoothed, evaluation";
    EXPECT_GE(count_of(svg, "class=\"grid\""), 3u);
    EXPECT_LE(count_of(svg, "class=\"grid\""), 12u);
    EXPECT_THAT(svg, testing::HasSubstr("a &lt; b &amp; c"));
    EXPECT_THAT(svg, testing::Not(testing::AnyOf(testing::HasSubstr("nan"), testing::HasSubstr("inf"))));
    EXPECT_LT(svg.size(), 100'000u);
    if (const char* out = std::getenv("PLAIT_WRITE_CURVE")) std::ofstream(cat(out, "/curve", steps, ".svg")) << svg;
  }
}

TEST(LossCurve, TakesWhateverThereIsOfARun) {
  EXPECT_EQ(count_of(loss_curve_svg({}), "<polyline"), 0u);
  std::vector<StepReport> reports = run_of(50);
  reports[7].loss = std::nan("");
  reports[8].loss = std::numeric_limits<double>::infinity();
  std::reverse(reports.begin(), reports.end());
  const std::string svg = loss_curve_svg(reports);
  EXPECT_THAT(svg, testing::Not(testing::AnyOf(testing::HasSubstr("nan"), testing::HasSubstr("inf,"))));
  for (StepReport& one : reports) one.loss = 2, one.evaluation_loss = StepReport::unknown;
  EXPECT_EQ(count_of(loss_curve_svg(reports), "<polyline"), 2u);
}

}  // namespace
}  // namespace plait
