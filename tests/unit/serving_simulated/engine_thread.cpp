// EngineThread without a thread: the test is the thread. In place of serving/engine_thread.cpp.
#include "serving/engine_thread.h"

#include "tests/unit/serving_simulated/simulated.h"

namespace plait {

EngineThread::~EngineThread() { stop(); }

void EngineThread::start(Work& work) { simulated_work = &work; }

void EngineThread::stop() {
  if (std::exchange(stopping_, true) || !simulated_work) return;
  std::exchange(simulated_work, nullptr)->finish();
  ended_ = true;
  Sequences().swap(released_);
}

void EngineThread::wake() { simulated_wake = true; }
void EngineThread::run(const std::function<void()>& task) { task(); }

void EngineThread::release_later(Sequences& sequences) noexcept { sequences.clear(); }

}  // namespace plait
