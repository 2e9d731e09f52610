#include "predictor/fit/features.h"

#include <cmath>

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

double& At(WorkVector& work, Work kind) { return work[static_cast<size_t>(kind)]; }

Work MacsKind(const OpSpec& op) {
  if (op.kind == OpKind::kLinear) return Work::kLinearMacs;
  if (op.groups > 1) return Work::kDepthwiseMacs;
  return op.kernel[0] * op.kernel[1] == 1 ? Work::kPointwiseMacs : Work::kConvMacs;
}

// Multiply-accumulates of one operator's forward: each output element sums over its window and the
// channels of its group, or over all features.
double OpMacs(const OpSpec& op, const Shape& input, const Shape& output) {
  const auto elements = static_cast<double>(output.elements());
  if (op.kind == OpKind::kLinear) return elements * static_cast<double>(input[input.rank() - 1]);
  double window = static_cast<double>(op.kernel[0]);
  if (input.rank() == 4) window *= static_cast<double>(op.kernel[1]);
  return elements * window * static_cast<double>(input[1]) / static_cast<double>(op.groups);
}

// `passes`: 3 for an operator with weights, 2 where no input-gradient is computed.
void AddOp(const OpSpec& op, const Shape& input, const Shape& output, double passes,
           WorkVector& work) {
  const auto elements = static_cast<double>(input.elements() + output.elements());
  At(work, Work::kOps) += 1;
  switch (op.kind) {
    case OpKind::kConv:
    case OpKind::kLinear:
      At(work, MacsKind(op)) += passes * OpMacs(op, input, output);
      if (op.kind == OpKind::kConv) At(work, Work::kConvElements) += elements * passes;
      return;
    case OpKind::kMaxPool:
    case OpKind::kAvgPool:
    case OpKind::kGlobalAvgPool:
      At(work, Work::kPoolElements) += elements * 2;
      return;
    case OpKind::kFlatten:
      return;
    default:
      At(work, Work::kElementwiseElements) += elements * 2;
  }
}

WorkVector WorkOf(const LayerSpec& layer, const LayerInfo& info, bool samples_enter) {
  WorkVector work = {};
  At(work, Work::kParameters) = static_cast<double>(info.parameters);
  for (size_t j = 0; j < layer.ops.size(); ++j) {
    const OpSpec& op = layer.ops[j];
    const int32_t source = op.inputs.empty() ? 0 : op.inputs[0];
    const Shape& input =
        source == 0 ? info.input : info.op_outputs[static_cast<size_t>(source - 1)];
    AddOp(op, input, info.op_outputs[j], samples_enter && source == 0 ? 2 : 3, work);
  }
  return work;
}

// Bytes that a layer touches: its activations once; its weights, their momentum and their gradient.
double TouchedBytes(const WorkVector& work) {
  const auto of = [&work](Work kind) { return work[static_cast<size_t>(kind)]; };
  return sizeof(float) * (of(Work::kConvElements) / 3 + of(Work::kElementwiseElements) / 2 +
                          of(Work::kPoolElements) / 2 + 3 * of(Work::kParameters));
}

double BeyondCache(double bytes) { return bytes * bytes / (bytes + kCacheBytes); }

}  // namespace

absl::StatusOr<std::vector<WorkVector>> LayerWork(const ModelSpec& model, int64_t batch) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, batch));
  std::vector<WorkVector> layers;
  for (size_t l = 0; l < infos.size(); ++l)
    layers.push_back(WorkOf(model.layers[l], infos[l], l == 0));
  return layers;
}

absl::StatusOr<ModelWork> ModelWork::Create(const ModelSpec& model, int64_t batch) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, batch));
  ModelWork result;
  RUNNEL_ASSIGN_OR_RETURN(result.layers_, LayerWork(model, batch));
  for (const LayerInfo& info : infos) {
    result.macs_.push_back(static_cast<double>(info.macs));
    result.boundary_.push_back(static_cast<double>(info.input.elements()));
  }
  result.boundary_.push_back(static_cast<double>(infos.back().output.elements()));
  for (const WorkVector& layer : result.layers_) result.bytes_.push_back(TouchedBytes(layer));
  return result;
}

WorkVector ModelWork::Of(const LayerRange& range) const {
  WorkVector work = {};
  for (int l = range.first_layer; l <= range.last_layer; ++l) {
    for (int k = 0; k < kWorkKinds; ++k) work[size_t(k)] += layers_[size_t(l)][size_t(k)];
  }
  At(work, Work::kBoundaryElements) =
      boundary_[size_t(range.first_layer)] + boundary_[size_t(range.last_layer) + 1];
  return work;
}

double ModelWork::Macs(const LayerRange& range) const {
  double macs = 0;
  for (int l = range.first_layer; l <= range.last_layer; ++l) macs += macs_[size_t(l)];
  return macs;
}

double ModelWork::BytesBeyondCache(const LayerRange& range) const {
  double touched = 0, alone = 0;
  for (int l = range.first_layer; l <= range.last_layer; ++l) {
    touched += bytes_[size_t(l)];
    alone += BeyondCache(bytes_[size_t(l)]);
  }
  return BeyondCache(touched) - alone;
}

std::vector<float> Encoding(const WorkVector& work) {
  std::vector<float> encoding;
  for (const double count : work) encoding.push_back(static_cast<float>(std::log1p(count)));
  return encoding;
}

}  // namespace runnel
