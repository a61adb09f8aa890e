// One iteration of the scheduler: retire, admit, build the step, run it, and sample from the logits.
//
// Prefill and decode are the same here: of a sample's tokens (prompt and output) the first are cached in its sequence
// and the rest is fed. When all are fed, the last row of logits gives the next token. So a preempted sample, whose
// sequence was dropped, only has more to feed.
#include "serving/core.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "core/base/text.h"
#include "core/comm/report.h"
#include "serving/token_output.h"

namespace plait {

using Phase = Sample::Phase;

SchedulerCore::SchedulerCore(std::unique_ptr<Engine> engine, TokenizerFuture tokenizer, SchedulerOptions options)
    : engine_(std::move(engine)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      has_ranks_(engine_->mesh().ranks() > 1),
      queue_(options, engine_->context()),
      builder_(*engine_),
      goal_(std::chrono::duration<double>(options.step_goal).count()),
      text_coming_(tokenizer_.valid()) {}

// ---- from other threads ----

void SchedulerCore::start() {
  stats_.engine = engine_->stats();  // also before the first iteration
  thread_.start(*this);
}

void SchedulerCore::stop() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    cancel_unwanted_step();
  }
  thread_.stop();
}

void SchedulerCore::wake() {
  {
    std::lock_guard lock(mutex_);
    cancel_unwanted_step();
  }
  thread_.wake();
}

void SchedulerCore::enqueue(Job job) {
  {
    std::lock_guard lock(mutex_);
    if (closing_) throw Error(Code::closed, "the generator is closed");
    job->arrival = ++arrivals_;
    queue_.add(std::move(job));
  }
  wake();
}

SchedulerStats SchedulerCore::stats() const {
  std::lock_guard lock(mutex_);
  SchedulerStats out = stats_;
  out.waiting = static_cast<int64_t>(queue_.jobs().size());
  out.waiting_tokens = queue_.tokens();
  out.expected_wait_s = queue_.expected_wait(0);
  return out;
}

std::shared_ptr<Conversation> SchedulerCore::conversation(std::unique_ptr<Sequence> sequence,
                                                          std::vector<int32_t> tail,
                                                          std::vector<std::shared_ptr<const GivenRows>> given,
                                                          std::shared_ptr<const EncoderInput> input) {
  std::shared_ptr<EngineThread> thread(shared_from_this(), &thread_);
  return std::make_shared<Conversation>(std::move(thread), std::move(sequence), std::move(tail), std::move(given),
                                        std::move(input));
}

/// With `mutex_` held: ends the current step if all its requests are cancelled.
void SchedulerCore::cancel_unwanted_step() {
  const bool unwanted = std::all_of(in_step_.begin(), in_step_.end(),
                                    [](const StepEntry& entry) { return entry.job->cancelled.load(); });
  if (!in_step_.empty() && (unwanted || closing_)) engine_->budget().cancel();
}

// ---- the engine's thread ----

/// Sets the current step; empty: none.
void SchedulerCore::watch(std::span<const StepEntry> entries) {
  std::lock_guard lock(mutex_);
  engine_->budget().begin();
  in_step_ = entries;
  cancel_unwanted_step();  // requests may have been cancelled while it was built
}

EngineThread::Clock::time_point SchedulerCore::next_due() {
  Clock::time_point due = EngineThread::never;
  if (failures_) return EngineThread::now;
  for (const Job& job : running_) {
    if (job->finished) return EngineThread::now;  // finished in the last step: its memory may admit another
    due = std::min(due, job->deadline);
    for (const Sample& sample : job->samples) {
      if (sample.phase == Phase::active || sample.phase == Phase::preempted) return EngineThread::now;
      // A future cannot notify: poll every 2 ms until the tokenizer has loaded.
      if (sample.phase == Phase::text) due = std::min(due, Clock::now() + std::chrono::milliseconds(2));
    }
  }
  std::lock_guard lock(mutex_);
  for (const Job& job : queue_.jobs()) {
    if (job->finished) return EngineThread::now;  // it could not be started: another may be
    due = std::min({due, job->deadline, job->queue_deadline});
  }
  // A rank that dies is found by those that wait for it: while there is no step, by statistics.
  if (has_ranks_ && stats_.engine.failed_rank < 0) due = std::min(due, Clock::now() + std::chrono::seconds(1));
  return due;
}

