// The scheduler's thread. One turn of its loop: who is dead, who is admitted, what the step is made of, the step, and
// what each sample makes of its logits.
//
// Prefill and decode are the same thing here: a sample has tokens (its prompt and what it has put out), a sequence
// holds the first of them in the cache, and what is missing is fed. When nothing is missing the last row of logits
// gives the next token. So a preempted sample, whose sequence was dropped, just has more to feed again.
#include "serving/core.h"

#include <algorithm>

#include "core/base/text.h"

namespace plait {

using Phase = Sample::Phase;
using Clock = std::chrono::steady_clock;

static double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Nothing more is computed for it.
static bool ended(const Sample& sample) { return sample.phase == Phase::text || sample.phase == Phase::done; }

// ---- from other threads ----

void SchedulerCore::wake() {
  std::lock_guard lock(mutex);
  poked = true;
  drop_step();
  work.notify_all();
}

/// With `mutex` held: ends the step under way if nobody wants any more what it makes.
void SchedulerCore::drop_step() {
  bool unwanted =
      std::all_of(in_step_.begin(), in_step_.end(), [](const Slot& slot) { return slot.job->cancelled.load(); });
  if (!in_step_.empty() && (unwanted || stopping)) engine->room().cancel();
}

/// From here on it is the step of these that is under way; of none: there is no step.
void SchedulerCore::watch(std::span<const Slot> slots) {
  std::lock_guard lock(mutex);
  engine->room().begin();
  in_step_ = slots;
  drop_step();  // they may have been cancelled while it was built
}

void SchedulerCore::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
    drop_step();
  }
  work.notify_all();
  if (thread.joinable()) thread.join();
}

void SchedulerCore::bury(std::unique_ptr<Sequence> sequence) {
  if (!sequence) return;
  std::lock_guard lock(mutex);
  if (stopping && !thread.joinable()) return;  // the thread is gone: `sequence` dies here
  graves.push_back(std::move(sequence));
  poked = true;
  work.notify_all();
}

void SchedulerCore::on_thread(const std::function<void()>& task) {
  Errand errand{&task};
  std::unique_lock lock(mutex);
  if (stopping) throw Error(Code::closed, "the generator is closed");
  errands.push_back(&errand);
  work.notify_all();
  errand_done.wait(lock, [&] { return errand.done; });
  if (errand.error) std::rethrow_exception(errand.error);
}

// ---- the loop ----

void SchedulerCore::loop() {
  while (wait_for_work()) {
    run_errands();
    try {
      turn();
    } catch (const std::exception& error) {  // nothing that a turn throws may end the host's process
      bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
      Error why(memory ? Code::out_of_memory : Code::internal, cat("the step failed: ", error.what()));
      for (const Job& job : running_) end_job(job, why);
    }
  }
  Error closed(Code::closed, "the generator was closed");
  std::deque<Job> left;
  {
    std::lock_guard lock(mutex);
    left.swap(queue);
  }
  for (const Job& job : running_) left.push_back(job);
  for (const Job& job : left) job->fail(closed), release(job);
  running_.clear();
  run_errands();
}

void SchedulerCore::turn() {
  look_for_tokenizer();
  drop_dead();
  collect_pushes();
  admit();
  if (build()) execute();
  publish_figures();
}

/// Sleeps until there is something to do; false when the scheduler stops.
bool SchedulerCore::wait_for_work() {
  bool runnable = false;
  auto earliest = Clock::time_point::max();
  for (const Job& job : running_) {
    runnable = runnable || job->finished;  // in the last step: what it leaves may let another in
    if (job->has_deadline) earliest = std::min(earliest, job->deadline);
    for (const Sample& sample : job->samples) {
      runnable = runnable || sample.phase == Phase::active || sample.phase == Phase::preempted;
      // A future wakes nobody. It is asked as often as nobody notices, and only until the tokenizer has loaded.
      if (sample.phase == Phase::text) earliest = std::min(earliest, Clock::now() + std::chrono::milliseconds(2));
    }
  }
  std::unique_lock lock(mutex);
  for (const Job& job : queue)
    if (job->has_deadline) earliest = std::min(earliest, job->deadline);
  auto awake = [&] { return stopping || poked || !errands.empty() || runnable; };
  if (earliest == Clock::time_point::max()) work.wait(lock, awake);
  else work.wait_until(lock, earliest, awake);
  poked = false;
  return !stopping;
}

