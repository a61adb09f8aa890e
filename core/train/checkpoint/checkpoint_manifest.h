#pragma once
// The manifest and the shard metadata of a checkpoint. Internal to checkpoint_writer.cpp and checkpoint_reader.cpp.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/train/checkpoint/checkpoint.h"
#include "core/base/safetensors.h"

namespace plait {

/// One writer's block of an array: a tensor with the array's name in its shard.
struct ManifestPiece {
  int64_t file = 0;  ///< index in Manifest::files
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

  /// JSON that contains its own checksum. `parse` throws Error: bad_model, unsupported.
  std::string text() const;
  static Manifest parse(std::string_view text);

  /// Throws Error(invalid_argument) unless the pieces cover each array, each element once.
  void check_cover() const;
};

/// Directory name "step-000123", and back; -1 if the name is not one.
std::string step_name(int64_t step);
int64_t step_of(std::string_view name);

inline constexpr std::string_view manifest_name = "manifest.json";
/// "shard-00001-of-00004.safetensors"
std::string shard_name(int64_t writer, int64_t writers);

/// Metadata of a shard: what all shards of a checkpoint share, and its own blocks. Reading throws Error(bad_model)
/// without the file's name.
std::map<std::string, std::string> shard_metadata(const CheckpointInfo& info,
                                                  const std::map<std::string, ManifestArray>& blocks);
/// Adds the shard's blocks to the manifest. Throws Error: bad_model, invalid_argument (of another checkpoint).
void add_shard(Manifest& manifest, const SafeTensors& shard);

}  // namespace plait
