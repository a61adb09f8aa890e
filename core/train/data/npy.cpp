#include "core/train/data/npy.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

Error damaged(std::string_view what) { return Error(Code::bad_model, cat("it is a damaged .npy file: ", what)); }

/// The value of 'key' in the header, a Python dictionary of three known keys.
std::string_view member(std::string_view header, std::string_view key) {
  const size_t at = header.find(cat("'", key, "'")), colon = header.find(':', std::min(at, header.size()));
  if (colon == std::string_view::npos) throw damaged(cat("its header has no ", key));
  return trimmed(header.substr(colon + 1));
}

std::vector<int64_t> sizes_of(std::string_view tuple) {
  const size_t close = tuple.find(')');
  if (tuple.empty() || tuple[0] != '(' || close == std::string_view::npos) throw damaged("its shape cannot be read");
  std::vector<int64_t> out;
  for (const std::string& part : split(tuple.substr(1, close - 1), ',')) {
    if (trimmed(part).empty()) continue;  // the trailing comma of (3,)
    if (!parse_int(trimmed(part), out.emplace_back())) throw damaged("its shape cannot be read");
  }
  return out;
}

}  // namespace

bool is_npy(const Blob& blob) {
  return std::string_view(reinterpret_cast<const char*>(blob.data()), static_cast<size_t>(blob.size()))
      .starts_with(magic);
}

Tensor read_npy(std::shared_ptr<const Blob> blob) {
  const std::string_view file(reinterpret_cast<const char*>(blob->data()), static_cast<size_t>(blob->size()));
  const char version = file.size() > magic.size() ? file[magic.size()] : '\0';
  const size_t width = version == 1 ? 2 : 4, start = magic.size() + 2 + width;
  if (version < 1 || version > 3 || file.size() < start) throw damaged("unknown version");
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) length |= size_t{static_cast<unsigned char>(file[start - width + i])} << 8 * i;
  if (length > file.size() - start) throw damaged("it is truncated");
  const std::string_view header = file.substr(start, length);
  const std::string_view descr = member(header, "descr");
  const std::string_view type = descr.substr(0, std::min(descr.find('\'', 1), descr.size()));
  DType dtype = DType::none;
  if (type == "'<i4" || type == "'=i4") dtype = DType::i32;
  if (type == "'<i8" || type == "'=i8") dtype = DType::i64;
  if (dtype == DType::none)
    throw Error(Code::unsupported,
                cat("its elements are ", quote(type.substr(std::min<size_t>(1, type.size()))),
                    ", token ids are int32 or int64"),
                "save them with .astype(numpy.int32)");
  const std::vector<int64_t> sizes = sizes_of(member(header, "shape"));
  if (member(header, "fortran_order").starts_with("True") && sizes.size() > 1)
    throw Error(Code::unsupported, "its array is in Fortran's order", "save numpy.ascontiguousarray(array)");
  const int64_t bytes = packed_bytes(checked_elements(sizes, dtype_bits(dtype)), dtype_bits(dtype));
  if (bytes != static_cast<int64_t>(file.size() - start - length))
    throw damaged("its size differs from its header");
  return Tensor(dtype, Shape(sizes), std::move(blob), static_cast<int64_t>(start + length));
}

}  // namespace plait
