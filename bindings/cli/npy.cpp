#include "bindings/cli/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>

namespace plait::cli {
namespace {

struct Row {
  plait_dtype dtype;
  const char* descr;
  int64_t bytes;
};
constexpr Row rows[] = {
    {PLAIT_F32, "<f4", 4},    {PLAIT_F64, "<f8", 8},        {PLAIT_F16, "<f2", 2},        {PLAIT_I64, "<i8", 8},
    {PLAIT_I32, "<i4", 4},    {PLAIT_I16, "<i2", 2},        {PLAIT_I8, "|i1", 1},         {PLAIT_U64, "<u8", 8},
    {PLAIT_U32, "<u4", 4},    {PLAIT_U16, "<u2", 2},        {PLAIT_U8, "|u1", 1},         {PLAIT_BOOL, "|b1", 1},
    {PLAIT_C64, "<c8", 8},    {PLAIT_C128, "<c16", 16},     {PLAIT_BF16, "<V2", 2},       {PLAIT_F8E4M3FN, "|V1", 1},
    {PLAIT_F8E5M2, "|V1", 1}, {PLAIT_F8E4M3FNUZ, "|V1", 1}, {PLAIT_F8E5M2FNUZ, "|V1", 1}, {PLAIT_F8E8M0, "|V1", 1}};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error("\"" + path + "\": " + what);
}

const Row* row_of(plait_dtype dtype) {
  auto found = std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) { return row.dtype == dtype; });
  return found == std::end(rows) ? nullptr : found;
}

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
};

/// The value of 'key' in the header, a Python dictionary of three known keys.
std::string_view member(const std::string& path, std::string_view text, std::string_view key) {
  size_t at = text.find(key);
  size_t colon = at == std::string_view::npos ? at : text.find(':', at);
  if (colon == std::string_view::npos) fail(path, "its header has no " + std::string(key));
  text.remove_prefix(colon + 1);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

Header parse_header(const std::string& path, std::string_view text) {
  Header out;
  std::string_view descr = member(path, text, "'descr'");
  if (descr.empty() || descr[0] != '\'') fail(path, "records are not supported");
  out.descr = descr.substr(1, descr.find('\'', 1) - 1);
  out.fortran = member(path, text, "'fortran_order'").substr(0, 4) == "True";
  std::string_view shape = member(path, text, "'shape'");
  size_t close = shape.find(')');
  if (shape.empty() || shape[0] != '(' || close == std::string_view::npos) fail(path, "its shape cannot be read");
  const char* at = shape.data() + 1;
  const char* end = shape.data() + close;
  while (at < end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t size = 0;
    auto [next, failure] = std::from_chars(at, end, size);
    if (failure != std::errc() || size < 0) fail(path, "its shape cannot be read");
    out.dims.push_back(size);
    at = next;
  }
  return out;
}

/// The dtype for `descr`, or `expected` if `descr` may represent it.
const Row& choose_row(const std::string& path, const std::string& descr, plait_dtype expected) {
  std::string normal = descr;
  if (!normal.empty() && (normal[0] == '=' || (normal[0] == '|' && normal != "|b1"))) normal[0] = '<';
  auto same = [&](const Row& row) {
    return normal.substr(normal[0] == '<') == std::string_view(row.descr).substr(1);
  };
  auto found = std::find_if(std::begin(rows), std::end(rows),
                            [&](const Row& row) { return same(row) || normal == row.descr; });
  if (found == std::end(rows))
    fail(path, "elements of type '" + descr + "' are not supported (little-endian numbers are)");
  const Row* wanted = row_of(expected);
  bool nameless = wanted && wanted->descr[1] == 'V';
  bool raw = found->descr[1] == 'V' || found->descr[1] == 'u';
  return nameless && raw && wanted->bytes == found->bytes ? *wanted : *found;
}

/// From Fortran order, first dimension fastest, to C order.
std::string reordered(const std::string& data, const std::vector<int64_t>& dims, int64_t size) {
  std::string out(data.size(), '\0');
  std::vector<int64_t> index(dims.size());
  auto step = static_cast<size_t>(size);
  for (size_t target = 0; target < out.size(); target += step) {
    int64_t source = 0;
    for (size_t axis = dims.size(); axis-- > 0;) source = source * dims[axis] + index[axis];
    std::memcpy(&out[target], &data[static_cast<size_t>(source) * step], step);
    for (size_t axis = dims.size(); axis-- > 0 && ++index[axis] == dims[axis];) index[axis] = 0;
  }
  return out;
}

}  // namespace

plait_api::Tensor read_npy(const std::string& path, plait_dtype expected) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot be read");
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 10 || bytes.compare(0, 6, "\x93NUMPY") != 0) fail(path, "is no .npy file");
  size_t width = bytes[6] == 1 ? 2 : 4, length = 0;
  if (bytes[6] < 1 || bytes[6] > 3 || bytes.size() < 8 + width) fail(path, "is of an unknown .npy version");
  for (size_t i = width; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[8 + i]);
  size_t start = 8 + width + length;
  if (start > bytes.size()) fail(path, "is truncated");
  Header header = parse_header(path, std::string_view(bytes).substr(8 + width, length));
  const Row& row = choose_row(path, header.descr, expected);
  // Divisions, so that no product overflows.
  int64_t elements = static_cast<int64_t>(bytes.size() - start) / row.bytes, left = elements;
  bool empty = std::find(header.dims.begin(), header.dims.end(), 0) != header.dims.end();
  for (int64_t size : header.dims) left = empty ? 0 : size > 0 && left % size == 0 ? left / size : -1;
  if ((empty ? elements != 0 : left != 1) || elements * row.bytes != static_cast<int64_t>(bytes.size() - start)) {
    fail(path, "differs in size from its header");
  }
  std::string data = bytes.substr(start);
  if (header.fortran && header.dims.size() > 1) data = reordered(data, header.dims, row.bytes);
  return plait_api::Tensor::copy(row.dtype, header.dims, data.data(), static_cast<int64_t>(data.size()));
}

void write_npy(const std::string& path, const plait_view& tensor) {
  const Row* row = row_of(tensor.dtype);
  if (!row) fail(path, "elements of dtype " + std::to_string(tensor.dtype) + " cannot be written as .npy");
  std::string shape = "(";
  for (int32_t axis = 0; axis < tensor.rank; ++axis)
    shape += std::to_string(tensor.dims[axis]) + (tensor.rank == 1 ? "," : axis + 1 < tensor.rank ? ", " : "");
  std::string header =
      std::string("{'descr': '") + row->descr + "', 'fortran_order': False, 'shape': " + shape + "), }";
  // The data begin at a multiple of 64 bytes; the header ends with a newline.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(header.size() & 0xFF);
  start += static_cast<char>(header.size() >> 8);
  std::ofstream file(path, std::ios::binary);
  file << start << header;
  file.write(static_cast<const char*>(tensor.data), tensor.bytes);
  file.close();
  if (!file) fail(path, "cannot be written");
}

}  // namespace plait::cli