void SchedulerCore::run_errands() {
  std::vector<std::unique_ptr<Sequence>> dead;
  std::unique_lock lock(mutex);
  dead.swap(graves);
  lock.unlock();
  dead.clear();  // the errands may want what they held
  lock.lock();
  while (!errands.empty()) {
    Errand* errand = errands.front();
    errands.pop_front();
    lock.unlock();
    try {
      if (stopping) throw Error(Code::closed, "the generator was closed");
      (*errand->task)();
    } catch (...) {
      errand->error = std::current_exception();
    }
    lock.lock();
    errand->done = true;
    errand_done.notify_all();
  }
  lock.unlock();
}

/// Cancelled requests, and those past their deadline, end here; so do those that finished in the last step.
void SchedulerCore::drop_dead() {
  auto over = [&](const Job& job) {
    if (job->finished) return true;
    if (job->cancelled) {
      for (size_t k = 0; k < static_cast<size_t>(job->options.samples); ++k) {
        bool done = k < job->samples.size() && job->samples[k].phase == Phase::done;
        Event event;
        event.sample = static_cast<int32_t>(k);
        event.finish = FinishReason::cancelled;
        if (!done) job->emit(std::move(event));
      }
      return true;
    }
    if (!job->has_deadline || Clock::now() < job->deadline) return false;
    job->fail(Error(Code::timeout, cat("the request's deadline of ",
                                       static_cast<int64_t>(job->options.deadline.count()), " ms is over")));
    return true;
  };
  // What dies here may be the last to hold a conversation, whose end takes the mutex (bury): never while it is locked.
  std::vector<Job> dead;
  auto take = [&](const Job& job) {
    if (!over(job)) return false;
    dead.push_back(job);
    return true;
  };
  {
    std::lock_guard lock(mutex);
    std::erase_if(queue, take);
  }
  std::erase_if(running_, take);
  for (const Job& job : dead) release(job);
  finished_ += static_cast<int64_t>(dead.size());
}

void SchedulerCore::release(const Job& job) {
  for (Sample& sample : job->samples) sample.sequence.reset();
  job->options.parent.reset();
  job->adapter.reset();
}

void SchedulerCore::end_job(const Job& job, const Error& why) {
  job->fail(why);
  release(job);
  for (Sample& sample : job->samples) sample.phase = Phase::done;
}

// ---- admission ----

/// The stream first sees the end of the prompt: whether a piece begins with a blank depends on what stands before it.
void SchedulerCore::start_stream(const Request::State& job, Sample& sample) {
  constexpr size_t enough = 16;
  sample.stream.emplace(text_->stream());
  for (size_t i = job.prompt.size() - std::min(enough, job.prompt.size()); i < job.prompt.size(); ++i)
    sample.stream->push(job.prompt[i]);
}

