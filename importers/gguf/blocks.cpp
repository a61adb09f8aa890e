#include "importers/gguf/blocks.h"

#include <array>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::gguf {
namespace {

float half(const uint8_t* at) {
  Float16 out;
  std::memcpy(&out.bits, at, 2);
  return to_float(out);
}

/// A block's codes, each below 2^bits, and for each group of them what a code c stands for: scale (c - zero) or scale c - minimum.
struct Codes {
  std::array<uint8_t, 256> codes;
  std::array<float, 16> scales, minimums;  ///< minimums: only of types that have them
};

/// How a type's blocks are read.
struct Layout {
  Type type;
  const char* name;
  BlockForm form;
  int bits = 0;   ///< of its codes; 0: floats
  int group = 0;  ///< elements with one scale
  int zero = 0;   ///< the code of 0; -1: there are minimums
  void (*read)(const uint8_t* block, Codes& out) = nullptr;
};

void read_q4_0(const uint8_t* block, Codes& out) {
  out.scales[0] = half(block);
  for (size_t i = 0; i < 16; ++i) out.codes[i] = block[2 + i] & 15, out.codes[16 + i] = block[2 + i] >> 4;
}

void read_q4_1(const uint8_t* block, Codes& out) {
  out.scales[0] = half(block);
  out.minimums[0] = -half(block + 2);
  for (size_t i = 0; i < 16; ++i) out.codes[i] = block[4 + i] & 15, out.codes[16 + i] = block[4 + i] >> 4;
}

/// Four bits of each code, and a fifth in a word for the block.
void read_fifth_bits(const uint8_t* high, const uint8_t* low, Codes& out) {
  uint32_t fifth;
  std::memcpy(&fifth, high, 4);
  for (size_t i = 0; i < 16; ++i) {
    out.codes[i] = static_cast<uint8_t>((low[i] & 15) | (fifth >> i & 1) << 4);
    out.codes[16 + i] = static_cast<uint8_t>(low[i] >> 4 | (fifth >> (16 + i) & 1) << 4);
  }
}

void read_q5_0(const uint8_t* block, Codes& out) {
  out.scales[0] = half(block);
  read_fifth_bits(block + 2, block + 6, out);
}

void read_q5_1(const uint8_t* block, Codes& out) {
  out.scales[0] = half(block);
  out.minimums[0] = -half(block + 2);
  read_fifth_bits(block + 4, block + 8, out);
}

void read_q8_0(const uint8_t* block, Codes& out) {
  out.scales[0] = half(block);
  for (size_t i = 0; i < 32; ++i) out.codes[i] = static_cast<uint8_t>(block[2 + i] + 128);
}

/// Eight scales and minimums of 6 bits in 12 bytes.
void read_k_scales(const uint8_t* block, Codes& out) {
  const float d = half(block), least = half(block + 2);
  const uint8_t* packed = block + 4;
  for (size_t i = 0; i < 8; ++i) {
    const int scale = i < 4 ? packed[i] & 63 : (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
    const int minimum = i < 4 ? packed[i + 4] & 63 : packed[i + 4] >> 4 | (packed[i] >> 6) << 4;
    out.scales[i] = d * static_cast<float>(scale);
    out.minimums[i] = least * static_cast<float>(minimum);
  }
}

void read_q4_k(const uint8_t* block, Codes& out) {
  read_k_scales(block, out);
  for (size_t pair = 0; pair < 4; ++pair)
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t both = block[16 + 32 * pair + i];
      out.codes[64 * pair + i] = both & 15, out.codes[64 * pair + 32 + i] = both >> 4;
    }
}

void read_q5_k(const uint8_t* block, Codes& out) {
  read_k_scales(block, out);
  const uint8_t *high = block + 16, *low = block + 48;
  for (size_t pair = 0; pair < 4; ++pair)
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t both = low[32 * pair + i];
      out.codes[64 * pair + i] = static_cast<uint8_t>((both & 15) | (high[i] >> 2 * pair & 1) << 4);
      out.codes[64 * pair + 32 + i] = static_cast<uint8_t>(both >> 4 | (high[i] >> (2 * pair + 1) & 1) << 4);
    }
}

void read_q6_k(const uint8_t* block, Codes& out) {
  const uint8_t *low = block, *high = block + 128, *scales = block + 192;
  const float d = half(block + 208);
  for (size_t i = 0; i < 16; ++i) out.scales[i] = d * static_cast<float>(static_cast<int8_t>(scales[i]));
  for (size_t part = 0; part < 2; ++part)
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t first = low[64 * part + i], second = low[64 * part + 32 + i], top = high[32 * part + i];
      uint8_t* to = &out.codes[128 * part + i];
      to[0] = static_cast<uint8_t>((first & 15) | (top & 3) << 4);
      to[32] = static_cast<uint8_t>((second & 15) | (top >> 2 & 3) << 4);
      to[64] = static_cast<uint8_t>(first >> 4 | (top >> 4 & 3) << 4);
      to[96] = static_cast<uint8_t>(second >> 4 | (top >> 6) << 4);
    }
}

