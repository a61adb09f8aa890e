// Positions of images and videos: the numbers are those of get_rope_index of transformers 4.57.1, with spatial_merge_size 2 and
// tokens_per_second 2 (Qwen2-VL, Qwen2.5-VL and Qwen3-VL).
#include "core/generate/image_places.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace plait::test {
namespace {

constexpr int32_t image = 90, video = 91, start = 92, end = 93;
using Ids = std::vector<int32_t>;
using Rows = std::vector<std::vector<int64_t>>;

struct Prompt {
  Ids ids = {};
  Prompt& text(const Ids& more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return *this;
  }
  Prompt& rows(int32_t id, size_t count) {
    ids.insert(ids.end(), count, id);
    return *this;
  }
};

Tensor grid(const std::vector<int64_t>& numbers) {
  return Tensor::of_ints(numbers).reshaped({static_cast<int64_t>(numbers.size()) / 3, 3});
}

struct Seen {
  std::vector<int64_t> images = {}, videos = {};
  std::vector<float> seconds = {};
  double per_second = 0;
  int64_t merge = 2;
};

/// Positions of all tokens, and of the one after them.
Rows positions(const Ids& ids, const Seen& seen) {
  PatchGrids images{"image_grid_thw", {image}, {}, {}}, videos{"video_grid_thw", {video}, {}, {}};
  if (!seen.images.empty()) images.grids = grid(seen.images);
  if (!seen.videos.empty()) videos.grids = grid(seen.videos);
  if (!seen.seconds.empty())
    videos.seconds = Tensor::of<float>(DType::f32, {static_cast<int64_t>(seen.seconds.size())}, seen.seconds);
  videos.tokens_per_second = seen.per_second;
  const std::vector<PatchGrids> kinds{images, videos};
  const std::vector<GivenPlace> places = image_places(ids, Ids{image, video}, kinds, seen.merge);
  Rows out(4);
  int64_t position = 0;
  size_t row = 0;
  for (int32_t id : ids) {
    const GivenPlace place = id == image || id == video ? places.at(row++) : GivenPlace();
    for (size_t i = 0; i < 3; ++i) out[i].push_back(position + place.offset[i]);
    position += place.advance;
  }
  EXPECT_EQ(row, places.size());
  out[3] = {position};
  return out;
}

TEST(ImagePlaces, ImagesAsPublished) {
  const Ids two =
      Prompt().text({1, 2, start}).rows(image, 6).text({end, 3, start}).rows(image, 4).text({end, 4, 5}).ids;
  const Rows expected{{0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8, 9, 9, 9, 9, 11, 12, 13},
                      {0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8, 9, 9, 10, 10, 11, 12, 13},
                      {0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9, 10, 9, 10, 11, 12, 13},
                      {14}};
  EXPECT_EQ(positions(two, {.images = {1, 4, 6, 1, 4, 4}}), expected);
  EXPECT_EQ(positions(two, {.images = {1, 4, 6, 1, 4, 4}, .merge = 0}), expected)
      << "the merge is told by the tokens";
  const Ids flat = Prompt().text({7, start}).rows(image, 4).text({end, start}).rows(image, 6).text({end, 9}).ids;
  EXPECT_EQ(positions(flat, {.images = {1, 4, 4, 1, 2, 12}}),
            (Rows{{0, 1, 2, 2, 2, 2, 4, 5, 6, 6, 6, 6, 6, 6, 12, 13},
                  {0, 1, 2, 2, 3, 3, 4, 5, 6, 6, 6, 6, 6, 6, 12, 13},
                  {0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
                  {14}}));
}

TEST(ImagePlaces, VideosAsPublished) {
  const Ids one = Prompt().text({1, start}).rows(video, 18).text({end, 3}).ids;
  EXPECT_EQ(positions(one, {.videos = {3, 4, 6}}),
            (Rows{{0, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 5, 6},
                  {0, 1, 2, 2, 2, 3, 3, 3, 2, 2, 2, 3, 3, 3, 2, 2, 2, 3, 3, 3, 5, 6},
                  {0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4, 5, 6},
                  {7}}));
  const Ids timed = Prompt().text({1, start}).rows(video, 12).text({end, 3, start}).rows(image, 4).text({end, 8}).ids;
  EXPECT_EQ(positions(timed, {.images = {1, 4, 4}, .videos = {3, 4, 4}, .seconds = {2}, .per_second = 2}),
            (Rows{{0, 1, 2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 11, 12, 13, 14, 14, 14, 14, 16, 17},
                  {0, 1, 2, 2, 3, 3, 2, 2, 3, 3, 2, 2, 3, 3, 11, 12, 13, 14, 14, 15, 15, 16, 17},
                  {0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 11, 12, 13, 14, 15, 14, 15, 16, 17},
                  {18}}));
}

TEST(ImagePlaces, TextBetweenTimesAsPublished) {
  const Ids ids = Prompt()
                      .text({1, start})
                      .rows(video, 6)
                      .text({end, 3, start})
                      .rows(video, 6)
                      .text({end, 8, start})
                      .rows(image, 2)
                      .text({end})
                      .ids;
  EXPECT_EQ(positions(ids, {.images = {1, 2, 4}, .videos = {2, 4, 6}}),
            (Rows{{0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8, 8, 8, 8, 8, 8, 11, 12, 13, 14, 14, 16},
                  {0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8, 8, 8, 9, 9, 9, 11, 12, 13, 14, 14, 16},
                  {0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 9, 10, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                  {17}}));
}

void expect_refused(const Ids& ids, const Seen& seen, const std::string& what) {
  try {
    positions(ids, seen);
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
  }
}

TEST(ImagePlaces, WhatDoesNotFitIsRefused) {
  const Ids four = Prompt().text({1}).rows(image, 4).text({2}).ids;
  expect_refused(four, {}, "no grid for them in image_grid_thw");
  expect_refused(four, {.images = {1, 4, 6}}, "have 6 rows, with 2 x 2 patches for each, and the prompt has 4");
  expect_refused(four, {.images = {1, 4, 5}}, "grid 0 [1, 4, 5]: height and width are no multiples of 2");
  expect_refused(four, {.images = {1, 0, 4}}, "expected numbers from 1");
  expect_refused(four, {.images = {1, 4, 4}, .videos = {1, 2, 2}}, "video_grid_thw have 1 rows");
  expect_refused(Prompt().rows(image, 2).text({1}).rows(image, 2).ids, {.images = {1, 4, 4}}, "interrupt its rows");
  expect_refused(Prompt().rows(video, 4).ids, {.videos = {1, 4, 4}, .seconds = {1, 2}}, "expected f32[1]");
  expect_refused(Prompt().rows(video, 4).ids, {.videos = {1, 4, 4}, .seconds = {-1}}, "second_per_grid_ts has -1");
}

}  // namespace
}  // namespace plait::test
