#pragma once

// Slow and obvious sums that the INT8 kernels must equal byte for byte, and memory with guards.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "proto/base/random.h"

namespace runnel::cpu {

inline std::vector<int8_t> RandomMantissas(int64_t count, uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
  std::vector<int8_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<int8_t>(static_cast<int>(random.Below(i, 255)) - 127);
  }
  return values;
}

inline ConvShape MakeShape(int64_t batch, int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                           int64_t kernel_h, int64_t kernel_w, int64_t stride, int64_t pad_h,
                           int64_t pad_w, int64_t groups = 1) {
  ConvShape s{.batch = batch, .in_h = in_h, .in_w = in_w, .in_c = in_c, .out_c = out_c};
  s.kernel_h = kernel_h;
  s.kernel_w = kernel_w;
  s.stride_h = in_h == 1 && kernel_h == 1 ? 1 : stride;
  s.stride_w = stride;
  s.pad_h = pad_h;
  s.pad_w = pad_w;
  s.groups = groups;
  s.out_h = (in_h + 2 * pad_h - kernel_h) / s.stride_h + 1;
  s.out_w = (in_w + 2 * pad_w - kernel_w) / s.stride_w + 1;
  return s;
}

inline std::string Describe(const ConvShape& s) {
  return absl::StrCat("batch ", s.batch, " in ", s.in_h, "x", s.in_w, "x", s.in_c, " out ", s.out_h,
                      "x", s.out_w, "x", s.out_c, " kernel ", s.kernel_h, "x", s.kernel_w,
                      " stride ", s.stride_h, "x", s.stride_w, " pad ", s.pad_h, "x", s.pad_w,
                      " groups ", s.groups);
}

// Calls body(x index, w index, y index) for every product of the convolution.
template <typename Body>
void ForEachProduct(const ConvShape& s, const Body& body) {
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t oy = 0; oy < s.out_h; ++oy)
      for (int64_t ox = 0; ox < s.out_w; ++ox)
        for (int64_t oc = 0; oc < s.out_c; ++oc)
          for (int64_t kh = 0; kh < s.kernel_h; ++kh)
            for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const int64_t iy = oy * s.stride_h + kh - s.pad_h;
              const int64_t ix = ox * s.stride_w + kw - s.pad_w;
              if (iy < 0 || iy >= s.in_h || ix < 0 || ix >= s.in_w) continue;
              const int64_t first = oc / s.group_out() * s.group_in();
              const int64_t x = ((n * s.in_h + iy) * s.in_w + ix) * s.in_c + first;
              const int64_t w = ((oc * s.kernel_h + kh) * s.kernel_w + kw) * s.group_in();
              const int64_t y = ((n * s.out_h + oy) * s.out_w + ox) * s.out_c + oc;
              for (int64_t ic = 0; ic < s.group_in(); ++ic) body(x + ic, w + ic, y);
            }
}

// Operands of one shape and the sums of the three passes.
struct ConvCase {
  ConvCase(const ConvShape& the_shape, uint64_t seed)
      : shape(the_shape),
        x(RandomMantissas(shape.in_elements(), seed)),
        w(RandomMantissas(shape.weight_elements(), seed + 1)),
        dy(RandomMantissas(shape.out_elements(), seed + 2)) {
    Sum();
  }

  void Sum() {
    y.assign(dy.size(), 0);
    dx.assign(x.size(), 0);
    dw.assign(w.size(), 0);
    ForEachProduct(shape, [&](int64_t xi, int64_t wi, int64_t yi) {
      y[yi] += x[xi] * w[wi];
      dx[xi] += dy[yi] * w[wi];
      dw[wi] += dy[yi] * x[xi];
    });
  }

  ConvShape shape;
  std::vector<int8_t> x, w, dy;
  std::vector<int32_t> y, dx;
  std::vector<int64_t> dw;
};

template <typename T>
int64_t LargestOf(const std::vector<T>& values) {
  int64_t largest = 0;
  for (T value : values) largest = std::max<int64_t>(largest, std::abs(int64_t{value}));
  return largest;
}

// A workspace full of rubbish between two guards.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(int64_t bytes)
      : bytes_(bytes), memory_(static_cast<size_t>(bytes + 3 * kGuard), std::byte{0xA5}) {}

  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + ((address + kGuard + 63) / 64 * 64 - address);
  }
  bool intact() {
    const auto rubbish = [](std::byte b) { return b == std::byte{0xA5}; };
    return std::all_of(memory_.data(), data(), rubbish) &&
           std::all_of(data() + bytes_, memory_.data() + memory_.size(), rubbish);
  }

 private:
  static constexpr int64_t kGuard = 256;
  int64_t bytes_;
  std::vector<std::byte> memory_;
};

// The elements of `out` and of the reference that differ, as text; "" if none.
template <typename T, typename U>
std::string FirstDifference(const std::vector<T>& out, const std::vector<U>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (out[i] != expected[i]) {
      return absl::StrCat("element ", i, " is ", out[i], ", not ", expected[i]);
    }
  }
  return "";
}

}  // namespace runnel::cpu
