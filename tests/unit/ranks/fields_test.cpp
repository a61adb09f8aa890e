// Commands and reports come out as they went in.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/ranks/commands.h"

namespace plait {
namespace {

struct Nothing {};
struct Point {
  int32_t x = 0, y = 0;
};
struct Row {
  std::string key;
  std::vector<int64_t> numbers;
  auto fields() { return std::tie(key, numbers); }
};
struct All {
  bool on = false;
  double scale = 0;
  std::string text;
  std::vector<Point> points;
  std::vector<Row> rows;
  std::vector<std::vector<int32_t>> nested;
  std::map<std::string, std::string> names;
  std::map<std::string, TensorView, std::less<>> tensors;
  std::span<const std::byte> bytes;
  auto fields() { return std::tie(on, scale, text, points, rows, nested, names, tensors, bytes); }
};
using Set = CommandSet<Nothing, All, Point>;

struct Log {
  void handle(const Nothing&) { text += "nothing "; }
  void handle(const Point& point) { text += cat("point ", point.x, " ", point.y, " "); }
  void handle(const All& command) {
    text += "all ";
    all = command;
  }
  std::string text;
  All all;
};

void dispatch(std::span<const std::byte> message, Log& log) {
  ByteReader in = command_reader(message);
  Set::dispatch(in, log);
  EXPECT_TRUE(in.at_end());
}

TEST(Fields, EveryKindComesBack) {
  float numbers[] = {1, 2, 3};
  const std::byte raw[] = {std::byte{7}, std::byte{8}};
  All command{true,         0.5, "text", {{1, 2}, {3, 4}}, {{"a", {5, 6}}, {"", {}}}, {{1}, {}, {2, 3}},
              {{"k", "v"}}, {},  raw};
  command.tensors["t"] = {reinterpret_cast<std::byte*>(numbers), DType::f32, {3}};
  const std::vector<std::byte> message = Set::encode(command);
  Log log;
  dispatch(message, log);
  const All& got = log.all;
  EXPECT_EQ(log.text, "all ");
  EXPECT_TRUE(got.on);
  EXPECT_EQ(got.scale, 0.5);
  EXPECT_EQ(got.text, "text");
  ASSERT_EQ(got.points.size(), 2u);
  EXPECT_EQ(got.points[1].y, 4);
  ASSERT_EQ(got.rows.size(), 2u);
  EXPECT_EQ(got.rows[0].key, "a");
  EXPECT_EQ(got.rows[0].numbers, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(got.nested, command.nested);
  EXPECT_EQ(got.names, command.names);
  const TensorView& tensor = got.tensors.at("t");
  EXPECT_EQ(tensor.shape, (Shape{3}));
  EXPECT_EQ(std::memcmp(tensor.data, numbers, sizeof numbers), 0);
  EXPECT_TRUE(tensor.data > message.data() && tensor.data < message.data() + message.size()) << "it is not copied";
  ASSERT_EQ(got.bytes.size(), 2u);
  EXPECT_EQ(got.bytes[1], raw[1]);
}

TEST(Fields, CommandsAreToldApart) {
  Log log;
  dispatch(Set::encode(Point{1, 2}), log);
  dispatch(Set::encode(Nothing{}), log);
  EXPECT_EQ(log.text, "point 1 2 nothing ");
}

TEST(Fields, MessagesThatCannotBeAreRefused) {
  Log log;
  const std::byte unknown[] = {std::byte{9}};
  EXPECT_THROW(dispatch(unknown, log), Error);
  EXPECT_THROW(dispatch(std::span(unknown).first(0), log), Error);
  std::vector<std::byte> cut = Set::encode(Point{1, 2});
  cut.pop_back();
  EXPECT_THROW(dispatch(cut, log), Error);
}

}  // namespace
}  // namespace plait
