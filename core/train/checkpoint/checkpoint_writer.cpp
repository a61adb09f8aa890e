#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/base/threads.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/checkpoint_manifest.h"
#include "core/base/file_writer.h"
#include "core/base/safetensors.h"

namespace plait {
namespace {

constexpr std::string_view draft_mark = ".tmp";  // suffix of a step's name: being written or removed

Error directory_error(std::string_view what, const std::string& path, const std::string& why) {
  return Error(Code::io, cat("cannot ", what, " ", quote(path, 4096), ": ", why),
               "check the path and its permissions");
}

/// Removes a checkpoint so that readers never see half of it.
void remove_checkpoint(const std::string& path) {
  const std::string draft = cat(path, draft_mark, "-old");
  remove_path(draft);
  rename_path(path, draft);
  remove_path(draft);
}

/// Renames the draft to `path` and removes a checkpoint of that name. The name always exists if the file system
/// supports exchange (all of Linux's own do).
void publish(const std::string& draft, const std::string& path) {
  if (!exists(path)) return rename_path(draft, path);
  if (renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return remove_path(draft);
  remove_checkpoint(path);
  rename_path(draft, path);
}

}  // namespace

struct CheckpointWriter::Job {
  CheckpointInfo info;
  std::map<std::string, ManifestArray> blocks;
  std::vector<NamedTensor> tensors;
  std::vector<Tensor> copies;  ///< owners of copied tensors
  bool best = false;
};

/// The writer thread.
class CheckpointWriter::Worker {
 public:
  explicit Worker(CheckpointOptions options)
      : options_(std::move(options)), thread_(start_thread("the thread that saves", [this] { loop(); })) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Waits for the current job; throws its error.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !job_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  void start(std::unique_ptr<Job> job) {
    std::lock_guard lock(mutex_);
    job_ = std::move(job);
    changed_.notify_all();
  }
  bool is_first() const { return options_.writer == 0; }

  /// Removes drafts of interrupted saves, except the step that other writers may already write.
  void remove_drafts(const std::string& but = {}) const {
    for (const std::string& name : names_in(options_.directory)) {
      const size_t mark = name.find(draft_mark);
      if (mark != std::string::npos && step_of(name.substr(0, mark)) >= 0 && name != but)
        remove_path(cat(options_.directory, "/", name));
    }
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || job_; });
      if (!job_) return;
      std::exception_ptr error;
      lock.unlock();
      try {
        run(*job_);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      job_.reset();
      changed_.notify_all();
    }
  }

  void run(Job& job) {
    const std::string path = options_.directory + "/" + step_name(job.info.step), draft = cat(path, draft_mark);
    make_directories(draft);
    write_shard(job, draft + "/" + shard_name(options_.writer, options_.writers));
    if (!is_first()) return;  // writer 0 may already have renamed the directory
    write_manifest(job, draft);
    sync_directory(draft);
    publish(draft, path);
    sync_directory(options_.directory);
    if (job.best) mark_best(job.info.step);
    remove_old(job.info.step);
  }

  /// The final name marks a shard as complete.
  void write_shard(Job& job, const std::string& path) const {
    for (const auto& [name, view] : job.tensors)
      job.blocks.at(name).pieces[0].checksum = crc32c({view.data, static_cast<size_t>(view.bytes())});
    write_safetensors(path + ".part", std::move(job.tensors), shard_metadata(job.info, job.blocks));
    rename_path(path + ".part", path);
  }

  void write_manifest(const Job& job, const std::string& draft) {
    Manifest manifest;
    manifest.info = job.info;
    for (int64_t writer = 0; writer < options_.writers; ++writer) {
      const std::string path = draft + "/" + shard_name(writer, options_.writers);
      await(path);
      try {
        add_shard(manifest, SafeTensors::open(path));
      } catch (const Error& error) {
        throw Error(error.code(), cat(quote(path, 4096), " ", error.message()), error.hint());
      }
    }
    manifest.check_cover();
    FileWriter file(cat(draft, "/", manifest_name));
    file.write(manifest.text());
    file.finish();
  }

