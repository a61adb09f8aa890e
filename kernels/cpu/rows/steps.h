#pragma once
// Chains of element-wise ops on f32, tile by tile: what stays between two steps stays in L1.
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/elementwise_steps.h"
#include "core/exec/kernel.h"
#include "kernels/cpu/rows/code_loops.h"
#include "kernels/cpu/rows/elementwise_loops.h"

namespace plait::cpu {

/// The steps of a node (attribute "steps") over `operands` registers, and the tiles that hold their results.
struct StepsPlan {
  StepsPlan() = default;
  /// Throws Error(bad_model).
  StepsPlan(const NodeInfo& node, size_t operands);

  bool empty() const { return steps.empty(); }

  std::vector<ElementwiseStep> steps;
  std::vector<int> tiles;    ///< by step: the number of its tile; the last step writes to the result
  std::vector<int> readers;  ///< by register: how many steps read it
  int tile_count = 0;
  size_t operands = 0;
  bool coded = false;  ///< results are codes, of this zero point
  float zero = 0;
};

/// Floats of a tile: 2 KB, so that a chain's tiles fit L1.
constexpr int64_t step_tile = 512;

/// One run of a chain: its operands, how they repeat in the result, and where their tiles are.
class StepsRun {
 public:
  /// `operands`: of types that `takes` has, and broadcast to y. Register 0 is y itself if `in_place`, and `operands` begin at register 1.
  StepsRun(const StepsPlan& plan, std::span<const TensorView> operands, const TensorView& y, bool in_place, Isa isa);

  static bool takes(DType dtype) { return dtype == DType::f32 || is_step_integer(dtype); }

  /// The number among `operands` of the first that does not broadcast to y; -1 if all do.
  static int32_t misfit(std::span<const TensorView> operands, const Shape& y);

  /// Bytes of scratch for a worker; a multiple of 64.
  static int64_t worker_bytes(const StepsPlan& plan) {
    return (plan.tile_count + static_cast<int64_t>(plan.operands) + plan.coded) * step_tile * 4;
  }
  /// Where ranges best begin: at multiples of it the repeated operands' tiles are made once.
  int64_t grain() const { return grain_; }
  /// Elements [begin, end) of y. `scratch`: a worker's bytes. Returns the first that is to be a code and is NaN; -1 if none is.
  int64_t run(int64_t begin, int64_t end, std::byte* scratch) const;

 private:
  struct Operand {
    TensorView tensor;
    int64_t period = 0;  ///< repeats after so many elements; 1: a scalar, 0: by `sizes`
    int rank = 0;        ///< merged dims of y
    int64_t sizes[Shape::max_rank] = {}, steps[Shape::max_rank] = {};  ///< steps through the operand
    float zero = 0, scale = 1;                                         ///< codes are read as (code - zero) scale
  };
  static Operand operand_of(const TensorView& operand, const Shape& y);
  void fill(const Operand& operand, int64_t begin, int64_t n, float* to) const;
  /// Elements [at, at + n) of the operand, as f32.
  void load(const Operand& operand, int64_t at, int64_t n, float* to) const;
  /// Steps that only subtract a number from codes, or multiply them by one, become part of how the codes are read.
  void read_scaled();
  bool store_codes(const float* from, float scale, int64_t at, int64_t n) const;

  const StepsPlan& plan_;
  const ElementwiseLoops& loops_;
  const CodeLoops& codes_;
  TensorView y_;
  std::vector<Operand> operands_;
  std::vector<int> read_by_;  ///< by step: the operand whose codes are read as its result; -1: it runs
  int64_t grain_ = step_tile;
};

}  // namespace plait::cpu
