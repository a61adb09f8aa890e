// What loads report to, and where the log goes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/base/load_progress.h"
#include "core/base/log.h"
#include "core/base/log_file.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

namespace fs = std::filesystem;

TEST(LoadProgress, StagesAreSharesOfTheWhole) {
  LoadProgress progress;
  EXPECT_EQ(progress.fraction(), 0);
  progress.stage(0.2, 4);
  progress.advance();
  EXPECT_DOUBLE_EQ(progress.fraction(), 0.05);
  progress.advance(100);
  EXPECT_DOUBLE_EQ(progress.fraction(), 0.2);
  progress.stage(0.1, 1);  // never back
  progress.advance();
  EXPECT_DOUBLE_EQ(progress.fraction(), 0.2);
  progress.stage(1, 0);  // nothing to do
  progress.advance(0);
  EXPECT_DOUBLE_EQ(progress.fraction(), 0.2);
  progress.stage(1, 3);
  progress.advance(3);
  EXPECT_DOUBLE_EQ(progress.fraction(), 1);
}

TEST(LoadProgress, EveryReportLooksForACancel) {
  LoadProgress progress;
  progress.stage(1, 2);
  progress.advance();
  progress.cancel();
  EXPECT_THROW(progress.check(), Error);
  EXPECT_THROW(progress.advance(), Error);
  EXPECT_THROW(progress.stage(1, 1), Error);
  EXPECT_DOUBLE_EQ(progress.fraction(), 0.5);
}

class LogFileTest : public testing::Test {
 protected:
  LogFileTest() {
    std::string name = (fs::temp_directory_path() / "plait-log-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~LogFileTest() override { fs::remove_all(root_); }

  fs::path path(std::string_view ending = ".log") const {
    return root_ / "logs" / cat("plait-", static_cast<int64_t>(getpid()), ending);
  }
  std::string directory() const { return (root_ / "logs").string(); }

  fs::path root_;
};

TEST_F(LogFileTest, LinesGoToTheHostAndToTheFile) {
  {
    Log first, second;
    first.keep_file(directory());
    second.keep_file(directory());
    first.write(LogLevel::warning, "one\nline");
    second.write(LogLevel::debug, "another");
    LogLevel level{};
    std::string text;
    EXPECT_TRUE(first.next(level, text));
    EXPECT_EQ(text, "one\nline");
    EXPECT_FALSE(first.next(level, text));
  }
  std::string kept = read_text_file(path().string());
  EXPECT_NE(kept.find("Z warning one line\n"), std::string::npos) << kept;
  EXPECT_NE(kept.find("Z debug another\n"), std::string::npos) << kept;
  EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 2);
}

TEST_F(LogFileTest, StaysSmall) {
  std::string long_line(1000, 'x');
  for (int part = 0; part < 4; ++part) {
    Log log;
    log.keep_file(directory());
    for (int i = 0; i < 900; ++i) log.write(LogLevel::info, long_line);
  }
  // Lines go out in lots of at most as many as may wait, so that a file may be so much larger.
  auto most = LogFile::limit + static_cast<int64_t>(LogFile::waiting_limit) * 1100;
  EXPECT_LT(fs::file_size(path()), static_cast<size_t>(most));
  EXPECT_GE(fs::file_size(path(".old.log")), static_cast<size_t>(LogFile::limit));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory()), {}), 2);
}

TEST_F(LogFileTest, OldFilesGo) {
  fs::create_directories(directory());
  for (size_t i = 0; i < LogFile::files_kept + 8; ++i) {
    fs::path old = fs::path(directory()) / cat("plait-", 9'000'000 + static_cast<int64_t>(i), ".log");
    std::ofstream(old) << "old\n";
    fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(i + 1));
  }
  std::ofstream(fs::path(directory()) / "other.txt") << "not ours\n";
  {
    Log log;
    log.keep_file(directory());
    log.write(LogLevel::info, "new");
  }
  EXPECT_EQ(static_cast<size_t>(std::distance(fs::directory_iterator(directory()), {})), LogFile::files_kept + 1);
  EXPECT_TRUE(fs::exists(path()) && fs::exists(fs::path(directory()) / "other.txt"));
  EXPECT_TRUE(fs::exists(fs::path(directory()) / "plait-9000000.log"));
  EXPECT_FALSE(fs::exists(fs::path(directory()) / cat("plait-", 9'000'000 + int64_t{LogFile::files_kept}, ".log")));
}

TEST_F(LogFileTest, WhatCannotBeWrittenIsOneWarning) {
  std::ofstream(root_ / "logs") << "a file where the directory should be";
  Log log;
  log.keep_file(directory());
  LogLevel level{};
  std::string text;
  EXPECT_TRUE(test::eventually([&] { return log.next(level, text); }));
  EXPECT_EQ(level, LogLevel::warning);
  EXPECT_NE(text.find("no log file"), std::string::npos) << text;
  log.write(LogLevel::info, "continues");
  EXPECT_TRUE(log.next(level, text));
  EXPECT_EQ(text, "continues");
  EXPECT_FALSE(log.next(level, text));
}

}  // namespace
}  // namespace plait::test
