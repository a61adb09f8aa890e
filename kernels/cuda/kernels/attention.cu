// Attention over pages of keys and values (Kwon et al. 2023), causal, of few tokens or many, in splits (Dao et al., Flash-Decoding 2023).
#include "kernels/cuda/kernels/attention.h"

#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/sums.h"

namespace plait::cuda {
namespace {

/// The keys of a token: [first, end) of its segment; empty if the token is of none, or its operands are out of range.
struct Keys {
  int64_t segment;
  int first, end;
};

PLAIT_DEVICE Keys keys_of(const AttentionOperands& o, int64_t token) {
  const int64_t segment = load_index(o.segments, token), position = load_index(o.positions, token);
  const Keys none{-1, 0, 0};
  if (segment == -1) return none;
  if (segment < 0 || segment >= o.segment_count) {
    report_index(o.report, 4, segment);
    return none;
  }
  if (position < 0 || position >= static_cast<int64_t>(o.columns) * o.c) {
    report_index(o.report, 3, position);
    return none;
  }
  const int end = static_cast<int>(position) + 1;
  return {segment, o.window > 0 && end > o.window ? end - o.window : 0, end};
}

/// exp(low - high), of which low may be -infinity.
PLAIT_DEVICE float shrunk(float low, float high) { return low == -INFINITY ? 0 : __expf(low - high); }

/// What has been joined of a head: the largest score, and the sum of exponentials relative to it.
struct Joined {
  float most, sum;
};

/// In one way, wherever the compiler would contract it in another.
PLAIT_DEVICE float joined_value(float value, float of_part, float2 factors) {
  return fmaf(of_part, factors.y, value * factors.x);
}

/// Adds a part; returns what the values so far, and those of the part, are multiplied with.
PLAIT_DEVICE float2 join(Joined& joined, float most, float sum) {
  const float now = fmaxf(joined.most, most);
  const float2 factors{shrunk(joined.most, now), shrunk(most, now)};
  joined = {now, joined_value(joined.sum, sum, factors)};
  return factors;
}
/// What the values are multiplied with in the end. `sink`: a score without a value; -infinity if there is none.
PLAIT_DEVICE float normalizer(const Joined& joined, float sink) {
  const float now = fmaxf(joined.most, sink);
  return shrunk(joined.most, now) / fmaf(joined.sum, shrunk(joined.most, now), shrunk(sink, now));
}
PLAIT_DEVICE float sink_of(const AttentionOperands& o, int head) {
  return o.sinks ? load_element(o.sinks, o.sink_element, head) : -INFINITY;
}

/// The place of a key's page in its array; -1, with a report, if it is none.
PLAIT_DEVICE int64_t page_of(const AttentionOperands& o, int64_t segment, int key) {
  const int64_t page = load_index(o.pages, segment * o.columns + key / o.c);
  if (page >= 0 && page < o.page_count) return page;
  report_index(o.report, 5, page);
  return -1;
}

/// scores [head][key] of the keys [begin, end). query [head][d] is scaled.
template <class T>
PLAIT_DEVICE void score(const AttentionOperands& o, const float* query, float* scores, const Keys& keys, int group, int first_head,
                        int heads, int begin, int end) {
  for (int key = begin + threadIdx.x; key < end; key += attention_threads) {
    float dots[heads_of_block];
#pragma unroll
    for (int head = 0; head < heads_of_block; ++head) dots[head] = 0;
    const int64_t page = page_of(o, keys.segment, key);
    const T* column = static_cast<const T*>(o.keys) + (page * o.g + group) * o.d * o.c + key % o.c;
    for (int i = 0; page >= 0 && i < o.d; ++i) {
      const float k = value_of(column[static_cast<int64_t>(i) * o.c]);
#pragma unroll
      for (int head = 0; head < heads_of_block; ++head) dots[head] += query[head * o.d + i] * k;
    }
#pragma unroll
    for (int head = 0; head < heads_of_block; ++head) {
      if (head >= heads) continue;
      float dot = dots[head];
      if (o.softcap > 0) dot = o.softcap * tanhf(dot / o.softcap);
      if (o.slopes) dot += load_element(o.slopes, o.slope_element, first_head + head) * static_cast<float>(key + 1 - keys.end);
      scores[head * split_keys + (key - begin)] = dot;
    }
  }
}

/// Scores become exponentials relative to the largest. A warp a head; each lane of it returns the head's.
PLAIT_DEVICE Joined exponentials(float* scores, int count) {
  const int lane = threadIdx.x % 32;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < count; i += 32) most = fmaxf(most, scores[i]);
  most = warp_max(most);
  for (int i = lane; i < count; i += 32) {
    scores[i] = __expf(scores[i] - most);
    sum += scores[i];
  }
  return {most, warp_sum(sum)};
}

template <class T>
PLAIT_DEVICE void attend(const AttentionOperands& o) {
  PLAIT_DYNAMIC_SHARED(float, memory);
  PLAIT_SHARED(Joined, parts, heads_of_block);
  const int64_t token = blockIdx.x;
  const int head_blocks = (o.r + heads_of_block - 1) / heads_of_block, group = blockIdx.y / head_blocks;
  const int first = blockIdx.y % head_blocks * heads_of_block, heads = min(o.r - first, heads_of_block);
  const int first_head = group * o.r + first;
  float *const query = memory, *const scores = query + heads_of_block * o.d, *const values = scores + heads_of_block * split_keys;
  const int64_t row = token * o.g * o.r + first_head;
  for (int i = threadIdx.x; i < heads_of_block * o.d; i += attention_threads)
    query[i] = i < heads * o.d ? o.q[row * o.d + i] * o.scale : 0;
  for (int i = threadIdx.x; i < heads * o.e; i += attention_threads) values[i] = 0;
  Joined joined[heads_of_block];
#pragma unroll
  for (int head = 0; head < heads_of_block; ++head) joined[head] = {-INFINITY, 0};
  __syncthreads();
  const Keys keys = keys_of(o, token);
  const bool one_split = o.parts != nullptr;
  const int splits = (keys.end + split_keys - 1) / split_keys;
  const int first_split = one_split ? blockIdx.z : keys.first / split_keys;
  const int end_split = one_split ? min(splits, static_cast<int>(blockIdx.z) + 1) : splits;
  for (int split = first_split; split < end_split; ++split) {
    const int begin = max(keys.first, split * split_keys), end = min(keys.end, (split + 1) * split_keys);
    if (begin >= end) continue;
    score<T>(o, query, scores, keys, group, first_head, heads, begin, end);
    __syncthreads();
    for (int head = threadIdx.x / 32; head < heads; head += attention_threads / 32) {
      const Joined part = exponentials(scores + head * split_keys, end - begin);
      if (threadIdx.x % 32 == 0) parts[head] = part;
    }
    __syncthreads();
    float2 factors[heads_of_block];
#pragma unroll
    for (int head = 0; head < heads_of_block; ++head)
      if (head < heads) factors[head] = join(joined[head], parts[head].most, parts[head].sum);
    for (int column = threadIdx.x; column < o.e; column += attention_threads) {
      float sums[heads_of_block];
#pragma unroll
      for (int head = 0; head < heads_of_block; ++head) sums[head] = 0;
      for (int key = begin; key < end;) {
        const int64_t page = page_of(o, keys.segment, key);
        const int stop = min(end, (key / o.c + 1) * o.c);
        const T* value = static_cast<const T*>(o.values) + ((page * o.g + group) * o.c + key % o.c) * o.e + column;
        for (; key < stop && page >= 0; ++key, value += o.e) {
          const float v = value_of(*value);
#pragma unroll
          for (int head = 0; head < heads_of_block; ++head)
            if (head < heads) sums[head] += scores[head * split_keys + (key - begin)] * v;
        }
        key = stop;
      }
#pragma unroll
      for (int head = 0; head < heads_of_block; ++head)
        if (head < heads) values[head * o.e + column] = joined_value(values[head * o.e + column], sums[head], factors[head]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int head = 0; head < heads_of_block; ++head) {
    if (head >= heads) continue;
    if (one_split) {
      float* const part = o.parts + ((row + head) * gridDim.z + blockIdx.z) * (o.e + 2);
      for (int i = threadIdx.x; i < o.e; i += attention_threads) part[i] = values[head * o.e + i];
      if (threadIdx.x == 0) part[o.e] = joined[head].most, part[o.e + 1] = joined[head].sum;
    } else {
      const float factor = keys.end ? normalizer(joined[head], sink_of(o, first_head + head)) : 0;
      for (int i = threadIdx.x; i < o.e; i += attention_threads) o.y[(row + head) * o.e + i] = values[head * o.e + i] * factor;
    }
  }
}

}  // namespace

PLAIT_KERNEL(attend_f32, attention_threads, 4, (AttentionOperands operands)) { attend<float>(operands); }
PLAIT_KERNEL(attend_bf16, attention_threads, 4, (AttentionOperands operands)) { attend<Bf16>(operands); }
PLAIT_KERNEL(attend_f16, attention_threads, 4, (AttentionOperands operands)) { attend<F16>(operands); }

/// Joins the parts of a token and head, in the order of a block that has all of them.
PLAIT_KERNEL(join_attention, attention_threads, 8, (AttentionOperands o, int32_t splits)) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  const float* const parts = o.parts + row * splits * (o.e + 2);
  for (int column = threadIdx.x; column < o.e; column += attention_threads) {
    Joined joined{-INFINITY, 0};
    float value = 0;
    for (int split = 0; split < splits; ++split) {
      const float* const part = parts + static_cast<int64_t>(split) * (o.e + 2);
      if (part[o.e] == -INFINITY) continue;
      const float2 factors = join(joined, part[o.e], part[o.e + 1]);
      value = joined_value(value, part[column], factors);
    }
    const float factor = joined.most == -INFINITY ? 0 : normalizer(joined, sink_of(o, blockIdx.y));
    o.y[row * o.e + column] = value * factor;
  }
}

}  // namespace plait::cuda
