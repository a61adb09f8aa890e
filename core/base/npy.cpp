#include "core/base/npy.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/strings.h"
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
                "save them with .astype(numpy.float32), or another type of numbers; strings with .astype(str)");
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

// ---- strings: "<U5" has 5 characters of 32 bits an element, "|S5" 5 bytes, zeros at the end ----

bool names_strings(std::string_view descr) {
  return descr.size() > 2 && (descr[1] == 'U' ? descr[0] == '<' || descr[0] == '=' : descr[1] == 'S');
}

void add_utf8(std::string& out, uint32_t letter) {
  if (letter > 0x10FFFF || (letter >= 0xD800 && letter < 0xE000)) throw damaged("a string has a character that Unicode does not have");
  const auto rest = [&](int shift) { out += static_cast<char>(0x80 | ((letter >> shift) & 0x3F)); };
  if (letter < 0x80) {
    out += static_cast<char>(letter);
  } else if (letter < 0x800) {
    out += static_cast<char>(0xC0 | letter >> 6);
    rest(0);
  } else if (letter < 0x10000) {
    out += static_cast<char>(0xE0 | letter >> 12);
    rest(6), rest(0);
  } else {
    out += static_cast<char>(0xF0 | letter >> 18);
    rest(12), rest(6), rest(0);
  }
}

/// Throws Error(unsupported) for bytes that are no UTF-8.
std::vector<uint32_t> letters_of(std::string_view text) {
  std::vector<uint32_t> out;
  const auto refuse = [] { return Error(Code::unsupported, "a string is no UTF-8, and has no form in .npy files"); };
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at++]);
    const int more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2 : first >> 3 == 30 ? 3 : -1;
    if (more < 0 || text.size() - at < static_cast<size_t>(more)) throw refuse();
    uint32_t letter = more ? first & (0x3Fu >> more) : first;
    for (int i = 0; i < more; ++i) {
      const auto next = static_cast<unsigned char>(text[at++]);
      if (next >> 6 != 2) throw refuse();
      letter = letter << 6 | (next & 0x3Fu);
    }
    out.push_back(letter);
  }
  return out;
}

Tensor read_strings(std::string_view descr, const std::vector<int64_t>& sizes, bool fortran, std::span<const std::byte> from) {
  int64_t letters = 0;
  if (!parse_int(descr.substr(2), letters) || letters < 0 || letters > INT32_MAX) throw damaged("its type cannot be read");
  const bool wide = descr[1] == 'U';
  const int64_t size = letters * (wide ? 4 : 1), count = checked_elements(sizes, dtype_bits(DType::string));
  if (size && count > INT64_MAX / size) throw damaged("its size differs from its header");
  if (count * size != std::ssize(from)) throw damaged("its size differs from its header");
  std::vector<std::byte> ordered;
  if (fortran && size) {
    ordered.resize(from.size());
    reorder(from.data(), ordered.data(), sizes, std::ssize(from), size);
    from = ordered;
  }
  std::vector<std::string> texts(size ? static_cast<size_t>(count) : 0);
  for (int64_t i = 0; i < std::ssize(texts); ++i) {
    std::string& text = texts[static_cast<size_t>(i)];
    const std::byte* const element = from.data() + i * size;
    if (!wide) {
      text.assign(reinterpret_cast<const char*>(element), static_cast<size_t>(size));
      text.erase(text.find_last_not_of('\0') + 1);
      continue;
    }
    std::vector<uint32_t> all(static_cast<size_t>(letters));
    std::memcpy(all.data(), element, static_cast<size_t>(size));
    while (!all.empty() && all.back() == 0) all.pop_back();
    for (const uint32_t letter : all) add_utf8(text, letter);
  }
  if (!size) return Tensor(DType::string, Shape(sizes));  // as many empty strings, whose packed form is zeros
  return packed_strings(Shape(sizes), texts);
}

std::string header_of(std::string_view descr, const Shape& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  std::string header = cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", join(sizes, ", "),
                           sizes.size() == 1 ? "," : "", "), }");
  // The elements begin at a multiple of 64 bytes; the header ends with a newline.
  header.append(63 - (magic.size() + 4 + header.size()) % 64, ' ');
  header += '\n';
  std::string out(magic);
  out += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  return out + header;
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
  const std::string_view type = descr.substr(1, descr.find('\'', 1) - 1);
  const std::vector<int64_t> sizes = sizes_of(member(header, "shape"));
  const bool fortran = member(header, "fortran_order").starts_with("True") && sizes.size() > 1;
  if (names_strings(type)) {
    if (sizes.size() > static_cast<size_t>(Shape::max_rank)) throw Error(Code::unsupported, cat("it has ", sizes.size(), " dimensions"));
    return read_strings(type, sizes, fortran, std::span(blob->data() + start + length, file.size() - start - length));
  }
  const DType dtype = dtype_of(type, expected);
  const int64_t bytes = packed_bytes(checked_elements(sizes, dtype_bits(dtype)), dtype_bits(dtype));
  if (bytes != static_cast<int64_t>(file.size() - start - length)) throw damaged("its size differs from its header");
  const Shape shape(sizes);
  const int64_t offset = static_cast<int64_t>(start + length), size = dtype_bits(dtype) / 8;
  if (!fortran && offset % size == 0) return Tensor(dtype, shape, std::move(blob), offset);
  Tensor out(dtype, shape);
  if (fortran) reorder(blob->data() + offset, static_cast<std::byte*>(out.data()), sizes, bytes, size);
  else if (bytes > 0) std::memcpy(out.data(), blob->data() + offset, static_cast<size_t>(bytes));
  return out;
}

std::string npy_header(DType dtype, const Shape& shape) {
  const Name* name = name_of(dtype);
  if (!name) throw Error(Code::unsupported, cat("elements ", dtype_name(dtype), " have no form in .npy files"));
  return header_of(name->text, shape);
}

std::string npy_of_strings(const TensorView& packed) {
  constexpr int64_t most_bytes = int64_t{1} << 32;
  std::vector<std::vector<uint32_t>> all;
  size_t longest = 1;
  for (const std::string_view text : packed_texts(packed)) {
    longest = std::max(longest, all.emplace_back(letters_of(text)).size());
    if (!all.back().empty() && all.back().back() == 0)
      throw Error(Code::unsupported, "a string ends with a zero byte, and has no form in .npy files");
  }
  if (packed.elements() > most_bytes / 4 / static_cast<int64_t>(longest))
    throw Error(Code::out_of_memory, cat("an .npy file gives each of ", packed.elements(), " strings the ", longest,
                                         " characters of the longest, more than 4 GB in all"));
  std::string out = header_of(cat("<U", longest), packed.shape);
  for (std::vector<uint32_t>& letters : all) {
    letters.resize(longest);
    out.append(reinterpret_cast<const char*>(letters.data()), longest * sizeof(uint32_t));
  }
  return out;
}

}  // namespace plait