constexpr Layout layouts[] = {
    {Type::f32, "f32", {1, 4}},
    {Type::f16, "f16", {1, 2}},
    {Type::bf16, "bf16", {1, 2}},
    {Type::q4_0, "q4_0", {32, 18}, 4, 32, 8, read_q4_0},
    {Type::q4_1, "q4_1", {32, 20}, 4, 32, -1, read_q4_1},
    {Type::q5_0, "q5_0", {32, 22}, 5, 32, 16, read_q5_0},
    {Type::q5_1, "q5_1", {32, 24}, 5, 32, -1, read_q5_1},
    {Type::q8_0, "q8_0", {32, 34}, 8, 32, 128, read_q8_0},
    {Type::q4_k, "q4_k", {256, 144}, 4, 32, -1, read_q4_k},
    {Type::q5_k, "q5_k", {256, 176}, 5, 32, -1, read_q5_k},
    {Type::q6_k, "q6_k", {256, 210}, 6, 16, 32, read_q6_k},
};

const Layout* layout_of(Type type) {
  for (const Layout& one : layouts)
    if (one.type == type) return &one;
  return nullptr;
}

DType float_of(Type type) { return type == Type::f32 ? DType::f32 : type == Type::f16 ? DType::f16 : DType::bf16; }

const uint8_t* bytes_of(const Entry& entry) { return reinterpret_cast<const uint8_t*>(entry.data()); }

}  // namespace

std::string type_name(Type type) {
  const Layout* found = layout_of(type);
  return found ? found->name : cat("type ", static_cast<uint32_t>(type));
}

BlockForm form_of(Type type, const std::string& tensor) {
  if (const Layout* found = layout_of(type)) return found->form;
  std::string known;
  for (const Layout& one : layouts) known += cat(known.empty() ? "" : ", ", one.name);
  throw Error(Code::unsupported,
              cat("the tensor ", quote(tensor), " is of ggml's ", type_name(type), ", which cannot be read"),
              cat("use a file of ", known));
}

Tensor dequantised(const Entry& entry) {
  const Layout& layout = *layout_of(entry.type);
  Tensor out(DType::f32, entry.shape);
  float* to = reinterpret_cast<float*>(out.data());
  const uint8_t* from = bytes_of(entry);
  const int64_t elements = entry.shape.elements();
  if (!layout.read) {
    for (int64_t i = 0; i < elements; ++i) {
      if (entry.type == Type::f32) std::memcpy(to + i, from + 4 * i, 4);
      else if (entry.type == Type::f16) to[i] = half(from + 2 * i);
      else {
        BFloat16 one;
        std::memcpy(&one.bits, from + 2 * i, 2);
        to[i] = to_float(one);
      }
    }
    return out;
  }
  Codes block{};
  for (int64_t at = 0; at < elements; at += layout.form.elements, from += layout.form.bytes) {
    layout.read(from, block);
    for (int64_t i = 0; i < layout.form.elements; ++i) {
      const auto group = static_cast<size_t>(i / layout.group);
      const int code = block.codes[static_cast<size_t>(i)];
      to[at + i] = layout.zero < 0 ? block.scales[group] * static_cast<float>(code) - block.minimums[group]
                                   : block.scales[group] * static_cast<float>(code - layout.zero);
    }
  }
  return out;
}

decoder::Weight weight_of(const Entry& entry) {
  const Layout& layout = *layout_of(entry.type);
  if (!layout.read) return {.tensor = Tensor(float_of(entry.type), entry.shape, entry.blob, entry.offset)};
  const int64_t k = entry.shape.back(1), n = entry.shape.elements() / k, groups = k / layout.group;
  const int bits = layout.bits > 4 ? 8 : 4;  // what other engines read, too
  decoder::Weight out{.tensor = Tensor(DType::u8, Shape{n, groups, int64_t{layout.group} * bits / 8})};
  decoder::Weight::Blocks blocks{.bits = bits, .block = layout.group, .scales = Tensor(DType::f32, Shape{n, groups})};
  const bool has_zeros = layout.zero != 1 << (bits - 1);
  if (has_zeros) blocks.zeros = Tensor(DType::f32, Shape{n, groups});
  auto* codes = reinterpret_cast<uint8_t*>(out.tensor.data());
  auto* scales = reinterpret_cast<float*>(blocks.scales.data());
  float* zeros = has_zeros ? reinterpret_cast<float*>(blocks.zeros->data()) : nullptr;
  const uint8_t* from = bytes_of(entry);
  Codes block{};
  for (int64_t at = 0; at < n * k; at += layout.form.elements, from += layout.form.bytes) {
    layout.read(from, block);
    for (int64_t i = 0; i < layout.form.elements / layout.group; ++i) {
      const auto group = static_cast<size_t>(i);
      float scale = block.scales[group], zero = static_cast<float>(layout.zero);
      if (layout.zero < 0 && scale == 0 && block.minimums[group] != 0) {
        // All elements are the same: code 0 is -minimum.
        scale = block.minimums[group], zero = 1;
        std::fill_n(block.codes.begin() + i * layout.group, layout.group, uint8_t{0});
      } else if (layout.zero < 0) {
        zero = scale == 0 ? 0 : block.minimums[group] / scale;
      }
      *scales++ = scale;
      if (zeros) *zeros++ = zero;
    }
    for (int64_t i = 0; i < layout.form.elements; i += 8 / bits) {
      const auto* code = &block.codes[static_cast<size_t>(i)];
      *codes++ = bits == 8 ? code[0] : static_cast<uint8_t>(code[0] | code[1] << 4);
    }
  }
  out.blocks = std::move(blocks);
  return out;
}

}  // namespace plait::gguf
