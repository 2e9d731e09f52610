// Dropout: the mask is drawn anew in each direction, a Philox block for four neighbouring elements
// in the logical (N, C, spatial) order, whatever the layout.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/torch/kernel.h"
#include "kernels/torch/simd.h"
#include "proto/base/random.h"

namespace runnel::torch_kernels {
namespace {

constexpr int kLanes = 16;  // blocks drawn side by side

// The mask of elements [4 * block, 4 * block + 4 * kLanes): `keep_scale` where
// bits >> 8 >= threshold, else 0.
RUNNEL_TORCH_SIMD void DrawMask(const std::array<uint32_t, 2>& key,
                                const std::array<uint32_t, 2>& sequence, uint64_t block,
                                uint32_t threshold, float keep_scale, float* mask) {
  for (uint64_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t counter = block + lane;
    const std::array<uint32_t, 4> bits =
        Philox4x32<7>({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                       sequence[0], sequence[1]},
                      key);
    for (int w = 0; w < 4; ++w) mask[4 * lane + w] = (bits[w] >> 8) >= threshold ? keep_scale : 0;
  }
}

class Mask {
 public:
  Mask(const Call& call)
      : random_(call.context->run_seed, RandomPurpose::kDropout,
                static_cast<uint64_t>(call.instruction->layer) * 256 +
                    static_cast<uint64_t>(call.instruction->op),
                static_cast<uint64_t>(call.context->sequence.value())) {
    const double rate = call.instruction->attributes.rate;
    // Uniform = (bits >> 8) / 2^24 exactly, so Uniform >= rate is bits >> 8 >= ceil(rate * 2^24).
    threshold_ = static_cast<uint32_t>(std::ceil(rate * 0x1p24));
    scale_ = static_cast<float>(1.0 / (1.0 - rate));
  }

  // Elements [begin, begin + count), in mask_.
  const float* Draw(uint64_t begin, int64_t count) {
    const uint64_t first = begin / 4;
    const int64_t needed = static_cast<int64_t>(begin % 4) + count;
    const int64_t drawn = (needed + 4 * kLanes - 1) / (4 * kLanes) * (4 * kLanes);
    mask_.resize(static_cast<size_t>(drawn));
    for (int64_t i = 0; i < drawn; i += 4 * kLanes) {
      DrawMask(random_.key(), random_.sequence_words(), first + static_cast<uint64_t>(i / 4),
               threshold_, scale_, mask_.data() + i);
    }
    return mask_.data() + begin % 4;
  }

 private:
  CounterRandom random_;
  uint32_t threshold_ = 0;
  float scale_ = 1;
  std::vector<float> mask_;
};

// A dropped element is 0 even where x is infinite or NaN.
inline float Masked(float x, float mask) { return mask == 0 ? 0.0f : x * mask; }

}  // namespace

absl::Status Dropout(const Call& call) {
  const Shape& shape = call.out_shape(0);
  const int64_t samples = shape[0], size = shape.elements() / samples;
  const Image image = ImageOf(shape);
  const int64_t channels = call.channels_last ? image.c : 1;
  const int64_t positions = size / channels;
  ParallelFor(samples, [&](int64_t begin, int64_t end) {
    Mask mask(call);
    for (int64_t n = begin; n < end; ++n) {
      const float* keep = mask.Draw(static_cast<uint64_t>(n * size), size);
      const float* x = call.in(0) + n * size;
      float* y = call.out(0) + n * size;
      for (int64_t p = 0; p < positions; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          y[p * channels + c] = Masked(x[p * channels + c], keep[c * positions + p]);
        }
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace runnel::torch_kernels
