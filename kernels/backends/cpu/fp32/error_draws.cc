#include "kernels/backends/cpu/fp32/error_draws.h"

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/packing.h"
#include "proto/base/random.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kDrawn = 64;  // elements that a call of draw_words has to be a multiple of

// What a thread needs for the draws of one sample.
struct Draws {
  int64_t drawn = 0;   // words that are drawn, more than a sample's
  int64_t words = 0;   // with a turned copy
  bool turns = false;  // channels-last
};

Draws DrawsOf(int64_t size, int64_t channels) {
  Draws draws;
  draws.drawn = (size + 3 + kDrawn - 1) / kDrawn * kDrawn;
  draws.turns = channels > 1 && size > channels;
  draws.words = draws.drawn + (draws.turns ? size : 0);
  return draws;
}

void OverDraws(const cpu::Call& call, RandomPurpose purpose, int stream, SampleDrawsFn body) {
  const Instruction& instruction = *call.instruction;
  const Shape& shape = call.out_shape(0);
  const int64_t samples = shape[0], size = shape.elements() / samples;
  const int64_t channels = call.channels_last ? ImageOf(shape).c : 1;
  const CounterRandom random(call.context->run_seed, purpose,
                             static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer +
                                 static_cast<uint64_t>(instruction.op) +
                                 (static_cast<uint64_t>(stream) << 32),
                             static_cast<uint64_t>(call.context->sequence.value()));
  const Draws draws = DrawsOf(size, channels);
  uint32_t* words = call.Take<uint32_t>(call.machine.workers() * draws.words);
  cpu::ParallelFor(call.machine, samples, [&](int worker, int64_t begin, int64_t end) {
    uint32_t* drawn = words + worker * draws.words;
    for (int64_t n = begin; n < end; ++n) {
      const auto first = static_cast<uint64_t>(n * size);
      call.kernels().draw_words(random.key().data(), random.sequence_words().data(), first / 4,
                                draws.drawn, drawn);
      const uint32_t* draw = drawn + first % 4;
      if (draws.turns) {
        // Moved as floats, bit by bit.
        call.kernels().transpose(reinterpret_cast<const float*>(draw), channels, size / channels,
                                 size / channels, reinterpret_cast<float*>(drawn + draws.drawn),
                                 channels);
        draw = drawn + draws.drawn;
      }
      body(worker, n * size, size, draw);
    }
  });
}

}  // namespace

void OverSampleDraws(const cpu::Call& call, SampleDrawsFn body) {
  OverDraws(call, RandomPurpose::kErrorRounding, 0, body);
}

void OverRoundingDraws(const cpu::Call& call, int stream, SampleDrawsFn body) {
  OverDraws(call, RandomPurpose::kRounding, stream, body);
}

}  // namespace runnel::fp32
