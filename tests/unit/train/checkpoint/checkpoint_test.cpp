// Checkpoints: what is saved on one mesh is loaded on any, and whatever is damaged, missing or of others is named.
#include "core/train/checkpoint/checkpoint.h"

#include <malloc.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "core/base/block.h"
#include "core/base/tensor.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/train/checkpoint/saved_run.h"
#include "tests/unit/train/train_test.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::Folder;
using testing::ElementsAre;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// Saves the arrays of a step, each cut along one dim over the writers, and waits.
void save(const std::string& folder, int64_t step, int64_t writers, const std::vector<int>& dims, bool best = false,
          int64_t keep = 100) {
  std::vector<std::unique_ptr<CheckpointWriter>> all;
  for (int64_t writer = 0; writer < writers; ++writer)
    all.push_back(std::make_unique<CheckpointWriter>(
        CheckpointOptions{.directory = folder, .writer = writer, .writers = writers, .keep = keep, .timeout_s = test::hang_s}));
  for (int64_t writer = 0; writer < writers; ++writer) {
    const test::OwnedBlocks owned = test::blocks_of(step, writer, writers, dims);
    all[static_cast<size_t>(writer)]->save(test::info_of(step), owned.blocks, best);
  }
  for (auto& writer : all) writer->wait();
}

TEST(Checkpoints, LoadOnAnyOtherCut) {
  std::mt19937 random(11);
  for (const int64_t writers : {1, 2, 3, 4}) {
    for (const auto& dims : {std::vector<int>{0, 0, 0}, {1, 0, 1}, {1, 1, 2}}) {
      const Folder folder;
      save(folder.path(), 7, writers, dims);
      const Checkpoint read = Checkpoint::open(folder.path("step-000007"), "model 1");
      EXPECT_EQ(read.info().step, 7);
      EXPECT_EQ(read.info().state, test::info_of(7).state);
      ASSERT_EQ(read.arrays().size(), test::arrays().size());
      for (const test::SavedArray& array : test::arrays()) {
        const Tensor whole = test::whole_of(array, 7);
        const Tensor loaded = read.read(array.name);
        ASSERT_EQ(loaded.shape(), array.shape) << array.name;
        EXPECT_EQ(std::memcmp(loaded.data(), whole.data(), static_cast<size_t>(whole.bytes())), 0) << array.name;
        for (int i = 0; i < 20; ++i) {
          Shape begin = array.shape, size = array.shape;
          for (int dim = 0; dim < size.rank(); ++dim) {
            begin[dim] = static_cast<int64_t>(random() % static_cast<uint64_t>(array.shape[dim] + 1));
            size[dim] = static_cast<int64_t>(random() % static_cast<uint64_t>(array.shape[dim] - begin[dim] + 1));
          }
          const Tensor wanted(array.dtype, size), got(array.dtype, size);
          take_block(whole.view(), begin, wanted.view());
          read.read(array.name, begin, got.view());
          EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(got.bytes())), 0)
              << array.name << " " << size.text() << " at " << begin.text();
        }
      }
    }
  }
}

