#include "worker/inference/inference_stage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/inference/graph_convert.h"
#include "worker/stage/counts/class_counter.h"

namespace runnel {
namespace {

// Without the batch.
Shape SampleOf(const Shape& shape) { return Shape::Create(shape.dims().subspan(1)).value(); }

absl::Status CheckSize(const char* what, const Payload& payload, int64_t bytes) {
  if (static_cast<int64_t>(payload.size()) == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of ", payload.size(), " bytes, needs ", bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<InferenceStage>> InferenceStage::Create(
    InferenceStageOptions options, MakeGraphRunnerFn make_runner, BufferPool* pool) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(options.model, 1));
  if (options.first_layer < 0 || options.last_layer < options.first_layer ||
      options.last_layer >= options.model.layer_count()) {
    return absl::InvalidArgumentError(absl::StrCat("layers ", options.first_layer, " to ",
                                                   options.last_layer, " of ",
                                                   options.model.layer_count()));
  }
  auto stage = std::unique_ptr<InferenceStage>(
      new InferenceStage(std::move(options), std::move(make_runner), pool));
  stage->input_sample_ = SampleOf(infos[stage->options_.first_layer].input);
  stage->output_sample_ = SampleOf(infos[stage->options_.last_layer].output);
  return stage;
}

absl::Status InferenceStage::ImportState(const ModelState& state) {
  runner_.reset();
  RUNNEL_ASSIGN_OR_RETURN(
      graph_, GraphOfLayers(state, options_.model, options_.first_layer, options_.last_layer));
  RUNNEL_ASSIGN_OR_RETURN(runner_, make_runner_(graph_));
  graph_bytes_ = graph_.weight_bytes();
  for (const inference::Int8Node& n : graph_.nodes)
    graph_bytes_ += n.node.outputs() * options_.eval_batch_size;
  memory_bytes_ = graph_bytes_;
  return absl::OkStatus();
}

absl::Status InferenceStage::RunGraph(absl::Span<const std::byte> input, int64_t samples,
                                      absl::Span<std::byte> output) {
  const absl::Status status = runner_->Run(input, samples, output);
  memory_bytes_ = graph_bytes_ + runner_->memory_bytes();
  return status;
}

// Kernels are made for codes within the coding: beyond it their sums could overflow.
absl::Status InferenceStage::CheckCodes(absl::Span<const std::byte> codes) const {
  const int32_t most = graph_.nodes.front().coding.max_code;
  const auto* values = reinterpret_cast<const int8_t*>(codes.data());
  int32_t low = 0, high = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    low = std::min<int32_t>(low, values[i]);
    high = std::max<int32_t>(high, values[i]);
  }
  if (low >= -most && high <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("codes from ", low, " to ", high, ": the layer has them within +-", most));
}

absl::StatusOr<StageCompute::Output> InferenceStage::TallyOf(int64_t samples,
                                                             absl::Span<const std::byte> input,
                                                             const Payload& labels) {
  RUNNEL_RETURN_IF_ERROR(
      CheckSize("labels", labels, samples * static_cast<int64_t>(sizeof(int32_t))));
  const int64_t classes = graph_.classes();
  logits_.resize(static_cast<size_t>(samples * classes));
  RUNNEL_RETURN_IF_ERROR(RunGraph(input, samples,
                                  absl::MakeSpan(reinterpret_cast<std::byte*>(logits_.data()),
                                                 logits_.size() * sizeof(float))));
  Tally tally;
  std::vector<int32_t> wanted(static_cast<size_t>(samples));
  std::memcpy(wanted.data(), labels.bytes().data(), wanted.size() * sizeof(int32_t));
  for (int64_t i = 0; i < samples; ++i) {
    const int32_t label = wanted[static_cast<size_t>(i)];
    if (label < 0 || label >= classes) {
      return absl::InvalidArgumentError(absl::StrCat("label ", label, " of ", classes, " classes"));
    }
    tally.Add(absl::MakeConstSpan(logits_).subspan(i * classes, classes), label);
  }
  return Output{{}, tally.loss_sum, tally.correct, CountClasses(logits_, classes, wanted)};
}

absl::StatusOr<StageCompute::Output> InferenceStage::Evaluate(int64_t samples, Payload input,
                                                              Payload labels) {
  if (runner_ == nullptr) return absl::FailedPreconditionError("the stage has no integers yet");
  const int64_t in_bytes = samples * inference::InputBytes(graph_);
  const Shape in_shape = input_shape(samples);
  RUNNEL_RETURN_IF_ERROR(CheckSize(
      "stage input", input, graph_.takes_codes ? BoundaryBytes(numbers(), in_shape) : in_bytes));
  const absl::Span<const std::byte> values = input.bytes().first(static_cast<size_t>(in_bytes));
  if (graph_.takes_codes) RUNNEL_RETURN_IF_ERROR(CheckCodes(values));
  if (!graph_.gives_codes) return TallyOf(samples, values, labels);
  Payload output =
      pool_->Allocate(static_cast<size_t>(BoundaryBytes(numbers(), output_shape(samples))));
  const absl::Span<std::byte> bytes = output.mutable_bytes();
  const auto codes = static_cast<size_t>(samples * inference::OutputBytes(graph_));
  RUNNEL_RETURN_IF_ERROR(RunGraph(values, samples, bytes.first(codes)));
  std::fill(bytes.begin() + static_cast<int64_t>(codes), bytes.end(), std::byte{0});  // exponent 0
  return Output{std::move(output)};
}

}  // namespace runnel
