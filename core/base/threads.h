#pragma once
// Threads whose start can fail: in containers with a limit of processes it does.
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error_kind.h"

namespace plait {

/// The error of a thread that the system did not start. `which`: "thread 2 of 4".
Error no_thread(const std::string& which, const std::system_error& why);

/// Throws Error(out_of_memory) with `which` if the system does not start the thread.
template <class Body>
std::thread start_thread(const std::string& which, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& why) {
    throw no_thread(which, why);
  }
}

/// Appends threads that run body(first), body(first + 1) and so on before `count`. If one does not start, `stop` is called, which has to
/// end those that did, they are joined, and Error(out_of_memory) names it.
template <class Body, class Stop>
void start_threads(std::vector<std::thread>& threads, int64_t first, int64_t count, Body body, Stop stop) {
  try {
    threads.reserve(static_cast<size_t>(count));
    for (int64_t i = first; i < count; ++i)
      threads.push_back(start_thread("thread " + std::to_string(i + 1) + " of " + std::to_string(count), [body, i] { body(i); }));
  } catch (...) {
    stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    throw;
  }
}

}  // namespace plait
