#pragma once
// The Schedule: which pipeline rank runs which part of which micro-batch, and in what order. It contains no
// communication: what crosses between stages follows from the seats and from the edges (schedule_check.h).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// One section of one stage for one micro-batch. Backward is either whole, or two actions (Qi et al., "Zero Bubble
/// Pipeline Parallelism", 2024): the input gradient, which the previous stage waits for, and the weight gradient,
/// which no rank waits for.
struct Action {
  enum class Kind : uint8_t { forward, backward, input_gradient, weight_gradient, update };

  Kind kind = Kind::forward;
  int32_t stage = 0;
  int32_t micro_batch = 0;  ///< of an update: how many updates of its stage precede it
  /// Forward of asynchronous schedules: how many updates of the stage precede the weights it reads; -1: the newest.
  /// The micro-batch's backward actions read the same version.
  int32_t version = -1;

  bool operator==(const Action& other) const = default;
  std::string text() const;  ///< "2F7", "0F3@1": stage, letter, micro-batch, version
};

/// F, B (whole backward), I (input gradient), W (weight gradient), U: PyTorch's letters, and U for update.
char action_letter(Action::Kind kind);

/// The actions of a step, or of a window of steps if it is asynchronous. Ranks are pipeline coordinates: with data or
/// tensor parallelism all ranks of one coordinate have the same list.
struct Schedule {
  int32_t stages = 0;
  int32_t micro_batches = 0;
  /// The ranks of each stage. A stage with several seats has a copy of its weights on each; they take micro-batches
  /// in turn, in ascending order. Chimera's two directions are two seats a stage.
  std::vector<std::vector<int32_t>> seats;
  std::vector<std::vector<Action>> ranks;  ///< each rank's actions, in the order in which it runs them

  bool operator==(const Schedule& other) const = default;
  /// The rank that runs a micro-batch's actions of a stage.
  int32_t rank_of(int32_t stage, int32_t micro_batch) const {
    const auto& of = seats[static_cast<size_t>(stage)];
    return of[static_cast<size_t>(micro_batch) % of.size()];
  }
  bool is_asynchronous() const;  ///< it updates weights; a synchronous step ends with one update, which is not listed
  bool is_split() const;         ///< it has input and weight gradients as actions of their own
  bool has(Action::Kind kind) const;
  /// Whether all stages read weights of the same number of updates for a micro-batch: a step then has one gradient.
  bool is_consistent() const;

  /// The text form, which `parse_schedule` reads back to an equal Schedule:
  ///
  ///     stages 4 micro-batches 2 seats 0,3 1,2 2,1 3,0
  ///     0F0 3F1 3B1 0B0
  ///     ...
  ///
  /// One line a rank; "-" for a rank without actions.
  std::string text() const;
};

/// Reads the text form, or PyTorch's CSV (see `read_torch_csv`): the first word "stages" decides. "#" starts a
/// comment. Throws Error(invalid_argument) naming the line and the action. Reads only: `check_schedule` verifies.
Schedule parse_schedule(std::string_view text);

/// Reads lists as torch.distributed.pipelining writes them: a line a rank, a cell a time slot. Communication (SEND,
/// RECV, UNSHARD, RESHARD, REDUCE_GRAD) is skipped; "(0F1;3B0)OVERLAP_F_B" is its actions in order. Both dialects are
/// read: with BW anywhere, or with W but without I, B is an input gradient and BW a whole backward; otherwise letters
/// are those of `action_letter`. A stage's seats follow from the lines that its actions are in.
/// Throws Error(invalid_argument) naming line and cell.
Schedule read_torch_csv(std::string_view text);

/// "2F7", "0F3@1"; nothing if the word is no action.
std::optional<Action> read_action(std::string_view word);

}  // namespace plait
