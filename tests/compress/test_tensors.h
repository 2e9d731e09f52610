#pragma once

// Tensors that codecs find hard, from a seed.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "proto/base/random.h"

namespace runnel {

struct NamedTensor {
  std::string name;
  std::vector<float> values;
};

inline std::vector<float> NormalTensor(size_t n, uint64_t seed, double scale = 1.0) {
  const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
  std::vector<float> x(n);
  for (size_t e = 0; e < n; ++e) x[e] = static_cast<float>(scale * random.Normal(e));
  return x;
}

// n elements of each kind.
inline std::vector<NamedTensor> HardTensors(size_t n, uint64_t seed) {
  std::vector<NamedTensor> all;
  const std::vector<float> normal = NormalTensor(n, seed);
  const auto add = [&](const char* name, auto value) {
    std::vector<float> x(n);
    for (size_t e = 0; e < n; ++e) x[e] = value(e);
    all.push_back({name, std::move(x)});
  };
  add("normal", [&](size_t e) { return normal[e]; });
  add("relu", [&](size_t e) { return normal[e] > 0 ? normal[e] : 0.0f; });
  add("shifted", [&](size_t e) { return normal[e] + 3.0f; });
  add("heavy tail", [&](size_t e) { return normal[e] * normal[e] * normal[e]; });
  add("zeros", [](size_t) { return 0.0f; });
  add("signed zeros", [](size_t e) { return e % 3 == 0 ? -0.0f : 0.0f; });
  add("constant", [](size_t) { return 1.75f; });
  add("two values", [](size_t e) { return e % 5 < 2 ? -0.5f : 2.0f; });
  add("one spike", [n](size_t e) { return e == n / 2 ? -1000.0f : 0.001f; });
  add("denormal", [&](size_t e) { return normal[e] * 1e-41f; });
  add("smallest", [&](size_t e) { return normal[e] > 0 ? 0x1p-149f : -0x1p-149f; });
  add("tiny", [&](size_t e) { return normal[e] * 1e-33f; });
  add("huge", [](size_t e) {
    const float top = std::numeric_limits<float>::max();
    return e % 4 == 0 ? -top : e % 4 == 1 ? top : top / static_cast<float>(e + 1);
  });
  add("mixed scales",
      [&](size_t e) { return std::ldexp(normal[e], static_cast<int>(e % 60) - 30); });
  return all;
}

}  // namespace runnel
