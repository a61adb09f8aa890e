#include "core/base/npy.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

/// How NumPy names a dtype, for little-endian machines.
struct Name {
  DType dtype;
  std::string_view text;
};
constexpr Name names[] = {
    {DType::f32, "<f4"},    {DType::f64, "<f8"},        {DType::f16, "<f2"},        {DType::i64, "<i8"},
    {DType::i32, "<i4"},    {DType::i16, "<i2"},        {DType::i8, "|i1"},         {DType::u64, "<u8"},
    {DType::u32, "<u4"},    {DType::u16, "<u2"},        {DType::u8, "|u1"},         {DType::boolean, "|b1"},
    {DType::c64, "<c8"},    {DType::c128, "<c16"},      {DType::bf16, "<V2"},       {DType::f8e4m3fn, "|V1"},
    {DType::f8e5m2, "|V1"}, {DType::f8e4m3fnuz, "|V1"}, {DType::f8e5m2fnuz, "|V1"}, {DType::f8e8m0, "|V1"}};

const Name* name_of(DType dtype) {
  const auto* found =
      std::find_if(std::begin(names), std::end(names), [&](const Name& one) { return one.dtype == dtype; });
  return found == std::end(names) ? nullptr : found;
}

/// The dtype for a name, or `expected` if the name may represent it.
DType dtype_of(std::string_view text, DType expected) {
  // The mark of the byte order: nothing for single bytes, and '=' is this machine's.
  const auto same = [&](const Name& one) {
    return text.substr(1) == one.text.substr(1) && (text[0] == '<' || text[0] == '=' || text[0] == '|');
  };
  const auto* found = text.empty() ? std::end(names) : std::find_if(std::begin(names), std::end(names), same);
  if (found == std::end(names))
    throw Error(Code::unsupported, cat("its elements are ", quote(text), ", which are no little-endian numbers"),
                "save them with .astype(numpy.float32), or another type of numbers");
  const Name* wanted = name_of(expected);
  const bool nameless = wanted && wanted->text[1] == 'V', raw = found->text[1] == 'V' || found->text[1] == 'u';
  return nameless && raw && dtype_bits(expected) == dtype_bits(found->dtype) ? expected : found->dtype;
}

/// From Fortran's order, first dimension fastest, to C order.
void reorder(const std::byte* from, std::byte* to, const std::vector<int64_t>& sizes, int64_t bytes, int64_t size) {
  std::vector<int64_t> index(sizes.size());
  for (int64_t target = 0; target < bytes; target += size) {
    int64_t source = 0;
    for (size_t axis = sizes.size(); axis-- > 0;) source = source * sizes[axis] + index[axis];
    std::memcpy(to + target, from + source * size, static_cast<size_t>(size));
    for (size_t axis = sizes.size(); axis-- > 0 && ++index[axis] == sizes[axis];) index[axis] = 0;
  }
}

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

Tensor read_npy(std::shared_ptr<const Blob> blob, DType expected) {
  const std::string_view file(reinterpret_cast<const char*>(blob->data()), static_cast<size_t>(blob->size()));
  const char version = file.size() > magic.size() ? file[magic.size()] : '\0';
  const size_t width = version == 1 ? 2 : 4, start = magic.size() + 2 + width;
  if (version < 1 || version > 3 || file.size() < start) throw damaged("unknown version");
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) length |= size_t{static_cast<unsigned char>(file[start - width + i])} << 8 * i;
  if (length > file.size() - start) throw damaged("it is truncated");
  const std::string_view header = file.substr(start, length);
  const std::string_view descr = member(header, "descr");
  if (!descr.starts_with("'"))
    throw Error(Code::unsupported, "its elements are records", "save one array of numbers");
  const DType dtype = dtype_of(descr.substr(1, descr.find('\'', 1) - 1), expected);
  const std::vector<int64_t> sizes = sizes_of(member(header, "shape"));
  const int64_t bytes = packed_bytes(checked_elements(sizes, dtype_bits(dtype)), dtype_bits(dtype));
  if (bytes != static_cast<int64_t>(file.size() - start - length)) throw damaged("its size differs from its header");
  const Shape shape(sizes);
  const int64_t offset = static_cast<int64_t>(start + length), size = dtype_bits(dtype) / 8;
  const bool fortran = member(header, "fortran_order").starts_with("True") && sizes.size() > 1;
  if (!fortran && offset % size == 0) return Tensor(dtype, shape, std::move(blob), offset);
  Tensor out(dtype, shape);
  if (fortran) reorder(blob->data() + offset, static_cast<std::byte*>(out.data()), sizes, bytes, size);
  else if (bytes > 0) std::memcpy(out.data(), blob->data() + offset, static_cast<size_t>(bytes));
  return out;
}

std::string npy_header(DType dtype, const Shape& shape) {
  const Name* name = name_of(dtype);
  if (!name) throw Error(Code::unsupported, cat("elements ", dtype_name(dtype), " have no form in .npy files"));
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  std::string header = cat("{'descr': '", name->text, "', 'fortran_order': False, 'shape': (", join(sizes, ", "),
                           sizes.size() == 1 ? "," : "", "), }");
  // The elements begin at a multiple of 64 bytes; the header ends with a newline.
  header.append(63 - (magic.size() + 4 + header.size()) % 64, ' ');
  header += '\n';
  std::string out(magic);
  out += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  return out + header;
}

}  // namespace plait