/// What fails outside of a step, and of what is done for one request, has changed nothing: it is tried again, and only then all end.
void SchedulerCore::iterate() noexcept {
  constexpr int most_failures = 3;
  try {
    look_for_tokenizer();
    retire_finished();
    take_pushed_tokens();
    admit();
    std::vector<StepEntry> entries = builder_.build(running_, group_size(), goal_);
    const bool idle = entries.empty();
    execute(std::move(entries));
    if (idle || is_full()) finish_step();
    publish_stats();
    failures_ = 0;
  } catch (...) {  // must not end the host's process
    if (++failures_ < most_failures) return;
    end_all(current_error());
    failures_ = 0;
  }
}

/// Those that run and those that wait.
void SchedulerCore::end_all(const Error& why) noexcept {
  for (const Job& job : running_) job->end(why);
  const auto next = [&] {
    std::lock_guard lock(mutex_);
    return queue_.take_one();
  };
  while (const Job job = next()) job->end(why);
}

void SchedulerCore::finish() noexcept {
  while (!in_flight_.empty()) try {
      finish_step();
    } catch (...) {  // its requests end below
    }
  end_all(closed_);
  running_.clear();
}

/// Ends requests that are cancelled or past their deadline, and releases those that finished in the last step.
void SchedulerCore::retire_finished() {
  const Clock::time_point now = Clock::now();
  const auto is_over = [&](const Job& job) {
    if (job->finished) return true;
    if (job->cancelled) {
      job->emit_cancelled();
      return true;
    }
    if (now < job->deadline) return false;
    job->fail(Error(Code::timeout, cat("the request's deadline of ",
                                       static_cast<int64_t>(job->options.deadline.count()), " ms is over")));
    return true;
  };
  // First all that may fail, then what moves jobs, so that none is lost between the two.
  std::vector<Job> over;
  const auto take = [&](const Job& job) noexcept {
    if (job->in_flight() || !job->finished || !job->is_announced()) return false;
    over.push_back(job);
    return true;
  };
  {
    std::lock_guard lock(mutex_);
    over.reserve(queue_.jobs().size() + running_.size());
    for (const Job& job : queue_.jobs()) {
      if (now >= job->queue_deadline && !job->finished && !job->cancelled && now < job->deadline)
        job->fail(Error(Code::overloaded,
                        cat("the request did not start within ", job->options.queue_deadline.count(), " ms"),
                        "try again later, or raise the option queue_deadline_ms"));
      is_over(job);
    }
    queue_.erase_if(take);
  }
  const size_t never_ran = over.size();
  for (const Job& job : running_) {
    if (job->in_flight()) job->ending = job->ending || job->finished || job->cancelled || now >= job->deadline;
    else is_over(job);
  }
  std::erase_if(running_, take);
  // A job may own the last reference to a conversation, whose destructor locks: released without `mutex_`.
  for (const Job& job : over) job->release();
  finished_ += static_cast<int64_t>(over.size());
  for (size_t i = never_ran; i < over.size(); ++i) {
    int64_t tokens = 0, longest = 0;
    for (const Sample& sample : over[i]->samples) {
      const auto made = static_cast<int64_t>(sample.output.size());
      tokens += made;
      longest = std::max(longest, made);
    }
    histograms_.request_new_tokens.add(static_cast<double>(tokens));
    double since_first;
    {
      std::lock_guard own(over[i]->mutex);
      since_first = EngineThread::seconds_since(over[i]->submitted) - over[i]->usage.first_token_s;
    }
    std::lock_guard lock(mutex_);
    queue_.ended(over[i], longest, since_first);
  }
  if (!over.empty()) publish_stats();  // before the next step: what they held is free
}

/// Host sampling: takes the tokens that hosts pushed.
void SchedulerCore::take_pushed_tokens() {
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
      if (token < 0 || (engine_->vocabulary() && token >= engine_->vocabulary())) {
        job->end(Error(Code::invalid_argument, cat("the pushed token ", token, " is out of range")));
        break;
      }
      SampledToken chosen;
      chosen.id = token;
      try {
        accept(job, sample, std::move(chosen));
      } catch (...) {  // the grammar does not allow it
        job->end(current_error());
        break;
      }
    }
  }
}

