#pragma once

// A clock that goes as the test says.

#include <cstdint>

#include "proto/crypto/identity.h"

namespace runnel {

inline constexpr int64_t kHour = 3600, kDay = 24 * kHour;
inline constexpr int64_t kStart = 1'800'000'000;

struct FakeTime {
  int64_t now_s = kStart;
  WallClock clock() {
    return [this] { return now_s; };
  }
};

}  // namespace runnel
