#pragma once
// The scheduler's state and its loop: admission, steps, and sampling from logits. Internal to serving/.
#include <deque>
#include <map>

#include "serving/admission.h"
#include "serving/draws.h"
#include "serving/engine_thread.h"
#include "serving/scheduler_options.h"
#include "serving/step_builder.h"
#include "serving/step_goal.h"

namespace plait {

/// Owned jointly by the scheduler and its conversations: the engine outlives the last of them.
class SchedulerCore final : public EngineThread::Work, public std::enable_shared_from_this<SchedulerCore> {
 public:
  SchedulerCore(std::unique_ptr<Engine> engine, TokenizerFuture tokenizer, SchedulerOptions options);

  // From any thread.
  void start();
  void stop();
  void wake();
  /// Throws Error: closed, overloaded.
  void enqueue(Job job);
  SchedulerStats stats() const;
  /// Throws Error(not_found).
  std::shared_ptr<const Adapter> adapter(const std::string& name) const;
  void remove_adapter(const std::string& name);
  std::vector<std::string> adapters() const;
  EngineThread& thread() { return thread_; }
  /// For other threads only its constants: vocabulary, context, options, decoder.
  Engine& engine() const { return *engine_; }
  const TokenizerFuture& tokenizer() const { return tokenizer_; }
  /// The conversation keeps the core alive.
  std::shared_ptr<Conversation> conversation(std::unique_ptr<Sequence> sequence, std::vector<int32_t> tail,
                                             std::vector<std::shared_ptr<const GivenRows>> given,
                                             std::shared_ptr<const EncoderInput> input);
  /// Rows that stand for tokens, with ids. Throws Error(overloaded).
  std::shared_ptr<const GivenRows> number(Tensor rows, std::vector<GivenPlace> places) {
    return numbers_->number(std::move(rows), std::move(places));
  }

  // On the engine's thread.
  void add_adapter(const std::string& name, const AdapterWeights& weights);

 private:
  using Clock = EngineThread::Clock;

  Clock::time_point next_due() override;
  void iterate() noexcept override;
  void finish() noexcept override;

  void look_for_tokenizer();
  void catch_up(const Job& job);
  void retire_finished();
  void take_pushed_tokens();
  void admit();
  bool start(const Job& job);
  /// A step that has begun.
  struct StepInFlight {
    std::vector<StepEntry> entries;
    std::vector<Feed> feeds;
    std::vector<TokenChoice> choices;
    Clock::time_point start;
    int64_t decodes, prompt_tokens;
  };
  int64_t group_size() const;
  bool is_full() const;
  void execute(std::vector<StepEntry> entries);
  void watch(std::span<const StepEntry> entries);
  void cancel_unwanted_step();
  void begin_step(std::vector<StepEntry> entries);
  void finish_step();
  void after_failure(std::vector<StepEntry> entries, const Error& error);
  void take_step(StepInFlight& step);
  void end_all(const Error& why) noexcept;
  void take_results(StepEntry& entry, Feed& feed, std::vector<Draw>& draws);
  void take_matrix(StepEntry& entry, Feed& feed);
  void score_prompt(const StepEntry& entry, Feed& feed);
  std::vector<TokenChoice> leave_choices(std::span<const StepEntry> entries, std::span<Feed> feeds) const;
  void choose(const Job& job, Sample& sample, Feed& feed, bool shared, std::vector<Draw>& draws);
  void accept_draws(std::vector<Draw>& draws);
  bool accept(const Job& job, Sample& sample, SampledToken token, bool more = false);
  void accept_forced(const Job& job, Sample& sample, std::span<const int32_t> forced);
  void start_masks(const Job& job);
  void split_samples(const Job& job, Feed& feed, std::vector<Draw>& draws);
  void end_sample(const Job& job, Sample& sample, FinishReason reason, Event event);
  void publish_stats();

  const std::unique_ptr<Engine> engine_;
  const TokenizerFuture tokenizer_;
  const SchedulerOptions options_;
  const bool has_ranks_;  ///< several
  const Error closed_{Code::closed, "the generator was closed"};  ///< made while there is memory

  const std::shared_ptr<GivenNumbers> numbers_ = std::make_shared<GivenNumbers>();

  mutable std::mutex mutex_;  ///< guards the members below
  bool closing_ = false;
  Admission queue_;
  int64_t arrivals_ = 0;
  std::map<std::string, std::shared_ptr<const Adapter>> adapters_;  ///< by name, for new requests
  std::span<const StepEntry> in_step_;                              ///< the step that this rank computes
  SchedulerStats stats_;

  // The engine's thread only.
  StepBuilder builder_;
  StepGoal goal_;
  MaskThread masks_;
  std::vector<Job> running_;               ///< in order of admission
  std::deque<StepInFlight> in_flight_;     ///< the oldest first; more than one only with pipeline stages
  std::shared_ptr<const Tokenizer> text_;  ///< null until loaded
  bool text_coming_;                       ///< the tokenizer is still loading
  int64_t admissions_ = 0, finished_ = 0, steps_ = 0;
  int failures_ = 0;  ///< iterations that failed, one after the other
  double step_s_ = 0, sampling_s_ = 0;
  SchedulerHistograms histograms_;

  EngineThread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
