#pragma once
// Checkpoints: the arrays of a run, sharded over any number of ranks. A checkpoint directory is complete or absent.
//
//   DIRECTORY/step-000123/shard-00000-of-00002.safetensors   the blocks of writer 0, and so on
//   DIRECTORY/step-000123/manifest.json                      the file and checksum of each array's blocks
//   DIRECTORY/best -> step-000100                            the best checkpoint so far, if any
//
// A checkpoint is written under a temporary name, files and directory are synced, and then it is renamed: a crash
// never damages the previous one. Writers are the ranks of a run, threads or processes; they communicate only through
// files in the shared directory.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

/// Metadata of a checkpoint. Every writer passes the same.
struct CheckpointInfo {
  int64_t step = 0;
  std::string model;                         ///< a fingerprint: a checkpoint fits only this model
  std::map<std::string, std::string> state;  ///< what else resuming needs: seeds, position in the data

  auto fields() { return std::tie(step, model, state); }
};

/// One writer's block of an array: `part` begins at the indices `begin` of the whole.
struct ArrayBlock {
  std::string name;
  Shape whole;
  Shape begin;
  TensorView part;
  Tensor copy = {};  ///< owns the bytes of `part` if they were copied for this block
};

enum class Saving {
  copied,    ///< the arrays may change while they are written
  in_place,  ///< they do not change until `wait` returns: needs no memory
};

struct CheckpointOptions {
  std::string directory;  ///< created if absent
  int64_t writer = 0, writers = 1;
  int64_t keep = 3;        ///< how many of the newest are kept, at least 1; the best is kept in addition
  double timeout_s = 600;  ///< how long writer 0 waits for the other shards
};

/// Saves on a thread of its own, one checkpoint at a time. Not thread-safe. The writers of a run are independent
/// objects in any processes that see the directory. All of them must exist before the first one saves (use a
/// collective), since writer 0 removes the files of interrupted saves.
class CheckpointWriter {
 public:
  /// Throws Error: invalid_argument, io.
  explicit CheckpointWriter(CheckpointOptions options);
  /// Finishes what does not need other writers. Errors are lost: `wait` reports them.
  ~CheckpointWriter();

  /// Takes the blocks and returns after the previous save has ended. The blocks of all writers under one name must
  /// cover the whole array, each element once; a writer has at most one block of an array. Replaces an existing
  /// checkpoint of the step. `best`: DIRECTORY/best points to this one. Throws the error of the previous save (the
  /// next one removes its files), and Error(invalid_argument) for blocks that do not fit their arrays.
  void save(const CheckpointInfo& info, const std::vector<ArrayBlock>& blocks, bool best = false,
            Saving how = Saving::copied);

  /// Returns when all is saved: on writer 0 the whole checkpoint, on others their shards. Throws like `save`; Error:
  /// io (e.g. a full disk), timeout (another writer's shard is missing), invalid_argument (the blocks do not cover an
  /// array).
  void wait();

 private:
  struct Job;
  class Worker;
  std::unique_ptr<Worker> worker_;
};

/// A saved checkpoint, open for reading. Opening checks everything except the arrays' bytes, which are checked on
/// first read. Thread-safe.
class Checkpoint {
 public:
  struct Array {
    DType dtype = DType::none;
    Shape shape;
  };

  /// `path` is the directory of one step, or DIRECTORY/best. A `model` must equal the fingerprint. Throws Error:
  /// not_found (no checkpoint, or a missing file), bad_model (damaged; the message names the file), unsupported
  /// (written by a newer version), invalid_argument (of another model).
  static Checkpoint open(const std::string& path, const std::optional<std::string>& model = std::nullopt);

  /// Throws Error(invalid_argument) if the fingerprint differs.
  void check_model(const std::string& model) const;

  const CheckpointInfo& info() const;
  const std::map<std::string, Array>& arrays() const;

  /// Fills `part` with the block of the array that begins at `begin`, in any sharding. Throws Error: not_found (no
  /// such array), invalid_argument (another dtype, or out of range), bad_model (damaged bytes; the message names
  /// array and file).
  void read(const std::string& name, const Shape& begin, const TensorView& part) const;
  Tensor read(const std::string& name) const;  ///< the whole array

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Directories of complete checkpoints, by ascending step; empty if there is no such directory.
std::vector<std::string> list_checkpoints(const std::string& directory);

}  // namespace plait