/// With pipeline stages running samples are divided into as many groups, whose steps are in flight at once.
int64_t SchedulerCore::group_size() const {
  const int64_t groups = engine_->steps_in_flight();
  int64_t samples = 0;
  for (const Job& job : running_)
    for (const Sample& sample : job->samples)
      samples += sample.phase == Phase::active || sample.phase == Phase::preempted;
  return std::max<int64_t>(1, (samples + groups - 1) / groups);
}

bool SchedulerCore::is_full() const { return static_cast<int64_t>(in_flight_.size()) >= engine_->steps_in_flight(); }

void SchedulerCore::execute(std::vector<StepEntry> entries) {
  std::vector<StepEntry> embeds;
  const auto first = std::stable_partition(entries.begin(), entries.end(), [](const StepEntry& entry) {
    return entry.job->options.kind != RequestOptions::Kind::embed;
  });
  std::move(first, entries.end(), std::back_inserter(embeds));
  entries.erase(first, entries.end());
  if (!entries.empty()) begin_step(std::move(entries));
  if (!embeds.empty()) begin_step(std::move(embeds));
}

void SchedulerCore::begin_step(std::vector<StepEntry> entries) {
  if (is_full()) finish_step();
  StepInFlight step;
  step.entries = std::move(entries);
  step.start = Clock::now();
  step.decodes = std::count_if(step.entries.begin(), step.entries.end(),
                               [](const StepEntry& entry) { return entry.tokens.size() == 1; });
  step.prompt_tokens = -step.decodes;
  for (const StepEntry& entry : step.entries) step.prompt_tokens += static_cast<int64_t>(entry.tokens.size());
  const auto run = [&] {
    for (const StepEntry& entry : step.entries)
      step.feeds.push_back({.sequence = entry.sample->sequence.get(),
                            .tokens = entry.tokens,
                            .rows = entry.rows,
                            .given = entry.job->given});
    step.choices = leave_choices(step.entries, step.feeds);
    in_flight_.emplace_back();  // its place: the engine keeps what has begun, and so must this
    try {
      watch(step.entries);
      const std::shared_ptr<void> at_end(nullptr, [this](void*) { watch({}); });
      engine_->begin(step.feeds, step.entries[0].job->options.kind == RequestOptions::Kind::embed);
    } catch (...) {
      in_flight_.pop_back();
      throw;
    }
  };
  try {
    run();
  } catch (...) {
    return after_failure(std::move(step.entries), current_error());
  }
  for (StepEntry& entry : step.entries) entry.sample->in_flight = true;
  in_flight_.back() = std::move(step);
}

/// Ends the oldest step in flight, if there is one.
void SchedulerCore::finish_step() {
  if (in_flight_.empty()) return;
  StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  for (StepEntry& entry : step.entries) entry.sample->in_flight = false;
  try {
    engine_->finish();
  } catch (...) {
    return after_failure(std::move(step.entries), current_error());
  }
  try {
    take_step(step);
  } catch (...) {  // the sequences have the tokens, and what follows them was not chosen
    const Error why = current_error();
    for (StepEntry& entry : step.entries) entry.job->end(why);
  }
  for (StepEntry& entry : step.entries)
    if (entry.job->finished) entry.sample->sequence.reset();
}

/// What has become of a step that is done.
void SchedulerCore::take_step(StepInFlight& step) {
  const double seconds = EngineThread::seconds_since(step.start);
  ++steps_;
  step_s_ += seconds;
  histograms_.add_step(step.feeds, seconds);
  goal_.measured(step.decodes, step.prompt_tokens, seconds);
  std::vector<Draw> draws;
  for (size_t i = 0; i < step.entries.size(); ++i) {
    StepEntry& entry = step.entries[i];
    if (entry.sample->output.empty()) {
      std::lock_guard lock(entry.job->mutex);
      entry.job->usage.prefill_s += seconds;
    }
    try {
      take_results(entry, step.feeds[i], draws);
    } catch (...) {
      entry.job->end(current_error());
    }
  }
  accept_draws(draws);
}

