#include "core/generate/image_places.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

bool holds(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// Takes the grids of one kind, row by row.
class GridReader {
 public:
  GridReader(const PatchGrids& kind, int64_t merge, int64_t rows) : kind_(kind) {
    const Tensor& grids = kind.grids;
    if (!grids.present()) return;
    if (grids.dtype() != DType::i64 || grids.shape().rank() != 2 || grids.shape()[1] != 3)
      throw Error(Code::invalid_argument, cat("option ", kind.option, " is ", dtype_name(grids.dtype()),
                                              grids.shape().text(), ", expected i64[n, 3]: time, height, width"));
    read_seconds();
    const auto* numbers = grids.as<int64_t>();
    double patches = 0;
    for (int64_t i = 0; i < grids.shape()[0]; ++i, numbers += 3) {
      if (*std::min_element(numbers, numbers + 3) < 1 || *std::max_element(numbers, numbers + 3) > most)
        throw wrong(i, "expected numbers from 1 to 65536");
      grids_.push_back({numbers[0], numbers[1], numbers[2]});
      patches += static_cast<double>(numbers[0]) * static_cast<double>(numbers[1]) * static_cast<double>(numbers[2]);
    }
    if (!merge && rows) merge = static_cast<int64_t>(std::llround(std::sqrt(patches / static_cast<double>(rows))));
    merge = std::max<int64_t>(merge, 1);
    double wanted = 0;
    for (size_t i = 0; i < grids_.size(); ++i) {
      Grid& grid = grids_[i];
      if (grid.height % merge || grid.width % merge)
        throw wrong(static_cast<int64_t>(i), cat("height and width are no multiples of ", merge,
                                                 ", the patches that one row spans in each direction"));
      grid.height /= merge, grid.width /= merge;
      wanted += static_cast<double>(grid.times) * static_cast<double>(grid.height * grid.width);
    }
    if (wanted != static_cast<double>(rows))
      throw Error(Code::invalid_argument,
                  cat("the grids of option ", kind.option, " have ", static_cast<int64_t>(std::min(wanted, 1e15)),
                      " rows, with ", merge, " x ", merge, " patches for each, and the prompt has ", rows,
                      " tokens for them"),
                  "write the image's token once for each row");
  }

  bool takes(int32_t id) const { return holds(kind_.tokens, id); }

  /// The place of the next row. `last`: another token follows it.
  GivenPlace next(bool last) {
    if (at_ == grids_.size())
      throw Error(Code::invalid_argument,
                  cat("the prompt has rows of an image, and no grid for them in ", kind_.option),
                  cat("set option ", kind_.option, ", i64 [n, 3], as the processor gives it"));
    const Grid& grid = grids_[at_];
    const int64_t in_time = row_ % (grid.height * grid.width), time = row_ / (grid.height * grid.width) - first_time_;
    const std::array<int64_t, 3> place{time_of(time), in_time / grid.width, in_time % grid.width};
    GivenPlace out;
    for (size_t i = 0; i < place.size(); ++i) out.offset[i] = static_cast<int32_t>(place[i]);
    ++row_;
    const bool ends_time = in_time + 1 == grid.height * grid.width,
               ends = row_ == grid.times * grid.height * grid.width;
    if (last && !ends_time) throw wrong(static_cast<int64_t>(at_), "other tokens interrupt its rows within a time");
    const bool ends_block = ends || last;
    out.advance = ends_block ? static_cast<int32_t>(std::max({place[0], grid.height - 1, grid.width - 1}) + 1) : 0;
    if (ends_block) first_time_ = row_ / (grid.height * grid.width);
    if (ends) ++at_, row_ = first_time_ = 0;
    return out;
  }

 private:
  struct Grid {
    int64_t times, height, width;
  };
  static constexpr int64_t most = 65536;

  void read_seconds() {
    if (!kind_.seconds.present()) return;
    const Shape& shape = kind_.seconds.shape();
    if (!is_float(kind_.seconds.dtype()) || shape.elements() != kind_.grids.shape()[0])
      throw Error(Code::invalid_argument,
                  cat("option second_per_grid_ts is ", dtype_name(kind_.seconds.dtype()), shape.text(),
                      ", expected f32[", kind_.grids.shape()[0], "], one number for each row of ", kind_.option));
    seconds_ = materialize({{}, kind_.seconds, {{RecipeStep::Kind::cast, {}, DType::f32}}});
    for (int64_t i = 0; i < shape.elements(); ++i)
      if (const float one = seconds_.as<float>()[i]; !(one >= 0 && one <= 65536))
        throw Error(Code::invalid_argument, cat("option second_per_grid_ts has ", one, ", expected 0 to 65536"));
  }

  /// Of the `time`-th time of a block, in f32 as published.
  int64_t time_of(int64_t time) const {
    if (kind_.tokens_per_second <= 0) return time;
    const float seconds = seconds_.present() ? seconds_.as<float>()[at_] : 1;
    const float place = static_cast<float>(time) * (static_cast<float>(kind_.tokens_per_second) * seconds);
    if (place > static_cast<float>(std::numeric_limits<int32_t>::max() / 4))
      throw wrong(static_cast<int64_t>(at_), "its positions are too large");
    return static_cast<int64_t>(place);
  }

  Error wrong(int64_t index, const std::string& what) const {
    const auto* grid = kind_.grids.as<int64_t>() + 3 * index;
    return {Code::invalid_argument,
            cat("option ", kind_.option, ", grid ", index, " [", grid[0], ", ", grid[1], ", ", grid[2], "]: ", what)};
  }

  const PatchGrids& kind_;
  Tensor seconds_;
  std::vector<Grid> grids_;
  size_t at_ = 0;
  int64_t row_ = 0, first_time_ = 0;  ///< of the current grid: the next row, and the time at which its block began
};

}  // namespace

std::vector<GivenPlace> image_places(std::span<const int32_t> prompt, std::span<const int32_t> stood_for,
                                     std::span<const PatchGrids> kinds, int64_t merge) {
  std::vector<GridReader> readers;
  for (const PatchGrids& kind : kinds) {
    const auto rows = std::count_if(prompt.begin(), prompt.end(),
                                    [&](int32_t id) { return holds(kind.tokens, id) && holds(stood_for, id); });
    readers.emplace_back(kind, merge, rows);
  }
  std::vector<GivenPlace> out;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (!holds(stood_for, prompt[i])) continue;
    const auto reader =
        std::find_if(readers.begin(), readers.end(), [&](const GridReader& one) { return one.takes(prompt[i]); });
    if (reader == readers.end()) out.emplace_back();
    else out.push_back(reader->next(i + 1 == prompt.size() || !reader->takes(prompt[i + 1])));
  }
  return out;
}

}  // namespace plait