/// Once the tokenizer is there, those who started without it get their text.
void SchedulerCore::look_for_tokenizer() {
  if (!text_coming_ || tokenizer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  text_coming_ = false;
  try {
    text_ = tokenizer.get();
  } catch (const std::exception&) {
    // Who loads it says so in the log, and whoever asks for it gets the error; tokens come without.
  }
  for (const Job& job : running_) {
    if (job->finished || job->options.kind != RequestOptions::Kind::generate) continue;
    for (Sample& sample : job->samples) catch_up(job, sample);
  }
}

/// The text of the tokens that were handed out without; it goes out with the sample's next event.
void SchedulerCore::catch_up(const Job& job, Sample& sample) {
  if (sample.phase == Phase::done) return;
  bool ended = sample.phase == Phase::text;
  if (text_) {
    start_stream(*job, sample);
    size_t shown = sample.output.size() - (ended && sample.ending == FinishReason::eos);
    for (size_t i = 0; i < shown; ++i) sample.held_text += sample.stream->push(sample.output[i]);
    if (ended) sample.held_text += sample.stream->finish();
  }
  if (!ended) return;
  Event last;
  last.text = std::move(sample.held_text);
  end_sample(job, sample, sample.ending, std::move(last));
}

void SchedulerCore::admit() {
  for (;;) {
    int64_t samples = 0;
    for (const Job& job : running_) {
      bool computes = !std::all_of(job->samples.begin(), job->samples.end(), ended);
      if (computes) samples += job->options.samples;
    }
    Job job;
    {
      std::lock_guard lock(mutex);
      if (queue.empty()) return;
      job = queue.front();
    }
    if (samples > 0 && samples + job->options.samples > options.running) return;
    if (job->samples.empty()) job->samples.resize(static_cast<size_t>(job->options.samples));
    job->samples[0].order = ++admissions_;
    if (!start_sample(job, job->samples[0])) return;
    for (Sample& sample : job->samples)
      if (text_ && job->options.kind == RequestOptions::Kind::generate) start_stream(*job, sample);
    {
      std::lock_guard lock(job->mutex);
      job->usage.queued_s = seconds_since(job->submitted);
      job->usage.cached_tokens = job->samples[0].sequence->length();
    }
    running_.push_back(job);
    std::lock_guard lock(mutex);
    queue.pop_front();
  }
}

/// Gives a waiting sample its sequence, if there is room for its first chunk; alone it starts in any case.
bool SchedulerCore::start_sample(const Job& job, Sample& sample) {
  std::vector<int32_t> all = all_tokens(job, sample);
  // Scores and hidden states are wanted for every token, so none may come from the cache.
  bool whole = job->options.kind != RequestOptions::Kind::generate;
  const auto prompt = static_cast<int64_t>(job->prompt.size());
  sample.sequence.reset();
  if (job->options.parent && sample.output.empty()) sample.sequence = fork_of(*job->options.parent);
  if (!sample.sequence || sample.sequence->adapter() != job->adapter || !engine->continues(*sample.sequence, prompt))
    sample.sequence =
        engine->open(whole ? std::span<const int32_t>() : std::span<const int32_t>(all), prompt, job->adapter);
  int64_t chunk =
      std::min<int64_t>(static_cast<int64_t>(all.size()) - sample.sequence->length(), engine->options().step_tokens);
  bool alone = std::none_of(running_.begin(), running_.end(), [&](const Job& other) {
    return std::any_of(other->samples.begin(), other->samples.end(),
                       [&](const Sample& one) { return &one != &sample && one.sequence; });
  });
  if (!engine->reserve(*sample.sequence, std::max<int64_t>(chunk, 1)) && !alone) {
    sample.sequence.reset();
    return false;
  }
  if (whole) {  // rows that it gathered before it was preempted come again
    std::lock_guard lock(job->mutex);
    job->matrix.clear();
  }
  sample.phase = Phase::active;
  return true;
}

/// Tokens that hosts chose.
void SchedulerCore::collect_pushes() {
  for (const Job& job : running_) {
    if (!job->options.host_sampling) continue;
    for (Sample& sample : job->samples) {
      if (sample.phase != Phase::host) continue;
      int32_t token;
      {
        std::lock_guard lock(job->mutex);
        if (job->pushed.empty()) break;
        token = job->pushed.front();
        job->pushed.pop_front();
      }
      sample.phase = Phase::active;
      if (token < 0 || (engine->vocabulary() && token >= engine->vocabulary())) {
        end_job(job, Error(Code::invalid_argument, cat("the pushed token ", token, " is out of range")));
        break;
      }
      SampledToken chosen;
      chosen.id = token;
      accept(job, sample, std::move(chosen));
    }
  }
}

// ---- the step ----

/// What the next step is made of: first those that lack one token, so that running answers never wait for long prompts,
/// then prompts, oldest first, as far as the step's tokens go.
bool SchedulerCore::build() {
  slots_.clear();
  int64_t budget = engine->options().step_tokens;
  for (bool decode : {true, false})
    for (const Job& job : running_)
      for (Sample& sample : job->samples) {
        if (sample.phase == Phase::preempted && !decode) start_sample(job, sample);
        if (sample.phase != Phase::active || !sample.sequence) continue;
        auto missing = static_cast<int64_t>(job->prompt.size() + sample.output.size()) - sample.sequence->length();
        if ((missing == 1) != decode) continue;
        if (budget <= 0 || static_cast<int64_t>(slots_.size()) >= engine->options().step_sequences) return true;
        if (add_slot(job, sample, budget)) budget -= static_cast<int64_t>(slots_.back().tokens.size());
      }
  return !slots_.empty();
}

bool SchedulerCore::add_slot(const Job& job, Sample& sample, int64_t budget) {
  std::vector<int32_t> all = all_tokens(job, sample);
  int64_t have = sample.sequence->length(), missing = static_cast<int64_t>(all.size()) - have;
  int64_t rows_left = engine->options().step_rows;
  for (const Slot& slot : slots_) rows_left -= slot.rows;
  if (rows_left <= 0) return false;
  bool every_row = job->options.kind != RequestOptions::Kind::generate;
  int64_t tokens = std::min({missing, budget, every_row ? rows_left : missing});
  if (!make_room(sample, tokens)) {
    bool alone = std::count_if(running_.begin(), running_.end(),
                               [](const Job& other) {
                                 return std::any_of(other->samples.begin(), other->samples.end(),
                                                    [](const Sample& one) { return one.sequence != nullptr; });
                               }) <= 1 &&
                 std::count_if(job->samples.begin(), job->samples.end(),
                               [](const Sample& one) { return one.sequence != nullptr; }) <= 1;
    if (alone && slots_.empty())
      end_job(job, Error(Code::out_of_memory,
                         cat("the cache of ", human_bytes(engine->options().cache_bytes), " is full at ", have,
                             " tokens of this request"),
                         "raise cache_bytes, or release kept conversations"));
    return false;
  }
  bool ends = tokens == missing;
  slots_.push_back(
      {job, &sample, {all.begin() + have, all.begin() + have + tokens}, every_row ? tokens : ends, ends});
  return true;
}

/// Room for `tokens` more, by preempting younger samples, or else for fewer.
bool SchedulerCore::make_room(Sample& sample, int64_t& tokens) {
  while (!engine->reserve(*sample.sequence, tokens)) {
    if (preempt_youngest(sample)) continue;
    if (tokens == 1) return false;
    tokens = (tokens + 1) / 2;
  }
  return true;
}

/// Drops the cache of the youngest sample that is younger than `except`, whose room it shares, and not in this step.
bool SchedulerCore::preempt_youngest(const Sample& except) {
  Sample* youngest = nullptr;
  for (const Job& job : running_)
    for (Sample& sample : job->samples) {
      bool in_step =
          std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.sample == &sample; });
      bool younger = sample.order > except.order && (!youngest || sample.order > youngest->order);
      if (sample.sequence && sample.phase == Phase::active && !in_step && younger &&
          engine->shares_room(*sample.sequence, *except.sequence))
        youngest = &sample;
    }
  if (!youngest) return false;
  youngest->sequence.reset();
  youngest->phase = Phase::preempted;
  ++preempted_;
  return true;
}

