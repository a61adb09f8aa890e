#include <algorithm>
#include <atomic>

#include "core/base/block.h"
#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/checkpoint_manifest.h"

namespace plait {

/// A piece and its bytes in the mapped shard.
struct StoredPiece {
  ManifestPiece at;
  Tensor bytes;
  const std::string* file = nullptr;
  std::atomic<bool> checked{false};  ///< its checksum was right; two threads may check it at once
};

struct Checkpoint::State {
  std::string path;
  CheckpointInfo info;
  std::map<std::string, Array> arrays;
  std::vector<SafeTensors> files;
  std::map<std::string, std::vector<std::unique_ptr<StoredPiece>>> pieces;
};

namespace {

std::vector<SafeTensors> open_files(const Manifest& manifest, const std::string& path) {
  std::vector<SafeTensors> out;
  for (const ManifestFile& file : manifest.files) {
    try {
      out.push_back(SafeTensors::open(path + "/" + file.name, file.header));
    } catch (const Error& error) {
      throw Error(error.code(), cat("checkpoint ", quote(path, 4096), ": ", error.message()),
                  error.code() == Code::not_found ? "a checkpoint is all files of its directory; use an older one"
                                                  : "use an older checkpoint");
    }
  }
  return out;
}

/// The piece's mapped bytes; manifest and shard must agree.
std::unique_ptr<StoredPiece> open_piece(const SafeTensors& file, const std::string& name, DType dtype,
                                        const ManifestPiece& at) {
  auto out = std::make_unique<StoredPiece>();
  out->at = at;
  out->bytes = file.tensor(name);
  out->file = &file.path();
  if (out->bytes.dtype() != dtype || !(out->bytes.shape() == at.size))
    throw Error(Code::bad_model,
                cat(quote(file.path(), 4096), " has array ", quote(name), " as ", dtype_name(out->bytes.dtype()),
                    out->bytes.shape().text(), ", and its manifest as ", dtype_name(dtype), at.size.text()));
  return out;
}

void check_bytes(const StoredPiece& piece, const std::string& name) {
  const std::span bytes(piece.bytes.data(), static_cast<size_t>(piece.bytes.bytes()));
  if (crc32c(bytes) != piece.at.checksum)
    throw Error(Code::bad_model, cat("array ", quote(name), " is damaged in ", quote(*piece.file, 4096)),
                "use an older checkpoint");
}

/// Copies the intersection of the piece and the block `part`, which begins at `begin`.
void copy_common(const StoredPiece& piece, const Shape& begin, const TensorView& part) {
  Shape in_piece, in_part, size;
  for (int dim = 0; dim < begin.rank(); ++dim) {
    const int64_t from = std::max(piece.at.begin[dim], begin[dim]);
    const int64_t to = std::min(piece.at.begin[dim] + piece.at.size[dim], begin[dim] + part.shape[dim]);
    in_piece.push_back(from - piece.at.begin[dim]);
    in_part.push_back(from - begin[dim]);
    size.push_back(to - from);
  }
  const Tensor common(part.dtype, size);
  take_block(piece.bytes.view(), in_piece, common.view());
  put_block(part, in_part, common.view());
}

bool meets(const ManifestPiece& piece, const Shape& begin, const Shape& size) {
  for (int dim = 0; dim < begin.rank(); ++dim)
    if (piece.begin[dim] >= begin[dim] + size[dim] || begin[dim] >= piece.begin[dim] + piece.size[dim]) return false;
  return true;
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path, const std::optional<std::string>& model) {
  const std::string manifest_path = cat(path, "/", manifest_name);
  if (!exists(manifest_path))
    throw Error(Code::not_found, cat(quote(path, 4096), " is no checkpoint: it has no ", manifest_name),
                "give the directory of one step");
  Manifest manifest;
  auto state = std::make_shared<State>();
  try {
    manifest = Manifest::parse(read_text_file(manifest_path));
    try {
      manifest.check_cover();
    } catch (const Error& error) {
      throw Error(Code::bad_model, error.message());
    }
  } catch (const Error& error) {
    throw Error(error.code(), cat(quote(manifest_path, 4096), " ", error.message()), error.hint());
  }
  state->path = path;
  state->info = manifest.info;
  state->files = open_files(manifest, path);
  for (const auto& [name, array] : manifest.arrays) {
    state->arrays.emplace(name, array.type);
    for (const ManifestPiece& piece : array.pieces)
      state->pieces[name].push_back(
          open_piece(state->files[static_cast<size_t>(piece.file)], name, array.type.dtype, piece));
  }
  Checkpoint out;
  out.state_ = std::move(state);
  if (model) out.check_model(*model);
  return out;
}

void Checkpoint::check_model(const std::string& model) const {
  if (model == state_->info.model) return;
  throw Error(Code::invalid_argument,
              cat("checkpoint ", quote(state_->path, 4096), " is of another model: its fingerprint is ",
                  quote(state_->info.model), ", this model's ", quote(model)),
              "give the model and the options that the checkpoint was trained with; if its run began with another "
              "checkpoint, the model as exported with that");
}

const CheckpointInfo& Checkpoint::info() const { return state_->info; }
const std::map<std::string, Checkpoint::Array>& Checkpoint::arrays() const { return state_->arrays; }

void Checkpoint::read(const std::string& name, const Shape& begin, const TensorView& part) const {
  auto found = state_->arrays.find(name);
  if (found == state_->arrays.end()) throw Error(Code::not_found, cat("the checkpoint has no array ", quote(name)));
  const Array& array = found->second;
  bool fits = begin.rank() == array.shape.rank() && part.shape.rank() == begin.rank() && part.dtype == array.dtype;
  for (int dim = 0; fits && dim < begin.rank(); ++dim)
    fits = begin[dim] >= 0 && part.shape[dim] <= array.shape[dim] - begin[dim];
  if (!fits)
    throw Error(Code::invalid_argument,
                cat("a block ", dtype_name(part.dtype), part.shape.text(), " at ", begin.text(), " does not fit array ",
                    quote(name), ", which is ", dtype_name(array.dtype), array.shape.text()));
  for (const auto& piece : state_->pieces[name]) {
    if (!meets(piece->at, begin, part.shape)) continue;
    if (!piece->checked) check_bytes(*piece, name);
    piece->checked = true;
    copy_common(*piece, begin, part);
    piece->bytes.drop();
  }
}

Tensor Checkpoint::read(const std::string& name) const {
  auto found = state_->arrays.find(name);
  if (found == state_->arrays.end()) throw Error(Code::not_found, cat("the checkpoint has no array ", quote(name)));
  const Tensor out(found->second.dtype, found->second.shape);
  Shape begin = out.shape();
  std::fill_n(&begin[0], begin.rank(), 0);
  read(name, begin, out.view());
  return out;
}

std::vector<std::string> list_checkpoints(const std::string& directory) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : names_in(directory)) {
    const int64_t step = step_of(name);
    std::string path = cat(directory, "/", name);
    if (step >= 0 && exists(cat(path, "/", manifest_name))) found.emplace_back(step, std::move(path));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [step, path] : found) out.push_back(std::move(path));
  return out;
}

}  // namespace plait
