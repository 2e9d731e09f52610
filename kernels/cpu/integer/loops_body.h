// The loops of loops.h for one instruction set: included by each loops_*.cc inside its own
// namespace, after its includes. Written so that the compiler vectorises them. No include guard.

inline int64_t TowardsZero(int64_t x, int shift) {
  return (x + ((x >> 63) & ((int64_t{1} << shift) - 1))) >> shift;
}

// kVectorBytes int8 lanes, in one register of the instruction set.
typedef int8_t Bytes __attribute__((vector_size(kVectorBytes)));

inline Bytes LoadBytes(const int8_t* from) {
  Bytes bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return bytes;
}

void MaxOfTaps(const int8_t* const* x, int taps, int64_t channels, int8_t* y, uint8_t* tap_of_max) {
  int64_t c = 0;
  for (; c + kVectorBytes <= channels; c += kVectorBytes) {
    Bytes best = LoadBytes(x[0] + c);
    Bytes tap = {};
    for (int t = 1; t < taps; ++t) {
      const Bytes values = LoadBytes(x[t] + c);
      const Bytes number = tap * 0 + static_cast<int8_t>(t);
      const auto larger = values > best;
      tap = larger ? number : tap;
      best = larger ? values : best;
    }
    __builtin_memcpy(y + c, &best, sizeof(best));
    if (tap_of_max != nullptr) __builtin_memcpy(tap_of_max + c, &tap, sizeof(tap));
  }
  for (; c < channels; ++c) {
    int8_t best = x[0][c];
    uint8_t tap = 0;
    for (int t = 1; t < taps; ++t) {
      if (x[t][c] <= best) continue;
      best = x[t][c];
      tap = static_cast<uint8_t>(t);
    }
    y[c] = best;
    if (tap_of_max != nullptr) tap_of_max[c] = tap;
  }
}

void ScatterTaps(const int8_t* dy, const uint8_t* tap_of_max, const uint8_t* numbers, int taps,
                 int64_t channels, int8_t* const* dx) {
  for (int t = 0; t < taps; ++t) {
    int8_t* to = dx[t];
    const uint8_t number = numbers[t];
    for (int64_t c = 0; c < channels; ++c) to[c] = tap_of_max[c] == number ? dy[c] : int8_t{0};
  }
}

void Relu(const int8_t* x, int64_t n, int8_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : int8_t{0};
}

void ReluGradient(const int8_t* dy, const int8_t* y, int64_t n, int8_t* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] > 0 ? dy[i] : int8_t{0};
}

int32_t MaxAbsI8(const int8_t* x, int64_t n) {
  int8_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int8_t magnitude = static_cast<int8_t>(x[i] < 0 ? -x[i] : x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

int32_t WeightedSum(const int8_t* a, int32_t a_factor, const int8_t* b, int32_t b_factor, int64_t n,
                    int32_t* sums) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t sum = a[i] * a_factor + b[i] * b_factor;
    sums[i] = sum;
    const int32_t magnitude = sum < 0 ? -sum : sum;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

void AddToSums(const int8_t* x, int64_t channels, int32_t* sums) {
  for (int64_t c = 0; c < channels; ++c) sums[c] += x[c];
}

template <typename T>
int64_t AddShifted(const T* added, int added_shift, int total_shift, bool first, int64_t n,
                   int64_t* total) {
  int64_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t old = first ? 0 : TowardsZero(total[i], total_shift);
    const int64_t sum = old + TowardsZero(added[i], added_shift);
    total[i] = sum;
    const int64_t magnitude = sum < 0 ? -sum : sum;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

int64_t AddShiftedI32(const int32_t* added, int added_shift, int total_shift, bool first, int64_t n,
                      int64_t* total) {
  return AddShifted(added, added_shift, total_shift, first, n, total);
}

int64_t AddShiftedI64(const int64_t* added, int added_shift, int total_shift, bool first, int64_t n,
                      int64_t* total) {
  return AddShifted(added, added_shift, total_shift, first, n, total);
}

void UpdateI64(const int8_t* w, const int64_t* g, int shift, int64_t n, int8_t* out) {
  const int half = shift / 2;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t magnitude = g[i] < 0 ? -g[i] : g[i];
    const int64_t residue = magnitude & ((int64_t{1} << shift) - 1);
    const int64_t high = residue >> half;
    const int64_t low = (residue & ((int64_t{1} << half) - 1)) << (shift % 2);
    int64_t rounded = (magnitude >> shift) + (high > low ? 1 : 0);
    rounded = rounded > 127 ? 127 : rounded;
    int64_t updated = w[i] - (g[i] < 0 ? -rounded : rounded);
    updated = updated > 127 ? 127 : updated;
    out[i] = static_cast<int8_t>(updated < -127 ? -127 : updated);
  }
}

constexpr IntegerLoops MakeLoops(const char* name) {
  return {name,        MaxOfTaps, ScatterTaps,   Relu,          ReluGradient, MaxAbsI8,
          WeightedSum, AddToSums, AddShiftedI32, AddShiftedI64, UpdateI64};
}
