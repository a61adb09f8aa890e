#include "core/comm/message_channel.h"

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "core/base/error.h"
#include "core/base/own_folder.h"
#include "core/base/text.h"
#include "core/base/threads.h"

namespace plait {

const plait_mpi_table& load_mpi(const std::string& plugin) {
  const std::string path = plugin.empty() ? own_folder() + "plait_mpi.so" : plugin;
  // The library stays loaded: MPI's threads and exit handlers may still run in it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* why = dlerror();
    throw Error(
        Code::not_found, cat("the MPI plug-in cannot be loaded: ", why ? why : path),
        "build the target plait_mpi (Debian: with libopenmpi-dev, openmpi-bin), or use ranks that are threads");
  }
  auto entry = reinterpret_cast<plait_mpi_entry*>(dlsym(library, PLAIT_MPI_ENTRY));
  const plait_mpi_table* mpi = entry ? entry() : nullptr;
  if (mpi && mpi->version >= PLAIT_MPI_VERSION) return *mpi;
  throw Error(Code::unsupported,
              cat(path, " is no MPI plug-in of version ", PLAIT_MPI_VERSION, mpi ? cat(" but ", mpi->version) : ""),
              "use the plug-in that was built with this library");
}

namespace {

/// What MPI's start fills in; it outlives us where we gave up waiting.
struct Start {
  plait_mpi_world* world = nullptr;
  int32_t rank = 0, size = 0, highest_tag = 0, started = 0;
  std::promise<int> outcome;

  void run(const plait_mpi_table& mpi) { outcome.set_value(mpi.open(&world, &rank, &size, &highest_tag, &started)); }
};

}  // namespace

/// MPI's start is a call that waits for all processes, without an end: it is made on a thread of its own, which is left
/// behind where one does not come.
MessageChannel::MessageChannel(const std::string& plugin, double deadline_s) {
  mpi_ = &load_mpi(plugin);
  auto start = std::make_shared<Start>();
  auto outcome = start->outcome.get_future();
  if (mpi_->running()) start->run(*mpi_);
  else start_thread("the thread that starts MPI", [start, mpi = mpi_] { start->run(*mpi); }).detach();
  if (outcome.wait_for(std::chrono::duration<double>(deadline_s)) != std::future_status::ready)
    throw Error(Code::closed,
                cat("MPI has not started within ", deadline_s, " s: another process has ended, is stopped, ",
                    "or opens no world"),
                "start all processes with one mpirun; option rank_timeout_ms sets how long to wait");
  check(outcome.get());
  world_ = start->world;
  rank_ = start->rank;
  size_ = start->size;
  highest_tag_ = start->highest_tag;
  started_ = start->started;
}

MessageChannel::~MessageChannel() {
  try {
    in_order_ = in_order_ && unsent_bytes() == 0;
    // After a failure MPI may still access pending buffers: they are leaked.
    if (!outgoing_.empty()) new std::list<Outgoing>(std::move(outgoing_));
  } catch (...) {
    in_order_ = false;
  }
  mpi_->close(world_, in_order_);
}

void MessageChannel::check(int code) const {
  if (code == 0) return;
  char text[256];
  mpi_->error_text(code, text, sizeof text);
  throw Error(Code::io, cat("MPI: ", text));
}

int MessageChannel::tag(int64_t group, Kind kind) const {
  const int64_t tag = 2 * group + (kind == Kind::mail);
  if (tag > highest_tag_)
    throw Error(Code::unsupported,
                cat("MPI has tags up to ", highest_tag_, ", which are used up by ", group, " groups"),
                "split once and keep the groups");
  return static_cast<int>(tag);
}

void MessageChannel::send(int to, int tag, Bytes bytes) {
  std::lock_guard lock(mutex_);
  go_on_sending();
  outgoing_.push_back({std::move(bytes), nullptr});
  Outgoing& one = outgoing_.back();
  const int code =
      mpi_->send(world_, one.bytes.data(), static_cast<int64_t>(one.bytes.size()), to, tag, &one.request);
  if (code) outgoing_.pop_back();
  check(code);
}

void MessageChannel::go_on_sending() {
  for (auto one = outgoing_.begin(); one != outgoing_.end();) {
    int32_t done = 0;
    const int code = mpi_->test(world_, one->request, &done);
    one = done ? outgoing_.erase(one) : std::next(one);
    check(code);
  }
}

int64_t MessageChannel::unsent_bytes() {
  std::lock_guard lock(mutex_);
  go_on_sending();
  int64_t bytes = 0;
  for (const auto& one : outgoing_) bytes += static_cast<int64_t>(one.bytes.size());
  return bytes;
}

bool MessageChannel::receive(int from, int tag, Incoming& incoming) {
  if (incoming.complete) return true;
  std::lock_guard lock(mutex_);
  go_on_sending();
  if (!incoming.request) {
    int32_t found = 0, sender = 0;
    int64_t bytes = 0;
    check(mpi_->probe(world_, from, tag, &found, &sender, &bytes));
    if (!found) return false;
    incoming.bytes.resize(bytes);
    check(mpi_->receive(world_, incoming.bytes.data(), bytes, sender, tag, &incoming.request));
  }
  int32_t done = 0;
  const int code = mpi_->test(world_, incoming.request, &done);
  if (done) incoming.request = nullptr;
  check(code);
  return incoming.complete = done;
}

void MessageChannel::abandon(Incoming&& incoming) {
  std::lock_guard lock(mutex_);
  if (incoming.request) outgoing_.push_back({std::move(incoming.bytes), incoming.request});
}

}  // namespace plait
