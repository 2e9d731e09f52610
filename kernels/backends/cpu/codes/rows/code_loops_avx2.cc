#include <immintrin.h>

#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/codes/rows/nine_taps.h"

namespace runnel::cpu {
namespace {

constexpr int kVectorBytes = 32;
void Requantize(const CodeColumns& columns, const SumRows& rows);
#include "kernels/backends/cpu/codes/rows/code_loops_body.inc"

__m256i Load(const int32_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// What eight neighbouring columns need, even and odd lanes apart where products have 64 bits.
struct Eight {
  Eight(const CodeColumns& columns, int64_t c)
      : offset(Load(columns.offsets + c)),
        limit(Load(columns.limits + c)),
        even(Load(columns.multipliers + c)),
        odd(_mm256_srli_epi64(even, 32)) {
    const __m256i shift = Load(columns.shifts + c), one = _mm256_set1_epi64x(1);
    const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
    even_shift = _mm256_and_si256(shift, low);
    odd_shift = _mm256_srli_epi64(shift, 32);
    even_half = _mm256_sllv_epi64(one, _mm256_sub_epi64(even_shift, one));
    odd_half = _mm256_sllv_epi64(one, _mm256_sub_epi64(odd_shift, one));
    weight_zero =
        columns.weight_zeros == nullptr ? _mm256_setzero_si256() : Load(columns.weight_zeros + c);
  }

  __m256i Round(__m256i sum) const {
    const __m256i size = _mm256_min_epu32(_mm256_abs_epi32(sum), limit);
    __m256i left = _mm256_mul_epu32(size, even);
    __m256i right = _mm256_mul_epu32(_mm256_srli_epi64(size, 32), odd);
    left = _mm256_srlv_epi64(_mm256_add_epi64(left, even_half), even_shift);
    right = _mm256_srlv_epi64(_mm256_add_epi64(right, odd_half), odd_shift);
    const __m256i both = _mm256_blend_epi32(left, _mm256_slli_epi64(right, 32), 0xAA);
    return _mm256_sign_epi32(both, sum);
  }

  __m256i offset, limit, even, odd, even_shift, odd_shift, even_half, odd_half, weight_zero;
};

// Codes of columns that round once: what a float beyond 2^23 has behind those of kWhole.
struct OnceCoder {
  explicit OnceCoder(const CodeColumns& columns)
      : whole(_mm256_set1_ps(kWhole + static_cast<float>(columns.zero))),
        lowest(_mm_set1_epi8(static_cast<char>(columns.lowest))),
        highest(_mm_set1_epi8(static_cast<char>(columns.highest))) {}

  __m256i Integers(__m256i sums, __m256 scale) const {
    const __m256 real = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, whole);
    return _mm256_sub_epi32(_mm256_castps_si256(real), _mm256_castps_si256(_mm256_set1_ps(kWhole)));
  }
  // Codes of eight columns, in the low half.
  __m128i Bytes(__m256i sums, __m256 scale) const {
    const __m256i code = Integers(sums, scale);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    return _mm_min_epi8(_mm_max_epi8(_mm_packs_epi16(words, words), lowest), highest);
  }

  static constexpr float kWhole = 12582912;  // 1.5 * 2^23
  __m256 whole;
  __m128i lowest, highest;
};

// How many columns are done: all whole eights. Of columns that round once.
int64_t RequantizeOnce(const CodeColumns& columns, const SumRows& rows) {
  const OnceCoder coder(columns);
  int64_t i = 0;
  for (; i + 8 <= rows.count; i += 8) {
    const __m256i offset = Load(columns.offsets + rows.first + i);
    const __m256 scale = _mm256_loadu_ps(columns.scales + rows.first + i);
    for (int r = 0; r < rows.rows; ++r) {
      const __m256i sum = _mm256_add_epi32(Load(rows.sums[r] + i), offset);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(rows.codes[r] + i), coder.Bytes(sum, scale));
    }
  }
  return i;
}

// Of any columns.
int64_t RequantizeEights(const CodeColumns& columns, const SumRows& rows) {
  const __m256i zero = _mm256_set1_epi32(columns.zero);
  const __m256i lowest = _mm256_set1_epi32(columns.lowest);
  const __m256i highest = _mm256_set1_epi32(columns.highest);
  int64_t i = 0;
  for (; i + 8 <= rows.count; i += 8) {
    const Eight eight(columns, rows.first + i);
    for (int r = 0; r < rows.rows; ++r) {
      __m256i sum = _mm256_add_epi32(Load(rows.sums[r] + i), eight.offset);
      if (columns.weight_zeros != nullptr) {
        const __m256i row = _mm256_set1_epi32(rows.row_sums[r]);
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(eight.weight_zero, row));
      }
      __m256i code = _mm256_add_epi32(eight.Round(sum), zero);
      code = _mm256_min_epi32(_mm256_max_epi32(code, lowest), highest);
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(rows.codes[r] + i),
                       _mm_packs_epi16(words, words));
    }
  }
  return i;
}