  /// Waits for another writer's shard. Polls: shared file systems do not notify.
  void await(const std::string& path) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.timeout_s);
    std::unique_lock lock(mutex_);
    for (auto pause = std::chrono::milliseconds(1); !exists(path);
         pause = std::min(pause * 2, most_pause)) {
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(Code::timeout,
                    cat("shard ", quote(path, 4096), " did not come within ", options_.timeout_s, " s"),
                    "look what happened to the rank that should write it; all ranks have to see one directory");
      if (changed_.wait_for(lock, pause, [&] { return stopping_; }))
        throw Error(Code::closed, cat("the save was cancelled before ", quote(path, 4096), " came"));
    }
  }

  void mark_best(int64_t step) const {
    const std::string link = options_.directory + "/best", draft = cat(link, draft_mark);
    remove_path(draft);
    if (::symlink(step_name(step).c_str(), draft.c_str()) != 0) throw directory_error("make", draft, std::strerror(errno));
    rename_path(draft, link);
    sync_directory(options_.directory);
  }

  /// Does not remove later steps, of a run that was resumed from an earlier one.
  void remove_old(int64_t step) const {
    std::vector<std::string> all = list_checkpoints(options_.directory);
    const auto name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    while (!all.empty() && step_of(name(all.back())) > step) all.pop_back();
    const std::string best = link_target(options_.directory + "/best").value_or("");
    for (size_t i = 0; i + static_cast<size_t>(options_.keep) < all.size(); ++i)
      if (name(all[i]) != best) remove_checkpoint(all[i]);
  }

  static constexpr std::chrono::milliseconds most_pause{50};

  const CheckpointOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Job> job_;  ///< set by the caller, reset by the thread, which owns it in between
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

CheckpointWriter::CheckpointWriter(CheckpointOptions options) {
  if (options.keep < 1 || options.writer < 0 || options.writer >= options.writers)
    throw Error(Code::invalid_argument, cat("checkpoints cannot be saved by writer ", options.writer, " of ",
                                            options.writers, " with the newest ", options.keep, " kept"));
  make_directories(options.directory);
  worker_ = std::make_unique<Worker>(std::move(options));
  if (worker_->is_first()) worker_->remove_drafts();
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::save(const CheckpointInfo& info, const std::vector<ArrayBlock>& blocks, bool best,
                            Saving how) {
  worker_->wait();
  auto job = std::make_unique<Job>();
  job->info = info;
  job->best = best;
  if (info.step < 0) throw Error(Code::invalid_argument, cat("there is no step ", info.step, " to save"));
  for (const ArrayBlock& block : blocks) {
    const DType dtype = block.part.dtype;
    const ManifestPiece piece{0, block.begin, block.part.shape, 0};
    auto refuse = [&](std::string_view why) {
      return Error(Code::invalid_argument,
                   cat("array ", quote(block.name), " ", block.whole.text(), " cannot be saved: ", why));
    };
    if (dtype_bits(dtype) % 8) throw refuse("its elements are parts of bytes");
    if (!piece.lies_within(block.whole))
      throw refuse(cat("its block ", piece.size.text(), " at ", piece.begin.text(), " is outside of it"));
    if (!job->blocks.emplace(block.name, ManifestArray{{dtype, block.whole}, {piece}}).second)
      throw refuse("one writer has two blocks of it");
    TensorView part = block.part;
    if (block.copy.present()) {
      job->copies.push_back(block.copy);
    } else if (how == Saving::copied) {
      const std::span bytes(part.data, static_cast<size_t>(part.bytes()));
      job->copies.emplace_back(dtype, part.shape, copy_blob(bytes));
      part = job->copies.back().view();
    }
    job->tensors.push_back({block.name, part});
  }
  // Other writers start the next save only after this call, so no draft here is in use.
  if (worker_->is_first()) worker_->remove_drafts(cat(step_name(info.step), draft_mark));
  worker_->start(std::move(job));
}

void CheckpointWriter::wait() { worker_->wait(); }

}  // namespace plait
