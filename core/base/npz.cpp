#include "core/base/npz.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// Little-endian numbers at offsets that are checked.
class ArchiveBytes {
 public:
  explicit ArchiveBytes(const Blob& blob) : data_(blob.data()), size_(blob.size()) {}
  int64_t size() const { return size_; }
  template <class T>
  int64_t number(int64_t at) const {
    T out;
    std::memcpy(&out, part(at, sizeof(T)).data(), sizeof(T));
    return static_cast<int64_t>(out);
  }
  std::span<const std::byte> part(int64_t at, int64_t count) const {
    if (at < 0 || count < 0 || at > size_ || count > size_ - at)
      throw Error(Code::bad_model, "the archive is damaged: it ends before what its directory names",
                  "write it again with numpy.savez");
    return {data_ + at, static_cast<size_t>(count)};
  }

 private:
  const std::byte* data_;
  int64_t size_;
};

constexpr int64_t end_mark = 0x06054b50, entry_mark = 0x02014b50, file_mark = 0x04034b50;
constexpr int64_t end_size = 22, entry_size = 46, file_size = 30;  ///< without names and comments

/// Where the end of the directory begins: before a comment of up to 65,535 bytes.
int64_t directory_end(const ArchiveBytes& bytes) {
  for (int64_t at = bytes.size() - end_size; at >= 0 && at >= bytes.size() - end_size - 65535; --at)
    if (bytes.number<uint32_t>(at) == end_mark) return at;
  throw Error(Code::bad_model, "it is no archive: a ZIP file's directory is missing", "write it with numpy.savez");
}

}  // namespace

std::shared_ptr<const Blob> npz_member(const Blob& archive, std::string_view name) {
  const ArchiveBytes bytes(archive);
  const int64_t end = directory_end(bytes), entries = bytes.number<uint16_t>(end + 10);
  int64_t at = bytes.number<uint32_t>(end + 16);
  constexpr int64_t elsewhere = 0xffffffff;  // in a form for larger archives
  std::vector<std::string> names;
  for (int64_t i = 0; i < entries; ++i) {
    if (at == elsewhere || bytes.number<uint32_t>(at) != entry_mark) {
      if (at == elsewhere)
        throw Error(Code::unsupported, "the archive has 4 GB or more", "write its arrays as .npy files");
      throw Error(Code::bad_model, "the archive's directory is damaged", "write it again with numpy.savez");
    }
    const int64_t method = bytes.number<uint16_t>(at + 10), size = bytes.number<uint32_t>(at + 20),
                  letters = bytes.number<uint16_t>(at + 28), file = bytes.number<uint32_t>(at + 42);
    const auto text = bytes.part(at + entry_size, letters);
    std::string own(reinterpret_cast<const char*>(text.data()), text.size());
    if (own.ends_with(".npy")) own.resize(own.size() - 4);
    if (own == name) {
      if (method != 0)
        throw Error(Code::unsupported, cat("array ", quote(own), " is compressed"),
                    "write it with numpy.savez, not savez_compressed");
      if (size == elsewhere || file == elsewhere)
        throw Error(Code::unsupported, cat("array ", quote(own), " has 4 GB or more"), "write it as an .npy file");
      if (bytes.number<uint32_t>(file) != file_mark)
        throw Error(Code::bad_model, cat("array ", quote(own), " is not in its place"),
                    "write it again with numpy.savez");
      return copy_blob(
          bytes.part(file + file_size + bytes.number<uint16_t>(file + 26) + bytes.number<uint16_t>(file + 28), size));
    }
    names.push_back(quote(own));
    at += entry_size + letters + bytes.number<uint16_t>(at + 30) + bytes.number<uint16_t>(at + 32);
  }
  throw Error(Code::not_found, cat("the archive has no array ", quote(name)),
              cat("its arrays are ", join(names, ", ")));
}

}  // namespace plait