void Requantize(const CodeColumns& columns, const SumRows& rows) {
  const int64_t done =
      columns.rounds_once ? RequantizeOnce(columns, rows) : RequantizeEights(columns, rows);
  RequantizeFrom(done, columns, rows);
}

// A block of eight channels: pairs of products of words.
template <bool kIsWhole>
class EightNineTaps {
 public:
  static constexpr int64_t kChannels = 8;
  using Sums = __m256i;
  struct Column {
    __m256i two;  // top and middle, by channel
    __m256i one;  // bottom and what its weight's zero takes out
  };

  EightNineTaps(const CodeColumns& columns, const NineTaps& row, int64_t c, int64_t inside)
      : inside_(inside),
        coder_(columns),
        offset_(cpu::Load(columns.offsets + c)),
        scale_(_mm256_loadu_ps(columns.scales + c)) {
    // Of each channel's four bytes those that become the high bytes of its two words.
    const __m256i two = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
    const __m256i one = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, 2, -1, -1, -1, 6, -1, -1, -1, 10, -1, -1, -1, 14, -1, -1));
    for (int k = 0; k < 3; ++k) {
      const __m256i four = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(row.weights + (c * 3 + k * kChannels) * 4));
      weights_[k].two = _mm256_srai_epi16(_mm256_shuffle_epi8(four, two), 8);
      weights_[k].one = _mm256_srai_epi16(_mm256_shuffle_epi8(four, one), 8);
    }
  }

  Column Load(const int8_t* top, const int8_t* middle, const int8_t* bottom) const {
    return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(LoadRow(top), LoadRow(middle))),
            _mm256_cvtepi8_epi32(LoadRow(bottom))};
  }
  Sums Start() const { return offset_; }
  template <int kColumn>
  void Add(const Column& column, Sums& sums) const {
    const __m256i two = _mm256_madd_epi16(column.two, weights_[kColumn].two);
    const __m256i one = _mm256_madd_epi16(column.one, weights_[kColumn].one);
    sums = _mm256_add_epi32(sums, _mm256_add_epi32(two, one));
  }
  void Store(Sums sums, int8_t* codes) const {
    const __m128i bytes = coder_.Bytes(sums, scale_);
    if (kIsWhole) return _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), bytes);
    int8_t stored[kChannels];
    _mm_storel_epi64(reinterpret_cast<__m128i*>(stored), bytes);
    for (int64_t i = 0; i < inside_; ++i) codes[i] = stored[i];
  }

 private:
  __m128i LoadRow(const int8_t* from) const {
    if (kIsWhole) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    int8_t bytes[kChannels] = {};
    for (int64_t i = 0; i < inside_; ++i) bytes[i] = from[i];
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  }

  int64_t inside_;
  OnceCoder coder_;
  __m256i offset_;
  __m256 scale_;
  Column weights_[3];
};

constexpr CodeLoops MakeAvx2Loops() {
  CodeLoops loops = MakeLoops("avx2", Isa::kAvx2);
  loops.depthwise_nine = {
      .run = DepthwiseNine<EightNineTaps>, .block = 8, .bias = 0, .rounds_once = true};
  return loops;
}

}  // namespace

extern const CodeLoops kAvx2CodeLoops;
const CodeLoops kAvx2CodeLoops = MakeAvx2Loops();

}  // namespace runnel::cpu
