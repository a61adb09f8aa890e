#pragma once
// Checkpoints: the arrays of a run, cut over any number of ranks, in directories that are whole or not there.
//
//   DIRECTORY/step-000123/shard-00000-of-00002.safetensors   what writer 0 had, and so on
//   DIRECTORY/step-000123/manifest.json                      which block of which array lies where, and its checksum
//   DIRECTORY/best -> step-000100                            the one that was saved as the best so far, if any
//
// A checkpoint is written under a temporary name, every file and directory synced, and then renamed: whatever happens
// meanwhile, the one before it is whole. Writers are the ranks of a run, threads or processes; they know of each other by
// the files in the shared directory alone.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// What a checkpoint says beside its arrays. Every writer gives the same.
struct CheckpointInfo {
  int64_t step = 0;
  std::string model;                         ///< a fingerprint: the arrays fit this model alone
  std::map<std::string, std::string> state;  ///< anything else that the run goes on from: seeds, place in the data

  auto fields() { return std::tie(step, model, state); }
};

/// What one writer has of an array: `part` begins at the indices `begin` of the whole.
struct ArrayBlock {
  std::string name;
  Shape whole;
  Shape begin;
  TensorView part;
  Tensor copy = {};  ///< holds the bytes of `part` where they are a copy made for this block
};

enum class Saving {
  copied,    ///< the arrays may change while they are written
  in_place,  ///< they stay as they are until `wait` returns: takes no memory
};

struct CheckpointOptions {
  std::string directory;  ///< made if absent
  int64_t writer = 0, writers = 1;
  int64_t keep = 3;        ///< how many of the newest stay; at least 1. The best one stays besides
  double timeout_s = 600;  ///< how long writer 0 waits for the others' shards
};

/// Saves on a thread of its own, one checkpoint after the other. For one thread at a time; the writers of a run are
/// independent objects in any processes that see the directory. All of them have to be made before the first of them saves
/// (a collective in between sees to it): writer 0 removes what an interrupted save has left.
class CheckpointWriter {
 public:
  /// Throws Error: invalid_argument, io.
  explicit CheckpointWriter(CheckpointOptions options);
  /// Finishes what can be finished without waiting for other writers. Errors are lost: `wait` reports them.
  ~CheckpointWriter();

  /// Takes the blocks and returns; before that it waits for the save before this one. The blocks that all writers give for
  /// a name have to make up the whole array, each element once; a writer has at most one block of an array. A step that is
  /// there already is replaced. `best`: DIRECTORY/best is this one from now on.
  /// Throws what went wrong with the save before this one (which left nothing behind but what the next one removes), and
  /// Error(invalid_argument) for blocks that do not fit their arrays.
  void save(const CheckpointInfo& info, const std::vector<ArrayBlock>& blocks, bool best = false,
            Saving how = Saving::copied);

  /// Returns when all is saved: on writer 0 the whole checkpoint, on others their shards. Throws like `save`; Error: io
  /// (a full disk, say), timeout (a shard of another writer did not come), invalid_argument (the blocks do not make up
  /// an array).
  void wait();

 private:
  struct Job;
  class Worker;
  std::unique_ptr<Worker> worker_;
};

/// A saved checkpoint, open for reading. Opening it checks everything but the arrays' bytes, which are checked when they are
/// first read. Any number of threads may read at once.
class Checkpoint {
 public:
  struct Array {
    DType dtype = DType::none;
    Shape shape;
  };

  /// `path` is the directory of one step, or DIRECTORY/best. With a `model` the fingerprint has to be that. Throws Error:
  /// not_found (no checkpoint, or one of its files is missing), bad_model (damaged; the message names the file), unsupported
  /// (written by a newer version), invalid_argument (of another model).
  static Checkpoint open(const std::string& path, const std::optional<std::string>& model = std::nullopt);

  /// Throws Error(invalid_argument) where the fingerprint is another.
  void check_model(const std::string& model) const;

  const CheckpointInfo& info() const;
  const std::map<std::string, Array>& arrays() const;

  /// Fills `part` with the block of the array that begins at `begin`, however the checkpoint was cut. Throws Error:
  /// not_found (no such array), invalid_argument (another dtype, or not within the array), bad_model (the bytes are damaged;
  /// the message names array and file).
  void read(const std::string& name, const Shape& begin, const TensorView& part) const;
  Tensor read(const std::string& name) const;  ///< the whole array

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The directories of whole checkpoints, by rising step; none if there is no such directory.
std::vector<std::string> list_checkpoints(const std::string& directory);

}  // namespace plait
