// Batch norm on fixed points, byte for byte as kernels/backends/ref/fixed_norm.cc has it. Channels
// lie beside one another: each lane of a vector adds up its own channel's list in the order of a
// plain loop.

#include "kernels/backends/host/fixed_norm.h"

#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/grids/norm_image.h"
#include "kernels/ir/arithmetic/fixed_point.h"

namespace runnel::cpu {
namespace {

// Neighbouring channels of a norm.
struct Channels {
  int64_t first, count;
  NormRows rows;  // of the norm's x

  Channels(const NormImage& image, int64_t first_channel, int64_t channels, const float* x)
      : first(first_channel),
        count(channels),
        rows{x + first, image.rows, image.channels, channels} {}
};

void FindMoments(const Call& call, const Channels& channels,
                 host::FixedMoments (&moments)[kNormChannels]) {
  const FloatLoops& loops = call.machine.grids->floats;
  const auto count = static_cast<double>(channels.rows.rows);
  double means[kNormChannels] = {}, squares[kNormChannels] = {};
  loops.moments(channels.rows, nullptr, means);
  for (int64_t c = 0; c < channels.count; ++c) means[c] /= count;
  loops.moments(channels.rows, means, squares);
  for (int64_t c = 0; c < channels.count; ++c) moments[c] = {means[c], squares[c] / count};
}

// channel_of(c): a FixedChannel.
template <typename ChannelOf>
void Normalise(const Call& call, const Channels& channels, const ChannelOf& channel_of) {
  double means[kNormChannels], inverses[kNormChannels];
  double factors[kNormChannels], added[kNormChannels];
  for (int64_t c = 0; c < channels.count; ++c) {
    const host::FixedChannel channel = channel_of(channels.first + c);
    means[c] = channel.mean;
    inverses[c] = channel.inverse;
    factors[c] = channel.factor;
    added[c] = channel.added;
  }
  const FixedNorm norm = {means, inverses, StepsOfPower(1, call.instruction->grid.bits)};
  call.machine.grids->floats.fixed_normalise(channels.rows, norm, factors, added,
                                             call.out(0) + channels.first);
}

void GradientsOf(const Call& call, const NormImage& image, const Channels& channels) {
  const FloatLoops& loops = call.machine.grids->floats;
  const float* stats = call.in(3);
  const float* errors = call.in(0) + channels.first;
  const auto count = static_cast<double>(image.rows);
  double means[kNormChannels], inverses[kNormChannels], factors[kNormChannels];
  double sums[3][kNormChannels] = {};
  for (int64_t c = 0; c < channels.count; ++c) {
    const int64_t channel = channels.first + c;
    means[c] = stats[channel];
    inverses[c] = stats[image.channels + channel];
    factors[c] = host::FixedChannelOf(0, 0, call.in(2)[channel], 0).factor * inverses[c];
  }
  const FixedNorm norm = {means, inverses, StepsOfPower(1, call.instruction->grid.bits)};
  loops.fixed_sums(channels.rows, norm, errors, sums);
  for (int64_t c = 0; c < channels.count; ++c) {
    const int64_t channel = channels.first + c;
    host::PutFixedGradients(sums[0][c], sums[2][c], call.out(1)[channel],
                            call.out(1)[image.channels + channel]);
    sums[0][c] /= count;
    sums[1][c] /= count;
  }
  loops.fixed_gradient(channels.rows, norm, errors, factors, sums[0], sums[1],
                       call.out(0) + channels.first);
}

}  // namespace

absl::Status FixedNormForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const NormImage image(call.in_shape(0));
  const host::RangeStatistics statistics = {call.out(1), call.out(2), call.out(3)};
  OverChannels(call, image, [&](int64_t first, int64_t count) {
    const Channels channels(image, first, count, call.in(0));
    host::FixedMoments moments[kNormChannels];
    FindMoments(call, channels, moments);
    for (int64_t c = 0; c < count; ++c) {
      host::FinishFixedStatistics(*call.instruction, image.rows, image.channels, first + c,
                                  moments[c], statistics);
    }
    Normalise(call, channels, [&](int64_t c) {
      return host::FixedChannelOf(statistics.stats[c], statistics.stats[image.channels + c],
                                  call.in(1)[c], call.in(2)[c]);
    });
  });
  return absl::OkStatus();
}

absl::Status FixedNormEval(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const NormImage image(call.in_shape(0));
  OverChannels(call, image, [&](int64_t first, int64_t count) {
    Normalise(call, Channels(image, first, count, call.in(0)), [&](int64_t c) {
      return host::FixedChannelOfRunning(call.in(3)[c], call.in(4)[c], call.in(1)[c],
                                         call.in(2)[c]);
    });
  });
  return absl::OkStatus();
}

absl::Status FixedNormInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const NormImage image(call.in_shape(0));
  OverChannels(call, image, [&](int64_t first, int64_t count) {
    GradientsOf(call, image, Channels(image, first, count, call.in(1)));
  });
  return absl::OkStatus();
}

}  // namespace runnel::cpu