void SchedulerCore::execute() {
  std::vector<Slot> logits, hidden;
  for (Slot& slot : slots_)
    (slot.job->options.kind == RequestOptions::Kind::embed ? hidden : logits).push_back(std::move(slot));
  slots_.clear();
  for (std::vector<Slot>* part : {&logits, &hidden})
    if (!part->empty()) run_apart(*part);
}

/// A step changes nothing when it fails: then each part alone shows whose fault it was, and the others go on.
void SchedulerCore::run_apart(std::vector<Slot>& slots) {
  try {
    run_step(slots);
  } catch (const Error& error) {
    if (error.code() == Code::cancelled) return;  // by all of them: `drop_dead` sees to it
    if (slots.size() == 1) return end_job(slots[0].job, error);
    for (Slot& slot : slots) {
      std::vector<Slot> one;
      one.push_back(std::move(slot));
      run_apart(one);
    }
  }
}

void SchedulerCore::run_step(std::vector<Slot>& slots) {
  std::vector<Feed> feeds;
  feeds.reserve(slots.size());
  for (Slot& slot : slots) feeds.push_back({slot.sample->sequence.get(), slot.tokens, slot.rows, {}, {}});
  auto start = Clock::now();
  watch(slots);
  const std::shared_ptr<void> until_it_ends(nullptr, [this](void*) { watch({}); });
  if (slots[0].job->options.kind == RequestOptions::Kind::embed) engine->step_hidden(feeds);
  else engine->step(feeds);
  double seconds = seconds_since(start);
  ++steps_;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].sample->output.empty()) {
      std::lock_guard lock(slots[i].job->mutex);
      slots[i].job->usage.prefill_s += seconds;
    }
    try {
      take_results(slots[i], feeds[i]);
    } catch (const Error& error) {
      end_job(slots[i].job, error);
    }
  }
}

