#include "core/train/trainer_options.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/pipeline.h"

namespace plait {
namespace {

void check_lists(const TrainerOptions& options, const Pipeline& pipeline, int64_t data_ranks, const Dataset& data) {
  const int64_t rows = pipeline.micro_batches() * data_ranks, of_row = (options.batch + rows - 1) / rows;
  const int64_t least = (pipeline.micro_batches() - 1) * data_ranks + 1;
  if (options.batch < least)
    throw Error(Code::invalid_argument,
                cat("training: the schedule's lists are of ", pipeline.micro_batches(), " micro-batches, and a step of ",
                    options.batch, " samples on ", data_ranks, " data ranks has fewer"),
                cat("take at least ", least, " samples a step (option batch), or name a schedule instead of giving lists"));
  // The longest samples of all may meet in one step.
  if (const int64_t tokens = of_row * data.longest(); options.training.row_tokens < tokens)
    throw Error(Code::invalid_argument,
                cat("training: the schedule's lists are of ", pipeline.micro_batches(), " micro-batches, which hold ", options.batch,
                    " samples of up to ", data.longest(), " tokens only in rows of ", tokens, ", not ",
                    options.training.row_tokens),
                "plan larger rows (micro_batch), take fewer samples a step (option batch), or name a schedule");
}

}  // namespace

void check_training(bool holds, std::string_view what) {
  if (!holds) throw Error(Code::invalid_argument, cat("training: ", what));
}

void check_lengths(const Dataset& data, int64_t most, const char* who) {
  for (int64_t i = 0; i < data.size(); ++i)
    if (data[i].inputs() > most)
      throw Error(Code::invalid_argument,
                  cat(data.where(i), " has ", data[i].inputs(), " tokens, ", who, " has place for ", most),
                  "read the data with a smaller seq, or plan larger rows");
}

std::string checkpoints_of(const std::string& directory) { return directory + "/checkpoints"; }

TrainerOptions checked_options(TrainerOptions options, const std::optional<Dataset>& data) {
  check_training(options.batch >= 1, "a step takes at least one sample");
  check_training(options.steps >= 0, "the number of steps is negative");
  check_training(options.steps || !data || (options.epochs > 0 && std::isfinite(options.epochs)),
          "the number of epochs is not above 0");
  check_training(options.clip >= 0, "the norm to clip at is negative");
  check_training(options.rate.peak > 0 && std::isfinite(options.rate.peak), "the learning rate is not above 0");
  check_training(options.rate.warmup >= 0 && options.rate.floor >= 0 && options.rate.floor <= 1,
          "warm-up or the rate's floor is out of range");
  check_training(options.evaluate_every >= 0 && options.patience >= 0 && options.save_every >= 0,
          "a number of steps or evaluations is negative");
  check_training(options.keep >= 1, "at least one checkpoint is kept");
  check_training(!data || options.training.loss.empty(),
          "a graph with its own loss needs its inputs from the host, step by step");
  check_training(!data || options.training.gradients, "without gradients there is nothing to take from data");
  options.rate.steps = options.steps;
  if (data) check_lengths(*data, options.training.row_tokens, "a row");
  if (data && !options.steps) {
    const double samples = options.epochs * static_cast<double>(data->size());
    options.rate.steps = static_cast<int64_t>(std::ceil(samples / static_cast<double>(options.batch)));
  }
  check_training(options.rate.steps || options.rate.schedule == RateSchedule::constant,
          "a learning rate that falls has to know over how many steps");
  return options;
}

TrainerOptions checked_pipeline(TrainerOptions options, const Mesh& mesh, const std::optional<Dataset>& data) {
  const Pipeline pipeline(options.training.pipeline, mesh);
  check_training(options.flush_every >= 0, "the number of steps of a window is negative");
  if (!pipeline.is_consistent() && options.clip > 0)
    throw Error(Code::invalid_argument,
                cat("training: the schedule ", quote(options.training.pipeline.schedule),
                    " updates stages at different times, so that no step has a norm to clip at (clip is ", options.clip, ")"),
                "set clip to 0, or choose 2bw, which clips exactly");
  if (data && options.training.pipeline.lists())
    check_lists(options, pipeline, mesh.blocks(mesh.parts("data")), *data);
  return options;
}

TrainerOptions with_directory(TrainerOptions options) {
  if (options.directory.empty() || options.lock) return options;
  options.lock = std::make_shared<const RunLock>(options.directory);
  if (!options.resume && !list_checkpoints(checkpoints_of(options.directory)).empty())
    throw Error(Code::invalid_argument, cat(quote(options.directory, 4096), " holds a run already"),
                "continue it (option resume), or give a new run another directory");
  return options;
}

}  // namespace plait
