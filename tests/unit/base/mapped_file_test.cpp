// Files that others shorten, write to or replace while they are mapped, and what is no file.
#include "core/base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/base/error.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class MappedFile : public testing::Test {
 protected:
  MappedFile() : folder_(fs::temp_directory_path() / ("plait_mapped_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~MappedFile() override { fs::remove_all(folder_); }

  std::string path(const char* name = "file") const { return (folder_ / name).string(); }
  void write(const std::string& text, const char* name = "file") const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  /// The tests are faster than the clock of some file systems.
  void make_older() const { fs::last_write_time(path(), fs::last_write_time(path()) - std::chrono::seconds(10)); }

  fs::path folder_;
};

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

std::string text_of(const Blob& blob) {
  return std::string(reinterpret_cast<const char*>(blob.data()), static_cast<size_t>(blob.size()));
}

TEST_F(MappedFile, TellsThatTheFileWasShortened) {
  write(std::string(10000, 'x'));
  auto blob = map_file(path());
  blob->check();
  ASSERT_EQ(truncate(path().c_str(), 5000), 0);
  Error error = error_of([&] { blob->check(); });
  EXPECT_EQ(error.code(), Code::io);
  EXPECT_NE(error.message().find(path()), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("5000"), std::string::npos) << error.message();
  EXPECT_NE(error.hint().find("weights=copied"), std::string::npos) << error.hint();
}

TEST_F(MappedFile, TellsThatTheFileWasWrittenTo) {
  write("old!");
  make_older();
  auto blob = map_file(path());
  write("new!");
  EXPECT_EQ(error_of([&] { blob->check(); }).code(), Code::io);
}

TEST_F(MappedFile, KeepsTheOldFileWhereANewOneTakesItsName) {
  write("old");
  auto blob = map_file(path());
  write("other text", "new");
  fs::rename(path("new"), path());
  blob->check();
  EXPECT_EQ(text_of(*blob), "old");
}

TEST_F(MappedFile, ACopyStaysWhatItWas) {
  std::string text(3 << 20, 'x');
  text += "end";
  write(text);
  auto blob = read_file(path());
  auto beside = read_beside(path("model.onnx"), "file");
  ASSERT_EQ(truncate(path().c_str(), 0), 0);
  blob->check();
  EXPECT_EQ(text_of(*blob), text);
  EXPECT_EQ(text_of(*beside), text);
  EXPECT_EQ(read_file(path())->size(), 0);
  EXPECT_EQ(map_file(path())->size(), 0);
}

// Opening a pipe for reading waits for a writer, if one does not take care.
TEST_F(MappedFile, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  write("model", "model.onnx");
  for (const auto& open : std::vector<std::function<void(std::string)>>{
           [](std::string name) { map_file(name); }, [](std::string name) { read_file(name); },
           [](std::string name) { read_text_file(name); }}) {
    EXPECT_EQ(error_of([&] { open(path("pipe")); }).code(), Code::io);
    EXPECT_EQ(error_of([&] { open(folder_.string()); }).code(), Code::io);
    EXPECT_EQ(error_of([&] { open("/dev/zero"); }).code(), Code::io);
    EXPECT_EQ(error_of([&] { open(path("none")); }).code(), Code::not_found);
  }
  EXPECT_EQ(error_of([&] { map_beside(path("model.onnx"), "pipe"); }).code(), Code::io);
}

}  // namespace
}  // namespace plait