void SchedulerCore::take_results(Slot& slot, Feed& feed) {
  if (slot.job->finished) return;
  if (slot.job->options.kind != RequestOptions::Kind::generate) return take_matrix(slot, feed);
  if (!slot.ends_prefill) return;
  bool first = slot.sample->output.empty() && index_of(slot.job, *slot.sample) == 0;
  if (first && slot.job->options.samples > 1 && !slot.job->admitted) split_samples(slot.job, feed.logits);
  slot.job->admitted = true;
  choose(slot.job, *slot.sample, feed.logits);
}

/// Scores and hidden states gather up; the last chunk ends the request.
void SchedulerCore::take_matrix(Slot& slot, Feed& feed) {
  bool embed = slot.job->options.kind == RequestOptions::Kind::embed;
  std::span<const float> rows = embed ? feed.hidden : std::span<const float>(feed.logits);
  {
    std::lock_guard lock(slot.job->mutex);
    slot.job->matrix.insert(slot.job->matrix.end(), rows.begin(), rows.end());
  }
  if (!slot.ends_prefill) return;
  Event event;
  end_sample(slot.job, *slot.sample, FinishReason::length, std::move(event));
}

/// The prompt is done: the other samples start from its pages, each with its own choice from the same logits.
void SchedulerCore::split_samples(const Job& job, std::span<const float> logits) {
  std::vector<float> row(logits.begin(), logits.end());
  for (size_t k = 1; k < job->samples.size(); ++k) {
    Sample& sample = job->samples[k];
    sample.sequence = engine->fork(*job->samples[0].sequence);
    sample.phase = Phase::active;
    sample.order = ++admissions_;
    std::vector<float> own = row;
    choose(job, sample, own);
    if (job->finished) return;
  }
}

void SchedulerCore::choose(const Job& job, Sample& sample, std::span<float> logits) {
  const RequestOptions& options = job->options;
  {
    std::lock_guard lock(job->mutex);
    if (job->usage.first_token_s == 0) job->usage.first_token_s = seconds_since(job->submitted);
  }
  if (options.host_sampling) {
    Event event;
    event.sample = static_cast<int32_t>(index_of(job, sample));
    event.logits.assign(logits.begin(), logits.end());
    sample.phase = Phase::host;
    {
      std::lock_guard lock(job->mutex);
      ++job->asking;
    }
    return job->emit(std::move(event));
  }
  if (static_cast<int64_t>(sample.output.size()) >= options.max_tokens)
    return end_sample(job, sample, FinishReason::length, {});
  bool too_short = static_cast<int64_t>(sample.output.size()) < options.min_tokens;
  accept(job, sample,
         plait::sample(logits, options.sampling, job->prompt, sample.output,
                       too_short ? std::span<const int32_t>(options.stop_tokens) : std::span<const int32_t>(),
                       index_of(job, sample)));
}

