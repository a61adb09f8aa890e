// DFT, STFT and MelWeightMatrix.
#include <cmath>
#include <complex>
#include <numbers>

#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/signal/register.h"

namespace plait::reference {
namespace {

using Complex = std::complex<double>;

/// The Fourier transform of one length. Mixed radix, decimated in time (Cooley and Tukey 1965): n log n for lengths of small
/// factors, n p for a prime factor p.
class Transform {
 public:
  Transform(int64_t n, bool inverse) : n_(n), roots_(static_cast<size_t>(n)) {
    const double turn = (inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(std::max<int64_t>(n, 1));
    for (int64_t i = 0; i < n; ++i) roots_[static_cast<size_t>(i)] = std::polar(1.0, turn * static_cast<double>(i));
  }

  /// `x` and `y` hold n numbers each.
  void run(const Complex* x, Complex* y) const {
    std::vector<Complex> scratch(static_cast<size_t>(n_));
    part(x, 1, n_, y, scratch.data());
  }

 private:
  static int64_t factor_of(int64_t n) {
    for (int64_t p = 2; p * p <= n; ++p)
      if (n % p == 0) return p;
    return n;
  }

  /// The transform of x[0], x[step], ... x[(n - 1) step].
  void part(const Complex* x, int64_t step, int64_t n, Complex* y, Complex* scratch) const {
    if (n <= 1) {
      if (n == 1) y[0] = x[0];
      return;
    }
    const int64_t p = factor_of(n), m = n / p, turn = n_ / n;  // n-th roots are every turn-th
    for (int64_t k = 0; k < p; ++k) part(x + k * step, step * p, m, y + k * m, scratch + k * m);
    StopCheck stop;
    for (int64_t i = 0; i < n; ++i) {
      stop.count(p);
      Complex sum = 0;
      for (int64_t k = 0; k < p; ++k) sum += y[k * m + i % m] * roots_[static_cast<size_t>(i * k % n * turn)];
      scratch[i] = sum;
    }
    std::copy_n(scratch, n, y);
  }

  int64_t n_;
  std::vector<Complex> roots_;
};

struct DftAttributes {
  explicit DftAttributes(const NodeInfo& node)
      : inverse(node.attributes.integer("inverse", 0) != 0),
        onesided(node.attributes.integer("onesided", node.op == "STFT" ? 1 : 0) != 0) {}
  bool inverse, onesided;
};

int64_t number_or(const KernelCall& call, size_t k, int64_t fallback) {
  const TensorView view = input(call, k);
  return view.present() && view.elements() ? load_one<int64_t>(view, 0) : fallback;
}

/// x with `length` elements of the axis, cut or padded with zeros -> its transform; a one-sided inverse takes the other half of
/// the spectrum for the conjugate of the given one, and is real.
KernelStatus dft(const KernelCall& call, const DftAttributes& a) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int rank = x.shape.rank(), axis = positive_axis(number_or(call, 2, -2), rank);
  if (axis < 0 || axis >= rank - 1) return {KernelCode::bad_value, 2, axis};
  const int64_t parts = x.shape.back(1), in = x.shape[axis], inner = x.shape.elements(axis + 1, rank - 1),
                kept = y.shape[axis];
  if (parts != 1 && parts != 2) return {KernelCode::bad_value, 0, parts};
  const int64_t length = number_or(call, 1, a.inverse && a.onesided ? 2 * (in - 1) : in);
  if (length < 1) return {KernelCode::bad_value, 1, length};
  const Transform transform(length, a.inverse);
  const std::vector<double> data = load_all<double>(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  const int64_t made = y.shape.back(1),
                given = a.inverse && a.onesided ? std::min(in, length / 2 + 1) : std::min(in, length);
  const double scale = a.inverse ? 1 / static_cast<double>(length) : 1;
  share(call.pool, x.shape.elements(0, axis) * inner, y.elements() * 16, [&](int64_t row) {
    std::vector<Complex> from(static_cast<size_t>(length)), to(from.size());
    for (int64_t i = 0; i < given; ++i) {
      const auto at = static_cast<size_t>(((row / inner * in + i) * inner + row % inner) * parts);
      from[static_cast<size_t>(i)] = {data[at], parts == 2 ? data[at + 1] : 0};
    }
    if (a.inverse && a.onesided)
      for (int64_t i = length / 2 + 1; i < length; ++i)
        from[static_cast<size_t>(i)] = std::conj(from[static_cast<size_t>(length - i)]);
    transform.run(from.data(), to.data());
    for (int64_t i = 0; i < kept; ++i) {
      const auto at = static_cast<size_t>(((row / inner * kept + i) * inner + row % inner) * made);
      result[at] = to[static_cast<size_t>(i)].real() * scale;
      if (made == 2) result[at + 1] = to[static_cast<size_t>(i)].imag() * scale;
    }
  });
  store_all(y, result);
  return {};
}

/// signal [b, n, 1 or 2], frame_step, window?, frame_length? -> [b, frames, frequencies, 2].
KernelStatus stft(const KernelCall& call, const DftAttributes&) {
  const TensorView &x = call.inputs[0], window = input(call, 2), &y = call.outputs[0];
  const int64_t step = number_or(call, 1, 0), n = x.shape[1], parts = x.shape[2], frames = y.shape[1],
                kept = y.shape[2];
  const int64_t length = number_or(call, 3, window.present() ? window.shape[0] : n);
  if (step < 1) return {KernelCode::bad_value, 1, step};
  if (parts != 1 && parts != 2) return {KernelCode::bad_value, 0, parts};
  if (length < 1 || length > n) return {KernelCode::bad_value, 3, length};
  if (window.present() && window.shape[0] != length) return {KernelCode::bad_value, 2, window.shape[0]};
  const std::vector<double> weights =
      window.present() ? load_all<double>(window) : std::vector<double>(static_cast<size_t>(length), 1);
  const Transform transform(length, false);
  const std::vector<double> data = load_all<double>(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, x.shape[0] * frames, y.elements() * 16, [&](int64_t row) {
    std::vector<Complex> from(static_cast<size_t>(length)), to(from.size());
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>((row / frames * n + row % frames * step + i) * parts);
      from[static_cast<size_t>(i)] =
          weights[static_cast<size_t>(i)] * Complex(data[at], parts == 2 ? data[at + 1] : 0);
    }
    transform.run(from.data(), to.data());
    for (int64_t i = 0; i < kept; ++i) {
      result[static_cast<size_t>((row * kept + i) * 2)] = to[static_cast<size_t>(i)].real();
      result[static_cast<size_t>((row * kept + i) * 2 + 1)] = to[static_cast<size_t>(i)].imag();
    }
  });
  store_all(y, result);
  return {};
}

/// num_mel_bins, dft_length, sample_rate, lower and upper edge in Hz -> [dft_length / 2 + 1, num_mel_bins]: triangles between
/// the frequencies of equal steps in mel.
KernelStatus mel_weights(const KernelCall& call) {
  const TensorView& y = call.outputs[0];
  const int64_t bands = y.shape[1], rows = y.shape[0], length = number_or(call, 1, 0), rate = number_or(call, 2, 0);
  const auto low_hertz = load_one<double>(call.inputs[3], 0), high_hertz = load_one<double>(call.inputs[4], 0);
  if (rate < 1) return {KernelCode::bad_value, 2, rate};
  if (!(low_hertz >= 0 && low_hertz < 1e12)) return {KernelCode::bad_value, 3, 0};
  if (!(high_hertz >= low_hertz && high_hertz < 1e12)) return {KernelCode::bad_value, 4, 0};
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(low_hertz), step = (mel(high_hertz) - low) / static_cast<double>(bands + 2);
  std::vector<int64_t> bins;  // of the edges
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1);
    const double bin = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(bin >= 0 && bin < static_cast<double>(rows))) return {KernelCode::bad_value, 4, 0};
    bins.push_back(static_cast<int64_t>(bin));
    if (bins.back() < 0 || bins.back() >= rows) return {KernelCode::bad_value, 4, bins.back()};
  }
  std::vector<double> result(static_cast<size_t>(y.elements()));
  for (int64_t band = 0; band < bands; ++band) {
    const auto at = static_cast<size_t>(band);
    const int64_t left = bins[at], centre = bins[at + 1], right = bins[at + 2];
    auto set = [&](int64_t row, double value) { result[static_cast<size_t>(row * bands + band)] = value; };
    if (left == centre) set(centre, 1);
    for (int64_t row = left; left < centre && row <= centre; ++row)
      set(row, static_cast<double>(row - left) / static_cast<double>(centre - left));
    for (int64_t row = centre; row < right; ++row)
      set(row, static_cast<double>(right - row) / static_cast<double>(right - centre));
  }
  store_all(y, result);
  return {};
}

}  // namespace

void add_transforms(KernelTable& table) {
  add<dft>(table, "DFT", floats);
  add<stft>(table, "STFT", floats);
  add<mel_weights>(table, "MelWeightMatrix", integers);
}

}  // namespace plait::reference
