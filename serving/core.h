#pragma once
// The scheduler's inside: state, and the thread's loop. Internal to serving/.
#include "serving/request.h"

namespace plait {

/// Held by the scheduler, its requests and conversations: the engine lives until the last of them is gone.
struct SchedulerCore : std::enable_shared_from_this<SchedulerCore> {
  SchedulerCore(std::unique_ptr<Engine> engine, TokenizerFuture tokenizer, SchedulerOptions options, Log* log)
      : engine(std::move(engine)),
        tokenizer(std::move(tokenizer)),
        options(options),
        log(log),
        text_coming_(this->tokenizer.valid()) {}

  using Job = std::shared_ptr<Request::State>;

  void loop();
  void start() {
    figures.engine = engine->stats();  // before the first turn, too
    thread = std::thread([this] { loop(); });
  }
  void stop();
  void wake();
  /// Sequences go back to the engine on its own thread.
  void bury(std::unique_ptr<Sequence> sequence);
  /// Runs `task` on the engine's thread and waits; rethrows what it throws.
  void on_thread(const std::function<void()>& task);
  std::unique_ptr<Sequence> fork_of(const Conversation& conversation) const {
    return engine->fork(*conversation.sequence_);
  }
  /// On the engine's thread.
  void add_adapter(const std::string& name, const AdapterWeights& weights);
  /// With `mutex` held. Throws Error(not_found).
  std::shared_ptr<const Adapter> adapter_named(const std::string& name) const;
  const std::vector<int32_t>& tail_of(const Conversation& conversation) { return conversation.tail_; }
  const Sequence& sequence_of(const Conversation& conversation) { return *conversation.sequence_; }

  // Set once.
  std::unique_ptr<Engine> engine;  ///< the thread's alone
  const TokenizerFuture tokenizer;
  SchedulerOptions options;
  Log* log;
  std::thread thread;

  // Shared, under `mutex`.
  mutable std::mutex mutex;
  std::condition_variable work;
  bool stopping = false, poked = false;
  std::deque<Job> queue;
  std::map<std::string, std::shared_ptr<const Adapter>> adapters;  ///< that requests may name
  std::vector<std::unique_ptr<Sequence>> graves;
  struct Errand {
    const std::function<void()>* task;
    bool done = false;
    std::exception_ptr error;
  };
  std::deque<Errand*> errands;
  std::condition_variable errand_done;
  SchedulerStats figures;

 private:
  struct Slot {  ///< one sample's part of the step at hand
    Job job;
    Sample* sample;
    std::vector<int32_t> tokens;
    int64_t rows;
    bool ends_prefill;  ///< after it the sample has logits to choose from
  };

  bool wait_for_work();
  void turn();
  void run_errands();
  void admit();
  void look_for_tokenizer();
  void start_stream(const Request::State& job, Sample& sample);
  void catch_up(const Job& job, Sample& sample);
  bool start_sample(const Job& job, Sample& sample);
  void drop_dead();
  void collect_pushes();
  bool build();
  bool add_slot(const Job& job, Sample& sample, int64_t budget);
  bool make_room(Sample& sample, int64_t& tokens);
  bool preempt_youngest(const Sample& except);
  void execute();
  void watch(std::span<const Slot> slots);
  void drop_step();
  void run_apart(std::vector<Slot>& slots);
  void run_step(std::vector<Slot>& slots);
  void take_results(Slot& slot, Feed& feed);
  void take_matrix(Slot& slot, Feed& feed);
  void choose(const Job& job, Sample& sample, std::span<float> logits);
  void accept(const Job& job, Sample& sample, SampledToken token);
  void split_samples(const Job& job, std::span<const float> logits);
  void end_sample(const Job& job, Sample& sample, FinishReason reason, Event event);
  void end_job(const Job& job, const Error& why);
  void release(const Job& job);
  void publish_figures();
  static std::vector<int32_t> all_tokens(const Job& job, const Sample& sample) {
    std::vector<int32_t> all = job->prompt;
    all.insert(all.end(), sample.output.begin(), sample.output.end());
    return all;
  }
  uint32_t index_of(const Job& job, const Sample& sample) const {
    return static_cast<uint32_t>(&sample - job->samples.data());
  }

  std::vector<Job> running_;               ///< in order of admission
  std::shared_ptr<const Tokenizer> text_;  ///< null until it is there
  bool text_coming_;                       ///< the tokenizer is still loading
  std::vector<Slot> slots_;
  std::span<const Slot> in_step_;  ///< of the step under way; under `mutex`
  int64_t admissions_ = 0;
  int64_t finished_ = 0, preempted_ = 0, steps_ = 0;
};

struct Scheduler::Core : SchedulerCore {
  using SchedulerCore::SchedulerCore;
};

}  // namespace plait
