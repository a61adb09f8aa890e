// plait.PackedAttention is plait.PagedAttention of the same tokens, whose keys lie in pages instead.
#include "kernels/reference/reference.h"
#include "tests/unit/support/kernel_test.h"

namespace plait::test::packed_attention {
namespace {

constexpr int64_t b = 2, t = 7, g = 2, r = 2, d = 4, e = 6, page = 4;

Tensor random(const Shape& shape, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor out(DType::f64, shape);
  for (int64_t i = 0; i < out.elements(); ++i) set_element(out, i, normal(generator));
  return out;
}

Tensor numbers(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>(DType::i32, shape, values);
}

TEST(PackedAttention, IsPagedAttentionOfTheSameTokens) {
  KernelTable kernels;
  register_reference_kernels(kernels);
  // Segments of 5, 2, 3 and 1 tokens; the last begins after padding.
  const std::vector<int32_t> segments{0, 0, 0, 0, 0, 1, 1, 2, 2, 2, -1, -1, -1, 3};
  const std::vector<int32_t> positions{0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 0, 0, 0, 0};
  std::vector<int32_t> slots;
  for (size_t i = 0; i < segments.size(); ++i)
    slots.push_back(segments[i] < 0 ? -1 : segments[i] * 2 * static_cast<int32_t>(page) + positions[i]);
  const Shape tokens{b, t};
  const Tensor q = random({b, t, g * r, d}, 1), k = random({b, t, g, d}, 2), v = random({b, t, g, e}, 3);
  const Tensor sinks = random({g * r}, 4), slopes = random({g * r}, 5);
  const Shape key_pages{8, g, d, page}, value_pages{8, g, page, e};
  const auto pages =
      run_op(kernels, "plait.KvWrite", {},
             {Tensor(DType::f64, key_pages), Tensor(DType::f64, value_pages), k, v, numbers(tokens, slots)},
             {{DType::f64, key_pages}, {DType::f64, value_pages}});
  for (const auto& [window, softcap, more] :
       {std::tuple{0, 0.0, false}, {2, 0.0, false}, {0, 1.5, true}, {3, 2.0, true}}) {
    Attributes attributes;
    attributes.set("scale", 0.4);
    attributes.set("window", int64_t{window});
    attributes.set("softcap", softcap);
    std::vector<Tensor> paged{q,
                              pages[0],
                              pages[1],
                              numbers(tokens, positions),
                              numbers(tokens, segments),
                              numbers({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7})},
        packed{q, k, v, numbers(tokens, segments)};
    for (std::vector<Tensor>* inputs : {&paged, &packed})
      if (more) inputs->insert(inputs->end(), {sinks, slopes});
    const Shape out{b, t, g * r, e};
    const Tensor expected = run_op(kernels, "plait.PagedAttention", attributes, paged, {{DType::f64, out}})[0];
    const Tensor got = run_op(kernels, "plait.PackedAttention", attributes, packed,
                              {{DType::f64, out}, {DType::f64, {b, t, g * r}}})[0];
    for (int64_t i = 0; i < got.elements(); ++i)
      ASSERT_NEAR(element(got, i), element(expected, i), 1e-14) << "element " << i << ", window " << window;
  }
}

}  // namespace
}  // namespace plait::test::packed_attention