void SchedulerCore::accept_draws(std::vector<Draw>& draws) {
  if (draws.empty()) return;
  const Clock::time_point start = Clock::now();
  make_draws(draws, engine_->threads());
  sampling_s_ += EngineThread::seconds_since(start);
  for (Draw& draw : draws) {
    if (draw.job->finished) continue;
    try {
      if (draw.error) throw Error(*draw.error);
      accept(draw.job, *draw.sample, std::move(draw.token));
    } catch (...) {
      draw.job->end(current_error());
    }
  }
}

/// A failed step changes nothing: its entries are rerun one by one, so that only the faulty one ends.
void SchedulerCore::after_failure(std::vector<StepEntry> entries, const Error& error) {
  if (error.code() == Code::cancelled) return;  // all of them: `retire_finished` ends them
  if (entries.size() == 1) return entries[0].job->end(error);
  while (!in_flight_.empty()) finish_step();
  for (StepEntry& entry : entries) {
    if (entry.job->finished) continue;
    begin_step({std::move(entry)});
    finish_step();
  }
}

/// Leaves to the step what it can choose. Tokens with log-probabilities, of several samples, of a grammar, or chosen by the host
/// need the logits.
std::vector<TokenChoice> SchedulerCore::leave_choices(std::span<const StepEntry> entries,
                                                      std::span<Feed> feeds) const {
  std::vector<TokenChoice> out(entries.size());
  int64_t edits = 0;
  for (size_t i = 0; i < entries.size() && engine_->chooses(edits); ++i) {
    const StepEntry& entry = entries[i];
    const RequestOptions& options = entry.job->options;
    const bool splits = entry.sample->output.empty() && options.samples > 1;
    if (options.kind != RequestOptions::Kind::generate || !entry.ends_prefill || entry.rows != 1 || splits ||
        options.grammar || options.host_sampling || options.sampling.top_logprobs >= 0)
      continue;
    const std::vector<int32_t>& output = entry.sample->output;
    out[i].settings = choice_settings(options.sampling, output.size(), entry.job->index_of(*entry.sample));
    out[i].edits = logit_edits(options.sampling, entry.job->prompt, output, banned_tokens(options, *entry.sample));
    edits += static_cast<int64_t>(out[i].edits.size());
    if (engine_->chooses(edits)) feeds[i].choice = &out[i];
  }
  return out;
}

void SchedulerCore::take_results(StepEntry& entry, Feed& feed, std::vector<Draw>& draws) {
  const Job& job = entry.job;
  if (job->finished) return;
  if (job->options.kind != RequestOptions::Kind::generate) return take_matrix(entry, feed);
  if (job->scores_prompt()) score_prompt(entry, feed);
  if (!entry.ends_prefill) return;
  const bool first = entry.sample->output.empty() && job->index_of(*entry.sample) == 0;
  const bool splits = first && job->options.samples > 1 && !job->admitted;
  job->admitted = true;
  if (splits) return split_samples(job, feed, draws);
  choose(job, *entry.sample, feed, false, draws);
}

/// After the prompt the other samples fork its sequence; each samples from the same logits.
void SchedulerCore::split_samples(const Job& job, Feed& feed, std::vector<Draw>& draws) {
  for (size_t k = 1; k < job->samples.size(); ++k) {
    Sample& sample = job->samples[k];
    sample.sequence = engine_->fork(*job->samples[0].sequence);
    sample.phase = Phase::active;
    sample.order = ++admissions_;
  }
  for (Sample& sample : job->samples) {
    choose(job, sample, feed, true, draws);
    if (job->finished) return;
  }
}

