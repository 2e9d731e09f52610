// Dropout: the mask is drawn anew in each direction, a Philox block for four neighbouring elements
// in the logical (N, C, spatial) order, whatever the layout.

#include <cmath>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "proto/base/random.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kDrawn = 64;  // elements that a call of dropout_mask has to be a multiple of

int64_t DrawnFor(int64_t size) { return (size + 3 + kDrawn - 1) / kDrawn * kDrawn; }

}  // namespace

absl::Status Dropout(Calls calls) {
  const Call& call = calls[0];
  const Shape& shape = call.out_shape(0);
  const int64_t samples = shape[0], size = shape.elements() / samples;
  const int64_t channels = call.channels_last ? ImageOf(shape).c : 1;
  const int64_t positions = size / channels;
  const Instruction& instruction = *call.instruction;
  const CounterRandom random(
      call.context->run_seed, RandomPurpose::kDropout,
      static_cast<uint64_t>(instruction.layer) * 256 + static_cast<uint64_t>(instruction.op),
      static_cast<uint64_t>(call.context->sequence.value()));
  const double rate = instruction.attributes.rate;
  // Uniform = (bits >> 8) / 2^24 exactly, so Uniform >= rate is bits >> 8 >= ceil(rate * 2^24).
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(rate * 0x1p24));
  const float scale = static_cast<float>(1.0 / (1.0 - rate));
  // The mask comes in the logical order. Channels-last, it is turned like any tensor.
  const bool turns = channels > 1 && positions > 1;
  const int64_t worker_floats = DrawnFor(size) + (turns ? size : 0);
  float* masks = call.Take<float>(call.machine.workers() * worker_floats);
  ParallelFor(call.machine, samples, [&](int worker, int64_t begin, int64_t end) {
    float* mask = masks + worker * worker_floats;
    float* turned = mask + DrawnFor(size);
    for (int64_t n = begin; n < end; ++n) {
      const uint64_t first = static_cast<uint64_t>(n * size);
      call.kernels().dropout_mask(random.key().data(), random.sequence_words().data(), first / 4,
                                  DrawnFor(size), threshold, scale, mask);
      const float* keep = mask + first % 4;
      if (turns) {
        call.kernels().transpose(keep, channels, positions, positions, turned, channels);
        keep = turned;
      }
      call.kernels().apply_mask(call.in(0) + n * size, keep, size, call.out(0) + n * size);
    }
  });
  return absl::OkStatus();
}

}  // namespace runnel::fp32
