// What exists, and what becomes visible whole. A loop of links is what the system refuses to look at, for root too.
#include "core/base/paths.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/base/draft_directory.h"
#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class Paths : public testing::Test {
 protected:
  Paths() : folder_((fs::temp_directory_path() / cat("plait_paths_", getpid())).string()) { fs::create_directories(folder_); }
  ~Paths() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text = "x") const { std::ofstream(path(name)) << text; }
  std::string loop() const {
    fs::create_symlink(path("b"), path("a"));
    fs::create_symlink(path("a"), path("b"));
    return path("a");
  }
  static void is_io(const std::function<void()>& body) {
    try {
      body();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io) << error.message();
    }
  }

  std::string folder_;
};

TEST_F(Paths, AbsentIsNoFileOfThatNameAndNothingElse) {
  write("file");
  EXPECT_EQ(look(path("file")), PathKind::file);
  EXPECT_EQ(look(folder_), PathKind::directory);
  EXPECT_EQ(look("/dev/null"), PathKind::other);
  EXPECT_EQ(look(path("none")), std::nullopt);
  EXPECT_EQ(look(path("file/within")), std::nullopt) << "ENOTDIR";
  EXPECT_EQ(real_path(path("none")), std::nullopt);
  EXPECT_EQ(names_in(path("none")), Names());
  const std::string round = loop();
  is_io([&] { look(round); });
  is_io([&] { names_in(round); });
  is_io([&] { real_path(round); });
  is_io([&] { make_directories(round + "/below"); });
  is_io([&] { look(folder_ + "/" + std::string(300, 'n')); });
}

TEST_F(Paths, MakesAndRemovesWholeTrees) {
  EXPECT_TRUE(make_directories(path("a/b/c")));
  EXPECT_FALSE(make_directories(path("a/b/c")));
  write("a/b/c/file");
  write("kept");
  fs::create_symlink(path("kept"), path("a/link"));
  EXPECT_EQ(link_target(path("a/link")), path("kept"));
  EXPECT_EQ(link_target(path("kept")), std::nullopt);
  EXPECT_EQ(names_in(path("a")), (Names{"b", "link"}));
  remove_path(path("a"));
  remove_path(path("a"));
  EXPECT_EQ(names_in(folder_), Names{"kept"});
  is_io([&] { make_directories(path("kept/below")); });
}

TEST_F(Paths, AWholeFileIsTheOldOneUntilItIsFinished) {
  write("file", "old");
  {
    FileWriter writer(path("file"), FileWriter::At::whole);
    writer.write("half");
    EXPECT_EQ(read_text_file(path("file")), "old");
  }
  EXPECT_EQ(names_in(folder_), Names{"file"});
  EXPECT_EQ(read_text_file(path("file")), "old");
  fs::create_symlink("file", path("link"));
  FileWriter writer(path("link"), FileWriter::At::whole);
  writer.write("new");
  writer.finish();
  EXPECT_EQ(read_text_file(path("file")), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  FileWriter nothing("/dev/null", FileWriter::At::whole);
  nothing.write("gone");
  nothing.finish();
  EXPECT_EQ(look("/dev/null"), PathKind::other);
}

TEST_F(Paths, ADraftIsPublishedWholeOrNotAtAll) {
  for (const bool there : {false, true}) {
    const std::string target = path("out");
    if (there) {
      fs::create_directories(target);
      write("out/config.json", "mine");
    }
    {
      const DraftDirectory draft(target);
      std::ofstream(draft.path() + "/model.onnx") << "half";
    }
    EXPECT_EQ(names_in(folder_), there ? Names{"out"} : Names());
    DraftDirectory draft(target);
    for (const char* name : {"config.json", "model.onnx", "model.onnx.data"}) std::ofstream(cat(draft.path(), "/", name)) << "new";
    draft.publish("model.onnx", DraftDirectory::Existing::kept);
    EXPECT_EQ(read_text_file(target + "/config.json"), there ? "mine" : "new");
    EXPECT_EQ(read_text_file(target + "/model.onnx"), "new");
    if (!there) fs::remove_all(target);
  }
  EXPECT_TRUE(fs::exists(path("out/model.onnx.data")));
  DraftDirectory again(path("out"));
  std::ofstream(again.path() + "/config.json") << "newer";
  std::ofstream(again.path() + "/model.onnx") << "newer";
  again.publish("model.onnx", DraftDirectory::Existing::replaced);
  EXPECT_EQ(read_text_file(path("out/config.json")), "newer");
}

/// As a process that was killed leaves it: some files of a set are published, and the last is not.
TEST_F(Paths, ADraftThatWasLeftIsUndone) {
  fs::create_directories(path("out/.tmp-1"));
  write("out/mine");
  write("out/config.json");
  write("out/.tmp-1/model.onnx");
  write("out/.tmp-1/.publishing", "model.onnx\nconfig.json\nmodel.onnx");
  fs::create_directories(path("new.tmp-1"));
  { const DraftDirectory draft(path("out")); }
  EXPECT_EQ(names_in(path("out")), Names{"mine"});
  { const DraftDirectory draft(path("new")); }
  EXPECT_EQ(names_in(folder_), Names{"out"});
}

TEST_F(Paths, ADraftInUseStays) {
  const DraftDirectory first(path("out")), second(path("out"));
  EXPECT_EQ(names_in(folder_).size(), 2u);
}

}  // namespace
}  // namespace plait