/// The token that the step chose; or adds the draw of one from the feed's logits, which are `shared` if several samples have them.
void SchedulerCore::choose(const Job& job, Sample& sample, Feed& feed, bool shared, std::vector<Draw>& draws) {
  const RequestOptions& options = job->options;
  {
    std::lock_guard lock(job->mutex);
    if (job->usage.first_token_s == 0) job->usage.first_token_s = EngineThread::seconds_since(job->submitted);
  }
  const NextTokens* next = sample.mask ? &masks_.take(sample.mask) : nullptr;
  if (next && next->ended) return end_sample(job, sample, FinishReason::stop, {});
  const bool logits_asked = options.host_sampling || options.sampling.top_logprobs >= 0;
  if (next && !next->forced.empty() && options.forced_tokens && !logits_asked)
    return accept_forced(job, sample, {next->forced.begin(), next->forced.end()});
  Draw draw{job, &sample, feed.logits, shared, {}, {}, {}, {}};
  if (next) {
    draw.mask = TokenMask{next->mask, options.stop_tokens, next->may_end};
    if (!next->forced.empty()) {
      const auto id = static_cast<size_t>(next->forced[0]);
      draw.only.assign(id / 32 + 1, 0);
      draw.only[id / 32] = uint32_t{1} << id % 32;
      draw.mask = TokenMask{draw.only, {}, next->may_end};
    }
  }
  if (options.host_sampling) {
    Event event;
    event.sample = static_cast<int32_t>(job->index_of(sample));
    event.logits.assign(feed.logits.begin(), feed.logits.end());
    if (draw.mask) apply_mask(event.logits, *draw.mask);
    sample.phase = Phase::host;
    {
      std::lock_guard lock(job->mutex);
      ++job->asking;
    }
    return job->emit(std::move(event));
  }
  if (static_cast<int64_t>(sample.output.size()) >= options.max_tokens)
    return end_sample(job, sample, FinishReason::length, {});
  if (!feed.choice) return draws.push_back(std::move(draw));
  SampledToken token;
  token.id = checked_choice(feed.chosen);
  accept(job, sample, std::move(token));
}

/// Whether the sample continues. `more`: another token follows at once, so its mask need not be computed.
bool SchedulerCore::accept(const Job& job, Sample& sample, SampledToken token, bool more) {
  const bool complete =
      sample.mask && !ends_text(job->options, sample, token.id) && sample.mask->constraint.commit(token.id);
  Event event = accept_token(*job, sample, std::move(token), engine_->context(), complete);
  if (event.finish != FinishReason::none) {
    end_sample(job, sample, event.finish, std::move(event));
    return false;
  }
  if (sample.mask && !more) masks_.order(sample.mask);
  event.sample = static_cast<int32_t>(job->index_of(sample));
  job->emit(std::move(event));
  return true;
}

/// What only the grammar determines is the output, whatever the logits; it is fed in the next step.
void SchedulerCore::accept_forced(const Job& job, Sample& sample, std::span<const int32_t> forced) {
  const std::vector<int32_t> ids(forced.begin(), forced.end());  // views end with the first token
  for (size_t i = 0; i < ids.size(); ++i) {
    SampledToken token;
    token.id = ids[i];
    if (!accept(job, sample, std::move(token), i + 1 < ids.size()) || job->finished) return;
  }
}

void SchedulerCore::end_sample(const Job& job, Sample& sample, FinishReason reason, Event event) {
  event.sample = static_cast<int32_t>(job->index_of(sample));
  if (event.sample == 0 && job->options.keep && sample.sequence) {
    // A token chosen but not fed: the last one of the output, or of the prompt if there is no output.
    std::vector<int32_t> tail;
    for (int64_t i = sample.sequence->length(); i < job->length(sample); ++i) tail.push_back(job->token(sample, i));
    auto kept = conversation(std::move(sample.sequence), std::move(tail), job->given, job->input);
    std::lock_guard lock(job->mutex);
    job->conversation = std::move(kept);
  }
  sample.sequence.reset();
  sample.mask.reset();
  const bool has_text = job->options.kind == RequestOptions::Kind::generate && !sample.output.empty();
  if (text_coming_ && has_text) {
    sample.ending = reason;
    sample.phase = Phase::text;
    event.finish = FinishReason::none;
    if (event.has_token) job->emit(std::move(event));
    return;
  }
  sample.phase = Phase::done;
  event.finish = reason;
  job->emit(std::move(event));
}

void SchedulerCore::publish_stats() {
  const EngineStats engine = engine_->stats();
  std::lock_guard lock(mutex_);
  stats_.running = 0;
  for (const Job& job : running_)
    for (const Sample& sample : job->samples) stats_.running += !sample.ended();
  stats_.finished = finished_;
  stats_.preempted = builder_.preempted();
  stats_.steps = steps_;
  stats_.step_s = step_s_;
  stats_.sampling_s = sampling_s_;
  stats_.histograms = histograms_;
  stats_.engine = engine;
  stats_.masks = masks_.stats();
}

}  // namespace plait
