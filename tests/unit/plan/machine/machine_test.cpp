// Machine files: units, what is refused and how it is named, and those that come along.
#include "core/plan/machine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/machine/machine_files.h"
#include "core/plan/machine/quantity.h"

namespace plait {
namespace {

std::string message_of(const std::string& json) {
  try {
    parse_machine(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.message();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

/// A valid file, with one text replaced.
std::string file_with(const std::string& from = "", const std::string& to = "") {
  const std::string text = R"({"name": "m", "about": "made up",
    "device": {"memory": "80 GiB", "bandwidth": "2 TB/s", "launch": "5 us", "peak": {"bf16": "312 TFLOP/s"},
               "efficiency": {"most": 0.7, "knee": 150}},
    "levels": [{"name": "node", "ranks": 8, "bandwidth": "200 GB/s", "latency": "3 us", "use": "device"},
               {"name": "net", "bandwidth": "200 Gb/s", "latency": "0.01 ms", "use": "shared"}]})";
  return from.empty() ? text : replaced(text, from, to);
}

TEST(Quantity, ReadsPrefixesOfBitsAndBytes) {
  EXPECT_DOUBLE_EQ(parse_quantity("80 GiB", Unit::bytes), 80.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(parse_quantity("80GB", Unit::bytes), 80e9);
  EXPECT_DOUBLE_EQ(parse_quantity("200 Gb/s", Unit::bytes_per_second), 25e9);
  EXPECT_DOUBLE_EQ(parse_quantity("312 TFLOP/s", Unit::flops_per_second), 312e12);
  EXPECT_DOUBLE_EQ(parse_quantity("5 us", Unit::seconds), 5e-6);
  EXPECT_DOUBLE_EQ(parse_quantity("1.5e-3 s", Unit::seconds), 1.5e-3);
}

TEST(Quantity, TextReadsBack) {
  for (const double value : {1.0, 999.0, 1.5e9, 3.35e12, 80e9})
    EXPECT_NEAR(parse_quantity(quantity_text(value, Unit::bytes), Unit::bytes), value, value * 1e-3) << value;
  for (const double value : {2e-9, 5e-6, 1e-3, 3.0})
    EXPECT_NEAR(parse_quantity(quantity_text(value, Unit::seconds), Unit::seconds), value, value * 1e-3) << value;
}

TEST(Quantity, RefusesOtherUnits) {
  for (const char* text : {"80", "80 GB/s", "80 gb", "-1 GB", "GB", "1e999 GB", "5 s", ""})
    EXPECT_THROW(parse_quantity(text, Unit::bytes), Error) << text;
  EXPECT_THROW(parse_quantity("5 Gs", Unit::seconds), Error);
}

TEST(Machine, ThoseThatComeAlongAreReadAndWritten) {
  ASSERT_EQ(machine_files().size(), 4u);
  for (const MachineFile& file : machine_files()) {
    const Machine one = open_machine(std::string(file.name));
    EXPECT_EQ(one.name, file.name);
    EXPECT_FALSE(one.about.empty());
    const Machine again = parse_machine(machine_json(one));
    EXPECT_NEAR(again.device.memory_bytes, one.device.memory_bytes, 1e-3 * one.device.memory_bytes);
    EXPECT_EQ(again.device.peak.size(), one.device.peak.size());
    EXPECT_EQ(again.levels.size(), one.levels.size());
  }
}

TEST(Machine, LevelsHoldWholeGroups) {
  const Machine machine = parse_machine(file_with());
  EXPECT_EQ(machine.level_between(8, 15).name, "node");
  EXPECT_EQ(machine.level_between(7, 8).name, "net");
  EXPECT_DOUBLE_EQ(machine.bandwidth(machine.levels[0], 8), 200e9);
  EXPECT_DOUBLE_EQ(machine.bandwidth(machine.levels[1], 8), 25e9 / 8);  // a card that the node shares
}

TEST(Machine, SmallProductsReachLess) {
  const DeviceSpeed device = parse_machine(file_with()).device;
  EXPECT_NEAR(device.flops_per_second(DType::bf16, 1e6), 0.7 * 312e12, 1e6);
  EXPECT_NEAR(device.flops_per_second(DType::bf16, 150), 0.7 * 312e12 * (1 - std::exp(-1.0)), 1e6);
  EXPECT_THROW(device.flops_per_second(DType::f16, 150), Error);
}

TEST(Machine, SpeedsMayDependOnSizes) {
  std::string text = file_with("\"2 TB/s\"", R"({"1 MB": "8 TB/s", "100 MB": "2 TB/s"})");
  text = replaced(text, "\"312 TFLOP/s\"", R"({"1": "1 TFLOP/s", "100": "100 TFLOP/s"})");
  text = replaced(text, R"("efficiency": {"most": 0.7, "knee": 150})", "\"fused_sums\": false");
  const DeviceSpeed device = parse_machine(text).device;
  EXPECT_DOUBLE_EQ(device.bandwidth.at(1), 8e12);
  EXPECT_NEAR(device.bandwidth.at(10e6), 4e12, 1e6);
  EXPECT_DOUBLE_EQ(device.bandwidth.at(1e12), 2e12);
  EXPECT_NEAR(device.flops_per_second(DType::bf16, 10), 10e12, 1e6);
  // Of a peak by sizes, the efficiency that others have is no part.
  Machine both = parse_machine(text);
  both.device.most = 0.5;
  EXPECT_NEAR(both.device.flops_per_second(DType::bf16, 10), 10e12, 1e6);
  EXPECT_NEAR(parse_machine(machine_json(parse_machine(text))).device.moving_s(10e6), device.moving_s(10e6), 1e-9);
}

TEST(Machine, ErrorsNameTheField) {
  EXPECT_EQ(message_of(file_with()), "");
  EXPECT_THAT(message_of("{"), testing::HasSubstr("no JSON"));
  EXPECT_THAT(message_of(file_with("\"launch\": \"5 us\", ", "")),
              testing::HasSubstr("device lacks the field \"launch\""));
  EXPECT_THAT(message_of(file_with("80 GiB", "80 GiB/s")),
              testing::AllOf(testing::HasSubstr("device, field \"memory\""), testing::HasSubstr("80 GiB/s")));
  EXPECT_THAT(message_of(file_with("2 TB/s", "0 TB/s")), testing::HasSubstr("must be more than 0"));
  for (const char* speed : {R"({"2 MB": "1 TB/s", "1 MB": "2 TB/s"})", R"({"1 MB": "0 TB/s"})", R"({"1": "1 TB/s"})",
                            R"({"1 MB": "1 TB"})", R"({"1 MB": 5})", "{}"})
    EXPECT_THAT(message_of(file_with("\"2 TB/s\"", speed)), testing::HasSubstr("device, field \"bandwidth\""))
        << speed;
  EXPECT_THAT(message_of(file_with("\"most\": 0.7", "\"most\": 7")), testing::HasSubstr("\"most\""));
  EXPECT_THAT(message_of(file_with("\"bf16\"", "\"int9\"")), testing::HasSubstr("no type of floats"));
  EXPECT_THAT(message_of(file_with("\"use\": \"shared\"", "\"use\": \"both\"")), testing::HasSubstr("levels[1]"));
  EXPECT_THAT(message_of(file_with("\"name\": \"net\"", "\"name\": \"net\", \"ranks\": 12")),
              testing::HasSubstr("12 ranks around groups of 8"));
  EXPECT_THAT(message_of(file_with("\"about\"", "\"abouts\"")), testing::HasSubstr("lacks the field \"about\""));
  EXPECT_THAT(message_of(file_with("\"levels\"", "\"extra\": 1, \"levels\"")),
              testing::HasSubstr("unknown field \"extra\""));
  EXPECT_THAT(message_of(file_with("\"launch\"", "\"memory\": \"1 GB\", \"launch\"")),
              testing::HasSubstr("field \"memory\" twice"));
  EXPECT_THAT(message_of(file_with("\"name\": \"net\"", "\"name\": \"net\", \"ranks\": 16.5")),
              testing::HasSubstr("no whole number"));
}

TEST(Machine, AnUnknownNameListsThoseThatComeAlong) {
  try {
    open_machine("/nowhere/z900");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.hint(), testing::HasSubstr("a100, h100, h200, v100"));
  }
}

}  // namespace
}  // namespace plait
