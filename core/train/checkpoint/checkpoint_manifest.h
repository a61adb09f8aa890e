#pragma once
// What the files of a checkpoint say. For checkpoint_writer.cpp and checkpoint_reader.cpp.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/safetensors.h"

namespace plait {

/// One writer's block of an array, as a tensor of its shard's file that has the array's name.
struct ManifestPiece {
  int64_t file = 0;  ///< its place in Manifest::files
  Shape begin, size;
  uint32_t checksum = 0;  ///< CRC-32C of its bytes

  bool lies_within(const Shape& whole) const;
};

struct ManifestArray {
  Checkpoint::Array type;
  std::vector<ManifestPiece> pieces;
};

struct ManifestFile {
  std::string name;
  uint32_t header = 0;  ///< CRC-32C of the file's header
};

struct Manifest {
  CheckpointInfo info;
  std::vector<ManifestFile> files;
  std::map<std::string, ManifestArray> arrays;

  /// JSON, with a checksum of itself. `parse` throws Error: bad_model, unsupported.
  std::string text() const;
  static Manifest parse(std::string_view text);

  /// Throws Error(invalid_argument) unless the pieces of each array make it up, each element once.
  void check_cover() const;
};

/// The directory's name, "step-000123"; -1 for a name that is none.
std::string step_name(int64_t step);
int64_t step_of(std::string_view name);

inline constexpr std::string_view manifest_name = "manifest.json";
/// "shard-00001-of-00004.safetensors"
std::string shard_name(int64_t writer, int64_t writers);

/// What a shard says about itself, in its file's metadata: the same for all that belong together, and its own blocks.
/// Reading it throws Error(bad_model) without the file's name.
std::map<std::string, std::string> shard_metadata(const CheckpointInfo& info,
                                                  const std::map<std::string, ManifestArray>& blocks);
/// Adds what the shard's file has to the manifest. Throws Error: bad_model, invalid_argument (of another checkpoint).
void add_shard(Manifest& manifest, const SafeTensors& shard);

}  // namespace plait