/// The longest end of `text` that begins one of the stop strings.
static size_t held_back(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t length = std::min(stop.size(), text.size()); length > longest; --length)
      if (text.compare(text.size() - length, length, stop, 0, length) == 0) longest = length;
  return longest;
}

void SchedulerCore::accept(const Job& job, Sample& sample, SampledToken token) {
  const RequestOptions& options = job->options;
  sample.output.push_back(token.id);
  auto count = static_cast<int64_t>(sample.output.size());
  const int64_t prefix = job->adapter ? job->adapter->prefix : 0;
  bool may_stop = count >= options.min_tokens;
  FinishReason reason = FinishReason::none;
  if (may_stop &&
      std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token.id) != options.stop_tokens.end())
    reason = FinishReason::eos;
  else if (count >= options.max_tokens ||
           (engine->context() && prefix + static_cast<int64_t>(job->prompt.size()) + count >= engine->context()))
    reason = FinishReason::length;
  Event event;
  if (sample.stream) {
    if (reason != FinishReason::eos) sample.held_text += sample.stream->push(token.id);
    if (reason != FinishReason::none) sample.held_text += sample.stream->finish();
    size_t cut = std::string::npos;
    for (const std::string& stop : options.stop_strings)
      if (may_stop && !stop.empty()) cut = std::min(cut, sample.held_text.find(stop));
    if (cut != std::string::npos) {
      reason = FinishReason::stop;
      event.text = sample.held_text.substr(0, cut);
    } else {
      size_t keep = reason == FinishReason::none ? held_back(sample.held_text, options.stop_strings) : 0;
      event.text = sample.held_text.substr(0, sample.held_text.size() - keep);
      sample.held_text.erase(0, event.text.size());
    }
  }
  event.has_token = true;
  event.token = std::move(token);
  if (reason != FinishReason::none) return end_sample(job, sample, reason, std::move(event));
  event.sample = static_cast<int32_t>(index_of(job, sample));
  job->emit(std::move(event));
}

void SchedulerCore::end_sample(const Job& job, Sample& sample, FinishReason reason, Event event) {
  event.sample = static_cast<int32_t>(index_of(job, sample));
  if (event.sample == 0 && job->options.keep && sample.sequence) {
    std::vector<int32_t> all = all_tokens(job, sample);
    std::vector<int32_t> tail(all.begin() + sample.sequence->length(), all.end());
    auto kept = std::make_shared<Conversation>(shared_from_this(), std::move(sample.sequence), std::move(tail));
    std::lock_guard lock(job->mutex);
    job->conversation = std::move(kept);
  }
  sample.sequence.reset();
  bool has_text = job->options.kind == RequestOptions::Kind::generate && !sample.output.empty();
  if (text_coming_ && has_text) {
    sample.ending = reason;
    sample.phase = Phase::text;
    if (event.has_token) job->emit(std::move(event));
    return;
  }
  sample.phase = Phase::done;
  event.finish = reason;
  job->emit(std::move(event));
}

void SchedulerCore::publish_figures() {
  EngineStats stats = engine->stats();
  std::lock_guard lock(mutex);
  figures.running = 0;
  for (const Job& job : running_)
    for (const Sample& sample : job->samples) figures.running += !ended(sample);
  figures.finished = finished_;
  figures.preempted = preempted_;
  figures.steps = steps_;
  figures.engine = stats;
}

}  // namespace plait
