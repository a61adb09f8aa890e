#pragma once
// Positions of M-RoPE (Wang et al. 2024, Qwen2-VL): where the rows of images and videos stand, by their grids.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/generate/given_rows.h"

namespace plait {

/// The patches of images, or of videos, of one prompt, as its processor counts them.
struct PatchGrids {
  std::string option;            ///< its name, for messages
  std::vector<int32_t> tokens;   ///< ids that one of its rows stands for
  Tensor grids;                  ///< i64 [n, 3]: time, height, width; not present: there are none
  Tensor seconds;                ///< f32 [n]: seconds from one time to the next; not present: 1
  double tokens_per_second = 0;  ///< positions of a second; 0: a time is one position
};

/// The places of the rows that stand for the tokens `stood_for` of `prompt`, in order; of the tokens of `kinds` by their grids, of others
/// those of text. A grid has one row for each square of `merge` x `merge` patches (0: as many as its tokens tell). Its rows are at
/// (time, height, width) after the position before it, and the next token is after the largest of them. Where text interrupts a grid
/// between two times, the next time begins anew (Qwen3-VL).
/// Throws Error(invalid_argument) if the grids and the tokens do not fit, or tokens of `kinds` have none.
std::vector<GivenPlace> image_places(std::span<const int32_t> prompt, std::span<const int32_t> stood_for,
                                     std::span<const PatchGrids> kinds, int64_t merge);

}  // namespace plait
