#include "kernels/backends/cpu/fp32/conv/backward.h"

#include <algorithm>

#include "kernels/backends/cpu/fp32/batch_norm.h"
#include "kernels/backends/cpu/fp32/conv/depthwise.h"

namespace runnel::fp32 {
namespace {

// RowSource::Rows by all threads.
const float* MakeRows(const Call& call, const RowSource& source, int64_t row, int64_t count,
                      float* buffer) {
  if (!source.made()) return source.x + row * source.channels;
  float* to = source.place != nullptr ? source.place + row * source.channels : buffer;
  ParallelFor(call.machine, count, [&](int, int64_t begin, int64_t end) {
    source.Make(call.kernels(), row + begin, end - begin, to + begin * source.channels);
  });
  return to;
}

// Sums of the next batch norm's gradient while its dy is made.
class NextSums {
 public:
  NextSums(const Call& call, const ConvBackwardParts& parts) : parts_(parts) {
    if (parts.next_norm != nullptr) sums_.emplace(call, ImageOf(parts.next_norm->in_shape(0)));
  }
  void Add(int64_t row, int64_t count) {
    if (!sums_.has_value()) return;
    AddGradientSums(*parts_.next_norm, parts_.next, parts_.input->y, row, count, *sums_);
  }
  void Finish() {
    if (sums_.has_value()) FinishGradientSums(*parts_.next_norm, *sums_);
  }

 private:
  const ConvBackwardParts& parts_;
  std::optional<PieceSums> sums_;
};

int64_t MadeFloats(const RowSource& source, int64_t rows) {
  return source.made() && source.place == nullptr ? rows * source.channels : 0;
}

void RunDepthwiseBoth(const Call& call, const ConvBackwardParts& parts) {
  const WeightGradient& weight = *parts.weight;
  const ConvProduct& input = *parts.input;
  const BlockPlan plan = DepthwiseBlocks(input);
  DepthwiseGradientRunner gradient(call, weight);
  const DepthwiseRunner runner(call, input);
  const int64_t positions = weight.y_image.positions();
  float* dy_made = call.Take<float>(MadeFloats(parts.dy, plan.block * positions));
  float* x_made = call.Take<float>(MadeFloats(parts.x, weight.x_image.positions()));
  NextSums sums(call, parts);
  for (int64_t i = 0; i < plan.blocks(); ++i) {
    const int64_t first = i * plan.block, count = plan.count(i);
    const float* dy = MakeRows(call, parts.dy, first * positions, count * positions, dy_made);
    const int64_t image_floats = positions * weight.y_image.c;
    for (int64_t n = 0; n < count; ++n) {
      gradient.Add(parts.x, dy + n * image_floats, first + n, x_made);
    }
    ParallelFor(call.machine, count, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) runner.Run(worker, dy + n * image_floats, first + n);
    });
    sums.Add(first * input.target.positions(), count * input.target.positions());
  }
  gradient.Store();
  sums.Finish();
}

void RunBoth(const Call& call, const ConvBackwardParts& parts) {
  const WeightGradient& weight = *parts.weight;
  const ConvProduct& input = *parts.input;
  const bool pixelwise = weight.pixelwise() && input.pixelwise();
  const BlockPlan plan = BlocksOf(weight);
  // A block of dy is made once and not kept, so all of both weights is needed at the same time.
  WeightGradientRunner gradient(call, weight, pixelwise, plan.block, Packing::kWhole);
  const ConvRunner runner(call, input, pixelwise, plan.block, Packing::kWhole);
  float* dy_made = call.Take<float>(MadeFloats(parts.dy, plan.block * gradient.unit_y()));
  float* x_made = call.Take<float>(MadeFloats(parts.x, plan.block * gradient.unit_x()));
  NextSums sums(call, parts);
  for (int64_t i = 0; i < plan.blocks(); ++i) {
    const int64_t unit = i * plan.block, count = plan.count(i);
    const int64_t unit_x = gradient.unit_x(), unit_y = gradient.unit_y();
    const float* dy = MakeRows(call, parts.dy, unit * unit_y, count * unit_y, dy_made);
    const float* x = MakeRows(call, parts.x, unit * unit_x, count * unit_x, x_made);
    gradient.Add(x, dy, count);
    ParallelFor(call.machine, count, [&](int worker, int64_t begin, int64_t end) {
      runner.Run(worker, dy + begin * unit_y * weight.y_image.c, unit + begin, end - begin);
    });
    sums.Add(unit * runner.unit_target(), count * runner.unit_target());
  }
  gradient.Store();
  sums.Finish();
}

void RunInputOnly(const Call& call, const ConvBackwardParts& parts) {
  const ConvProduct& input = *parts.input;
  NextSums sums(call, parts);
  const auto after = [&](int64_t row, int64_t count) { sums.Add(row, count); };
  if (parts.depthwise) {
    RunDepthwise(call, input, parts.dy, after);
  } else {
    RunConvProduct(call, input, parts.dy, after);
  }
  sums.Finish();
}

void RunWeightOnly(const Call& call, const ConvBackwardParts& parts) {
  const WeightGradient& weight = *parts.weight;
  if (!parts.depthwise) {
    RunWeightGradient(call, weight, parts.x, parts.dy);
    return;
  }
  DepthwiseGradientRunner gradient(call, weight);
  const int64_t positions = weight.y_image.positions();
  float* dy_made = call.Take<float>(MadeFloats(parts.dy, positions));
  float* x_made = call.Take<float>(MadeFloats(parts.x, weight.x_image.positions()));
  for (int64_t n = 0; n < weight.y_image.n; ++n) {
    gradient.Add(parts.x, MakeRows(call, parts.dy, n * positions, positions, dy_made), n, x_made);
  }
  gradient.Store();
}

}  // namespace

BackwardRoles::BackwardRoles(Calls calls) {
  for (const Call& call : calls) {
    switch (call.instruction->code) {
      case OpCode::kReluInputGradient:
      case OpCode::kRelu6InputGradient:
        (input == nullptr ? activation : next_activation) = &call;
        break;
      case OpCode::kBatchNormInputGradient:
        (input == nullptr ? norm : next_norm) = &call;
        break;
      case OpCode::kConvWeightGradient:
        weight = &call;
        break;
      case OpCode::kConvInputGradient:
        input = &call;
        break;
      case OpCode::kReluForward:
      case OpCode::kRelu6Forward:
        x_activation = &call;
        break;
      default:
        x_norm = &call;
    }
  }
}

void RunConvBackward(const Call& call, const ConvBackwardParts& parts) {
  if (!parts.weight.has_value()) {
    RunInputOnly(call, parts);
  } else if (!parts.input.has_value()) {
    RunWeightOnly(call, parts);
  } else if (parts.depthwise) {
    RunDepthwiseBoth(call, parts);
  } else {
    RunBoth(call, parts);
  }
}

}  // namespace runnel::fp32
