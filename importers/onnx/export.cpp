#include "importers/onnx/export.h"

#include <onnx-ml.pb.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <tuple>

#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "importers/onnx/plan_writer.h"
#include "importers/onnx/tensor_reader.h"
#include "importers/onnx/wire.h"

namespace plait {
namespace {

using namespace onnx_import;

// ONNX Runtime computes sizes and axes at load time, from tensors inside the file.
constexpr int64_t least_external = 1024;
// Constants of nodes stay with their nodes, as long as the file stays far below Protocol Buffers' limit.
constexpr int64_t most_in_node = 1 << 20;
constexpr int64_t page = 4096, line = 64, least_paged = 1 << 16;

/// A file that is removed unless it is kept. It is made by the first byte.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)) {
    if (exists(path_))
      throw Error(Code::invalid_argument, cat(quote(path_), " is there already"), "export into a directory that holds no model");
  }
  ~NewFile() {
    if (begun_ && !kept_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* bytes, int64_t size) {
    if (!file_) file_.emplace(path_);
    begun_ = true;
    file_->write({static_cast<const std::byte*>(bytes), static_cast<size_t>(size)});
    size_ += size;
  }
  void pad_to(int64_t alignment) {
    static constexpr char zeros[page] = {};
    if (size_ % alignment) write(zeros, alignment - size_ % alignment);
  }
  void finish() {
    if (file_) file_->finish();
  }
  void keep() { kept_ = true; }
  int64_t size() const { return size_; }

 private:
  std::string path_;
  std::optional<FileWriter> file_;
  int64_t size_ = 0;
  bool begun_ = false, kept_ = false;
};

class Exporter {
 public:
  Exporter(const std::shared_ptr<const Blob>& original, const ExternalResolver& resolver,
           const ExportChanges& changes, NewFile& data, std::string location)
      : original_(original),
        reader_(original, resolver),
        changed_(changes.tensor),
        progress_(changes.progress),
        data_(data),
        location_(std::move(location)) {}

  std::string run(PlanWriter* plan) {
    const std::span<const std::byte> file(original_->data(), static_cast<size_t>(original_->size()));
    ModelChange change;
    change.tensor = [this](std::string slim, TensorPlace place) { return tensor(std::move(slim), place); };
    if (!plan) return changed_model(file, change);
    change.node = [plan](std::string node, const BodyNames& bodies) { return plan->node(std::move(node), bodies); };
    change.left_out = plan_fields;
    return plan->head(model_fields(file, plan_fields)) + changed_model(file, change);
  }

 private:
  std::string tensor(std::string slim, TensorPlace place) {
    if (progress_) progress_->check();
    onnx::TensorProto proto;
    if (!proto.ParseFromString(slim))
      throw Error(Code::bad_model, "not a valid ONNX file: a tensor inside is malformed");
    if (proto.data_type() == onnx::TensorProto::STRING) return slim;  // they have no raw_data to refer to
    std::optional<Tensor> other = changed_ ? changed_(proto.name()) : std::nullopt;
    Tensor now;
    try {
      now = other ? *other : reader_.convert(proto);
    } catch (const Error& error) {
      throw error.at(cat("tensor ", quote(proto.name())));
    }
    clear_data(proto);
    proto.set_data_type(static_cast<int32_t>(now.dtype()));
    proto.clear_dims();
    for (int64_t size : now.shape()) proto.add_dims(size);
    if (now.bytes() < (place == TensorPlace::initializer ? least_external : most_in_node))
      proto.set_raw_data(now.data(), static_cast<size_t>(now.bytes()));
    else put_outside(proto, now);
    return proto.SerializeAsString();
  }

  static void clear_data(onnx::TensorProto& proto) {
    proto.clear_float_data();
    proto.clear_int32_data();
    proto.clear_int64_data();
    proto.clear_double_data();
    proto.clear_uint64_data();
    proto.clear_raw_data();
    proto.clear_external_data();
    proto.clear_data_location();
  }

  /// Tensors that share bytes keep sharing them.
  void put_outside(onnx::TensorProto& proto, const Tensor& tensor) {
    auto key = std::tuple(tensor.blob(), tensor.offset(), tensor.bytes());
    auto [place, fresh] = written_.emplace(key, 0);
    if (fresh) {
      data_.pad_to(tensor.bytes() < least_paged ? line : page);
      place->second = data_.size();
      data_.write(tensor.data(), tensor.bytes());
      tensor.drop();
    }
    auto entry = [&](const char* name, const std::string& value) {
      auto* item = proto.add_external_data();
      item->set_key(name);
      item->set_value(value);
    };
    entry("location", location_);
    entry("offset", std::to_string(place->second));
    entry("length", std::to_string(tensor.bytes()));
    proto.set_data_location(onnx::TensorProto::EXTERNAL);
  }

  const std::shared_ptr<const Blob>& original_;
  TensorReader reader_;
  const ChangedTensor& changed_;
  const LoadProgress* progress_;
  NewFile& data_;
  std::string location_;
  std::map<std::tuple<std::shared_ptr<const Blob>, int64_t, int64_t>, int64_t> written_;
};

}  // namespace

std::vector<std::string> export_model(const std::shared_ptr<const Blob>& original, const ExternalResolver& resolver,
                                      const ExportChanges& changes, const std::string& directory,
                                      const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos)
    throw Error(Code::invalid_argument, cat(quote(file), " is no name for a file"));
  make_directories(directory);
  NewFile model(cat(directory, "/", file)), data(cat(directory, "/", file, ".data"));
  std::optional<PlanWriter> plan;
  if (changes.plan) plan.emplace(*changes.plan);
  std::string bytes = Exporter(original, resolver, changes, data, file + ".data").run(plan ? &*plan : nullptr);
  model.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  data.finish();
  model.finish();
  model.keep();
  data.keep();
  return plan ? plan->unread() : std::vector<std::string>();
}

}  // namespace plait