/// A rank a writer, as threads that meet after each step: shards come at any time, saves overlap with the next step.
TEST(Checkpoints, WritersSaveAtOnceAndTheNewestStay) {
  const Folder folder;
  constexpr int64_t writers = 3;
  std::barrier meet(writers);
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < writers; ++rank) {
    ranks.emplace_back([&, rank] {
      CheckpointWriter writer(
          {.directory = folder.path(), .writer = rank, .writers = writers, .keep = 2, .timeout_s = test::hang_s});
      meet.arrive_and_wait();
      for (int64_t step = 1; step <= 12; ++step) {
        meet.arrive_and_wait();
        const test::OwnedBlocks owned = test::blocks_of(step, rank, writers, {0, 0, 0});
        writer.save(test::info_of(step), owned.blocks, step == 5);
      }
      writer.wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(names_in(folder.path()), ElementsAre("best", "step-000005", "step-000011", "step-000012"));
  EXPECT_THAT(list_checkpoints(folder.path()),
              ElementsAre(folder.path("step-000005"), folder.path("step-000011"), folder.path("step-000012")));
  EXPECT_EQ(Checkpoint::open(folder.path("best")).info().step, 5);
  for (const std::string& path : list_checkpoints(folder.path())) test::check_checkpoint(path);
  EXPECT_THAT(names_in(folder.path("step-000012")),
              ElementsAre("manifest.json", "shard-00000-of-00003.safetensors", "shard-00001-of-00003.safetensors",
                          "shard-00002-of-00003.safetensors"));
}

TEST(Checkpoints, WhatIsSavedIsWhatItWasAtTheCall) {
  const Folder folder;
  CheckpointWriter writer({.directory = folder.path()});
  std::vector<float> weights(1 << 16, 1);
  const Shape shape{1 << 16};
  const TensorView view{reinterpret_cast<std::byte*>(weights.data()), DType::f32, shape};
  writer.save({.step = 1, .model = "m"}, {{"w", shape, Shape{0}, view}});
  std::fill(weights.begin(), weights.end(), 2.0f);
  writer.wait();
  const Tensor read = Checkpoint::open(folder.path("step-000001")).read("w");
  EXPECT_EQ(std::count(read.as<float>(), read.as<float>() + read.elements(), 1.0f), 1 << 16);
}

TEST(Checkpoints, InPlaceTakesNoMemory) {
  const Folder folder;
  CheckpointWriter writer({.directory = folder.path()});
  const Shape shape{4 << 20};
  std::vector<float> weights(static_cast<size_t>(shape[0]), 3);
  const TensorView view{reinterpret_cast<std::byte*>(weights.data()), DType::f32, shape};
  const auto held = [] {
    const struct mallinfo2 now = mallinfo2();
    return static_cast<int64_t>(now.uordblks + now.hblkhd);
  };
  const int64_t before = held();
  writer.save({.step = 1, .model = "m"}, {{"w", shape, Shape{0}, view}}, false, Saving::in_place);
  EXPECT_LT(held() - before, view.bytes() / 2);
  writer.wait();
  const Tensor read = Checkpoint::open(folder.path("step-000001")).read("w");
  EXPECT_EQ(std::count(read.as<float>(), read.as<float>() + read.elements(), 3.0f), shape[0]);
}

TEST(Checkpoints, AStepThatIsThereIsReplaced) {
  const Folder folder;
  save(folder.path(), 3, 2, {0, 0, 0});
  const std::string before = test::bytes_of(folder.path("step-000003/manifest.json"));
  save(folder.path(), 3, 3, {0, 0, 0});
  EXPECT_NE(test::bytes_of(folder.path("step-000003/manifest.json")), before);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000003"));
  test::check_checkpoint(folder.path("step-000003"));
}

/// A run that continues from an earlier checkpoint leaves later ones of its past as they are, and its own newest stay.
TEST(Checkpoints, LaterStepsDoNotCountAsNewest) {
  const Folder folder;
  for (int64_t step : {1, 2, 3, 9}) save(folder.path(), step, 1, {0, 0, 0});
  for (int64_t step : {4, 5}) save(folder.path(), step, 1, {0, 0, 0}, false, 2);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000004", "step-000005", "step-000009"));
}

TEST(Checkpoints, WhatAnInterruptedSaveLeftIsRemoved) {
  const Folder folder;
  const auto leave = [&](const std::string& name) {
    fs::create_directories(folder.path(name));
    folder.write(name + "/shard-00001-of-00002.safetensors", "half of a shard");
  };
  leave("step-000004.tmp");
  leave("step-000002.tmp-old");
  leave("step-000004");  // no manifest: not one of ours
  leave("step-4.tmp");
  save(folder.path(), 4, 2, {0, 0, 0});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000004", "step-4.tmp"));
  test::check_checkpoint(folder.path("step-000004"));
}

TEST(Checkpoints, BlocksHaveToMakeUpTheirArrays) {
  const Tensor half(DType::f32, Shape{2});
  const auto saves = [&](std::vector<std::vector<ArrayBlock>> blocks) {
    const Folder folder;
    const auto writers = static_cast<int64_t>(blocks.size());
    std::vector<std::unique_ptr<CheckpointWriter>> all;
    for (int64_t i = 0; i < writers; ++i)
      all.push_back(std::make_unique<CheckpointWriter>(
          CheckpointOptions{.directory = folder.path(), .writer = i, .writers = writers, .timeout_s = test::hang_s}));
    for (size_t i = 0; i < all.size(); ++i) all[i]->save({.step = 1}, blocks[i]);
    for (size_t i = all.size(); i-- > 0;) all[i]->wait();
    EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
  };
  const ArrayBlock first{"w", Shape{4}, Shape{0}, half.view()}, second{"w", Shape{4}, Shape{2}, half.view()};
  saves({{first}, {second}});
  expect_error([&] { saves({{first}}); }, Code::invalid_argument, "\"w\"", "2 of its 4 elements");
  expect_error([&] { saves({{first}, {first}}); }, Code::invalid_argument, "\"w\"", "overlap");
  expect_error([&] { saves({{first, second}}); }, Code::invalid_argument, "two blocks");
  expect_error([&] { saves({{{"w", Shape{4}, Shape{3}, half.view()}}}); }, Code::invalid_argument, "outside");
  expect_error([&] { saves({{{"w", Shape{4}, Shape{-1}, half.view()}}}); }, Code::invalid_argument, "outside");
  expect_error([&] { saves({{{"w", Shape{2, 2}, Shape{0}, half.view()}}}); }, Code::invalid_argument, "outside");
  expect_error(
      [&] {
        saves({{first}, {{"w", Shape{5}, Shape{2}, half.view()}}});
      },
      Code::invalid_argument, "shard-00001");
}

TEST(Checkpoints, AnErrorOfTheThreadComesWithTheNextCall) {
  const Folder folder;
  CheckpointWriter writer({.directory = folder.path(), .writer = 0, .writers = 2, .timeout_s = 0.05});
  const test::OwnedBlocks owned = test::blocks_of(1, 0, 1, {0, 0, 0});
  writer.save(test::info_of(1), owned.blocks);
  expect_error([&] { writer.save(test::info_of(2), owned.blocks); }, Code::timeout, "shard-00001-of-00002", "0.05 s");
  writer.wait();  // it was said once
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
}

TEST(Checkpoints, GivingUpDoesNotWaitForOthers) {
  const Folder folder;
  CheckpointWriter writer({.directory = folder.path(), .writer = 0, .writers = 2, .timeout_s = 1e6});
  writer.save(test::info_of(1), test::blocks_of(1, 0, 1, {0, 0, 0}).blocks);
}

TEST(Checkpoints, OptionsAreChecked) {
  const Folder folder;
  for (const CheckpointOptions& bad : {CheckpointOptions{.directory = folder.path(), .keep = 0},
                                       {.directory = folder.path(), .writer = 2, .writers = 2},
                                       {.directory = folder.path(), .writer = -1}})
    expect_error([&] { CheckpointWriter writer(bad); }, Code::invalid_argument);
  const std::string file = folder.write("file", "");
  expect_error([&] { CheckpointWriter writer({.directory = file + "/below"}); }, Code::io, "below");
}

class Damage : public testing::Test {
 protected:
  Damage() { save(folder_.path(), 1, 2, {0, 0, 0}); }

  /// Opens the checkpoint and reads all of it.
  static void read_all(const std::string& path) {
    const Checkpoint read = Checkpoint::open(path, "model 1");
    for (const auto& [name, array] : read.arrays()) read.read(name);
  }

  Folder folder_;
  std::string path_ = folder_.path("step-000001");
};

/// Changes one bit of a file where it lies.
void flip(const std::string& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1 << at % 8);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST_F(Damage, OfAnyByteIsSeenAndNamed) {
  for (const std::string& name : names_in(path_)) {
    const std::string file = path_ + "/" + name;
    const size_t size = fs::file_size(file);
    size_t harmless = 0;
    for (size_t at = 0; at < size; ++at) {
      flip(file, at);
      const Error error = test::error_of([&] { read_all(path_); });
      flip(file, at);
      // A blank between the members of a manifest may become another: that has no meaning.
      if (error.code() == Code::ok && name == "manifest.json") {
        ++harmless;
        continue;
      }
      EXPECT_EQ(error.code(), Code::bad_model) << name << " " << at << ": " << error.message();
      EXPECT_THAT(error.message(), testing::HasSubstr(name)) << at;
    }
    EXPECT_LT(harmless, size / 20);
  }
  read_all(path_);
}

TEST_F(Damage, OfAnArrayNamesArrayAndFile) {
  const std::string file = path_ + "/shard-00001-of-00002.safetensors";
  std::string bytes = test::bytes_of(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  const Checkpoint read = Checkpoint::open(path_);
  std::set<std::string> damaged;
  for (const auto& [name, array] : read.arrays()) {
    const Error error = test::error_of([&, &name = name] { read.read(name); });
    if (error.code() == Code::ok) continue;
    damaged.insert(name);
    EXPECT_EQ(error.code(), Code::bad_model);
    EXPECT_THAT(error.message(), testing::AllOf(testing::HasSubstr("\"" + name + "\""), testing::HasSubstr(file)));
  }
  EXPECT_EQ(damaged.size(), 1u);
}

TEST_F(Damage, OfLengthsAndMissingFiles) {
  for (const std::string& name : names_in(path_)) {
    const std::string file = path_ + "/" + name, whole = test::bytes_of(file);
    for (const std::string& bytes : {whole.substr(0, whole.size() / 2), whole + "x", std::string()}) {
      folder_.write("step-000001/" + name, bytes);
      expect_error([&] { read_all(path_); }, Code::bad_model, name);
    }
    fs::remove(file);
    expect_error([&] { read_all(path_); }, Code::not_found, name);
    folder_.write("step-000001/" + name, whole);
  }
  // Two shards of one checkpoint, exchanged.
  fs::rename(path_ + "/shard-00000-of-00002.safetensors", path_ + "/other");
  fs::rename(path_ + "/shard-00001-of-00002.safetensors", path_ + "/shard-00000-of-00002.safetensors");
  fs::rename(path_ + "/other", path_ + "/shard-00001-of-00002.safetensors");
  expect_error([&] { read_all(path_); }, Code::bad_model, "shard-0000");
}

TEST_F(Damage, OtherModelsNewerVersionsAndNoCheckpoint) {
  expect_error([&] { Checkpoint::open(path_, "model 2"); }, Code::invalid_argument, "model 1", "model 2", path_);
  expect_error([&] { Checkpoint::open(folder_.path()); }, Code::not_found, "no checkpoint");
  expect_error([&] { Checkpoint::open(folder_.path("step-000002")); }, Code::not_found, "no checkpoint");
  // What a newer version would write: another number, and the checksum of its contents (that of these very members).
  folder_.write("step-000001/manifest.json", R"({"format":"plait checkpoint","version":2,"checksum":)" +
                                                 std::to_string(test::checksum_of_newer()) + "}");
  expect_error([&] { Checkpoint::open(path_); }, Code::unsupported, "version 2", "manifest.json");
  folder_.write("step-000001/manifest.json", R"({"some":"json"})");
  expect_error([&] { Checkpoint::open(path_); }, Code::bad_model, "no checkpoint's manifest");
}

TEST_F(Damage, BlocksThatAreNoneAreRefused) {
  const Checkpoint read = Checkpoint::open(path_);
  const test::SavedArray& array = test::arrays()[0];
  Shape begin = array.shape;
  std::fill_n(&begin[0], begin.rank(), 0);
  begin[0] = 1;
  const Tensor whole(array.dtype, array.shape), other(DType::i8, array.shape);
  expect_error([&] { read.read("none"); }, Code::not_found, "none");
  expect_error([&] { read.read(array.name, begin, whole.view()); }, Code::invalid_argument, array.name);
  begin[0] = -1;
  expect_error([&] { read.read(array.name, begin, whole.view()); }, Code::invalid_argument, array.name);
  begin[0] = 0;
  expect_error([&] { read.read(array.name, begin, other.view()); }, Code::invalid_argument, array.name);
  expect_error([&] { read.read(array.name, Shape{0}, whole.view()); }, Code::invalid_argument, array.name);
}

}  // namespace
}  // namespace plait
